"""`manage.py create_key`: an API key from the command line, for those who run the installation."""

import json
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser
from typing_extensions import override

from tasks_app.admission.keys import DEFAULT_DAYS, create_key
from tasks_app.admission.principal import from_user
from tasks_app.domain.errors import InvalidInputError, RuntimeFault
from tasks_app.models import Tenant


class Command(BaseCommand):
    """Makes a key for a member, with no more than the member's own rights, and prints it once."""

    # What authors declared is told by `check` and does not concern this command.
    requires_system_checks = []
    help = "Make an API key for a member of a tenant and print it once."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, help="the tenant's slug")
        parser.add_argument("--user", required=True, help="the member's user name")
        parser.add_argument("--name", required=True, help="what the key is for")
        parser.add_argument(
            "--scope",
            action="append",
            required=True,
            metavar="CAPABILITY",
            help="such as tasks:create; may be given more than once",
        )
        parser.add_argument("--days", type=int, default=DEFAULT_DAYS)
        parser.add_argument("--cidr", action="append", default=[], help="an allowed network")
        parser.add_argument("--json", action="store_true")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        tenant = Tenant.objects.filter(slug=options["tenant"]).first()
        user = User.objects.filter(username=options["user"]).first()
        if tenant is None or user is None:
            raise CommandError("There is no such tenant or user.")
        try:
            made = create_key(
                from_user(user, tenant.id, via="command"),
                name=options["name"],
                scopes=options["scope"],
                days=options["days"],
                allowed_cidrs=options["cidr"],
            )
        except InvalidInputError as error:
            problems = "; ".join(f"{item.pointer}: {item.detail}" for item in error.errors)
            raise CommandError(problems or error.message) from error
        except RuntimeFault as error:
            raise CommandError(error.message) from error
        if options["json"]:
            facts = {"id": str(made.id), "key": made.text, "expires_at": str(made.expires_at)}
            self.stdout.write(json.dumps(facts))
            return
        self.stdout.write(made.text)
        self.stderr.write(f"Valid until {made.expires_at:%Y-%m-%d}. It is not shown again.")
