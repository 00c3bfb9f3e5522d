"""`manage.py plan_check`: what the installed code would do with every live task; changes nothing.

Exit status: 0 every task goes on, 1 at least one would be held, 2 wrong usage.
"""

import json
import sys
from argparse import ArgumentParser
from collections import Counter
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError
from typing_extensions import override

from tasks_app.engine.versions import Judgement, Verdict, judge_live
from tasks_app.models import Task, Tenant

HELD = 1
WRONG_USAGE = 2
_LINE = "{verdict:<12} {code:<40} {status:<15} {task}  {tenant}"


class Command(BaseCommand):
    """Prints one line for each live task, then how many there are of each verdict."""

    # What authors declared is told by `check` and does not concern this command.
    requires_system_checks = []
    help = (
        "Compare the installed workflows with every live task: go, go_upgraded, migrate or hold. "
        "Exit status: 0 none is held, 1 at least one would be, 2 wrong usage."
    )

    @override
    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--tenant", metavar="SLUG", help="tasks of one tenant")
        parser.add_argument("--json", action="store_true", help="print one JSON object a line")

    @override
    def handle(self, *args: object, **options: Any) -> None:
        tenant_id = _tenant_id(options["tenant"])
        counts: Counter[Verdict] = Counter()
        if not options["json"]:
            head = {"verdict": "VERDICT", "code": "WORKFLOW", "status": "STATUS"}
            self.stdout.write(_LINE.format(**head, task=f"{'TASK':<36}", tenant="TENANT"))
        for task, judged in judge_live(tenant_id):
            counts[judged.verdict] += 1
            facts = _facts(task, judged)
            self.stdout.write(json.dumps(facts) if options["json"] else _line(facts))
        if not options["json"]:
            told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict)
            self.stdout.write(f"{counts.total()} live tasks: {told}")
        if counts[Verdict.HOLD]:
            sys.exit(HELD)


def _facts(task: Task, judged: Judgement) -> dict[str, Any]:
    return {
        "task": str(task.id),
        "tenant": task.tenant.slug,
        "status": task.status,
        "workflow": task.workflow,
        "stored": task.workflow_version,
        "installed": judged.installed,
        "verdict": judged.verdict.value,
        "reason": judged.reason,
        "message": judged.message,
        "details": judged.details,
    }


def _line(facts: dict[str, Any]) -> str:
    code = f"{facts['workflow']}@{facts['stored']}"
    if facts["installed"] != facts["stored"]:
        code += f" -> {facts['installed'] or 'missing'}"
    line = _LINE.format(**facts, code=code)
    if facts["reason"]:
        line += f"\n             {facts['reason']}: {facts['message']}"
        line += "".join(f" {name}: {value}" for name, value in facts["details"].items())
    return line


def _tenant_id(slug: str | None) -> UUID | None:
    if slug is None:
        return None
    found = Tenant.objects.filter(slug=slug).values_list("id", flat=True).first()
    if found is None:
        raise CommandError(f"There is no tenant {slug}.", returncode=WRONG_USAGE)
    return found
