"""`manage.py verify_audit_chain`: recompute the audit chain and compare the ledger with it.

Exit status: 0 everything fits, 1 a fault was found, 2 the check could not be made.
"""

import json
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand
from django.db import DatabaseError
from typing_extensions import override

from ledger_app.domain.audit import task_stream
from ledger_app.services.verification import StreamVerdict, verify, verify_all

FAULT = 1
UNCHECKED = 2


class Command(BaseCommand):
    """Prints the first fault of every stream, then one line of totals."""

    # What authors declared is told by `check` and does not concern the record.
    requires_system_checks = []
    help = (
        "Recompute the audit chain and compare effects and receipts with it. "
        "Exit status: 0 in order, 1 fault, 2 could not check."
    )

    @override
    def add_arguments(self, parser: ArgumentParser) -> None:
        scope = parser.add_mutually_exclusive_group()
        scope.add_argument("--tenant", type=_uuid, metavar="UUID", help="streams of one tenant")
        scope.add_argument("--task", type=_uuid, metavar="UUID", help="the stream of one task")
        parser.add_argument("--json", action="store_true", help="print one JSON document")

    @override
    def handle(self, *args: object, **options: Any) -> None:
        report = _Report()
        try:
            for verdict in _verdicts(options["tenant"], options["task"]):
                report.add(verdict)
                if not options["json"]:
                    self._print(verdict)
        except DatabaseError as error:
            self.stderr.write(f"could not check: {error}".strip())
            sys.exit(UNCHECKED)
        self.stdout.write(json.dumps(report.document()) if options["json"] else report.summary())
        if report.faults:
            sys.exit(FAULT)

    def _print(self, verdict: StreamVerdict) -> None:
        fault = verdict.fault
        if fault is not None:
            place = f" seq {fault.seq}" if fault.seq is not None else ""
            self.stdout.write(f"FAULT {fault.stream}{place}: {fault.code}: {fault.detail}")
        for notice in verdict.notices:
            self.stdout.write(f"note {verdict.stream}: {notice}")


class _Report:
    def __init__(self) -> None:
        self.streams = 0
        self.entries = 0
        self.faults: list[dict[str, object]] = []
        self.notices: list[dict[str, str]] = []

    def add(self, verdict: StreamVerdict) -> None:
        self.streams += 1
        self.entries += verdict.entries
        if verdict.fault is not None:
            self.faults.append(asdict(verdict.fault))
        self.notices += [{"stream": verdict.stream, "detail": text} for text in verdict.notices]

    def summary(self) -> str:
        found = f"{len(self.faults)} faults" if self.faults else "in order"
        return f"{self.streams} streams, {self.entries} entries: {found}"

    def document(self) -> dict[str, object]:
        return {
            "ok": not self.faults,
            "streams": self.streams,
            "entries": self.entries,
            "faults": self.faults,
            "notices": self.notices,
        }


def _verdicts(tenant: UUID | None, task: UUID | None) -> Iterator[StreamVerdict]:
    if task is not None:
        yield verify(task_stream(task))
    else:
        yield from verify_all(tenant)


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is no UUID") from error
