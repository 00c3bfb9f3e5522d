"""`manage.py found_tenant`: a tenant with its first members, by those who run the installation."""

from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.validators import validate_slug
from typing_extensions import override

from tasks_app.admission.members import found_member
from tasks_app.domain.errors import InvalidInputError
from tasks_app.models import AgentIdentity, Tenant


class Command(BaseCommand):
    """Makes what is missing and keeps what is there; every membership it makes is audited."""

    # What authors declared is told by `check` and does not concern this command.
    requires_system_checks = []
    help = "Make a tenant with its agent and first members; users must exist (createsuperuser)."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--slug", required=True, help="short name, such as acme")
        parser.add_argument("--name", required=True, help="name that people see")
        parser.add_argument(
            "--member",
            action="append",
            required=True,
            metavar="USER=ROLE[,ROLE]",
            help="such as alice=admin or bob=submitter,viewer; may be given more than once",
        )

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        members = [_member(text) for text in options["member"]]
        tenant = _tenant(options["slug"], options["name"])
        agents = AgentIdentity.objects.for_tenant(tenant.id)
        if not agents.filter(name="default").exists():
            AgentIdentity.objects.create(tenant=tenant, name="default")
        for user, roles in members:
            try:
                made = found_member(
                    tenant_id=tenant.id, user_id=user.pk, roles=roles, by="found_tenant"
                )
            except InvalidInputError as error:
                raise CommandError("; ".join(item.detail for item in error.errors)) from error
            word = "is now" if made else "stays as before, not"
            self.stdout.write(f"{user.username} {word} {', '.join(roles)} of {tenant.slug}")


def _member(text: str) -> tuple[User, list[str]]:
    name, separator, roles = text.partition("=")
    if not separator:
        raise CommandError(f"{text!r} must be USER=ROLE[,ROLE].")
    user = User.objects.filter(username=name).first()
    if user is None:
        raise CommandError(f"There is no user {name!r}; make one with createsuperuser.")
    return user, [role.strip() for role in roles.split(",") if role.strip()]


def _tenant(slug: str, name: str) -> Tenant:
    try:
        validate_slug(slug)
    except ValidationError as error:
        raise CommandError(f"{slug!r} is no slug: letters, digits, - and _ only.") from error
    tenant, _ = Tenant.objects.get_or_create(slug=slug, defaults={"name": name})
    return tenant
