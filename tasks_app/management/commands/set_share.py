"""`manage.py set_share`: how much of the workers a tenant gets, by those who run the installation."""

from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from typing_extensions import override

from tasks_app.admission.shares import set_share
from tasks_app.domain.errors import InvalidInputError
from tasks_app.models import Tenant


class Command(BaseCommand):
    """Changes what is named, keeps the rest, prints what holds now; every change is audited."""

    # What authors declared is told by `check` and does not concern this command.
    requires_system_checks = []
    help = "Set a tenant's weight and its limit of running tasks; prints them when none is given."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, help="the tenant's slug")
        parser.add_argument("--weight", type=int, help="its share beside other tenants' (1 to 100)")
        parser.add_argument(
            "--max-concurrent-tasks",
            type=_limit,
            default=...,
            metavar="NUMBER|none",
            help="how many of its tasks may run at once",
        )

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        tenant = Tenant.objects.filter(slug=options["tenant"]).first()
        if tenant is None:
            raise CommandError("There is no such tenant.")
        weight, limit = options["weight"], options["max_concurrent_tasks"]
        try:
            set_share(
                tenant_id=tenant.id,
                weight=tenant.weight if weight is None else weight,
                max_concurrent_tasks=tenant.max_concurrent_tasks if limit is ... else limit,
                by="set_share",
            )
        except InvalidInputError as error:
            raise CommandError("; ".join(item.detail for item in error.errors)) from error
        tenant.refresh_from_db()
        shown = "no limit" if tenant.max_concurrent_tasks is None else tenant.max_concurrent_tasks
        self.stdout.write(f"{tenant.slug}: weight {tenant.weight}, running tasks: {shown}")


def _limit(text: str) -> int | None:
    if text == "none":
        return None
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is neither a number nor `none`")
    return int(text)
