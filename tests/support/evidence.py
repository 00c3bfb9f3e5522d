"""Everything that the database knows about some tasks, read in one go for the oracles to judge."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from ledger_app.models import AuditEntry, Effect, Receipt, Usage
from tasks_app.models import (
    Approval,
    ApprovalDecision,
    Artifact,
    Attempt,
    Checkpoint,
    Event,
    Outbox,
    Slice,
    SteeringCommand,
    Step,
    StepRange,
    Task,
)

DONE = frozenset({"succeeded", "skipped"})


@dataclass(frozen=True, slots=True)
class Audited:
    """One entry of a task's audit stream."""

    seq: int
    at: datetime
    envelope: dict[str, Any]
    details: dict[str, Any]

    @property
    def action(self) -> str:
        return str(self.envelope["action"])

    @property
    def target(self) -> str:
        """Return the id of what was acted on, without its kind."""
        return str(self.envelope["target"]).partition(":")[2]


@dataclass(slots=True)
class Evidence:
    """One task with all its rows, each list in the order in which it was written."""

    task: Task
    steps: list[Step] = field(default_factory=list)
    ranges: list[StepRange] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    slices: list[Slice] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    artifacts: list[Artifact] = field(default_factory=list)
    commands: list[SteeringCommand] = field(default_factory=list)
    approvals: list[Approval] = field(default_factory=list)
    decisions: dict[UUID, list[ApprovalDecision]] = field(default_factory=lambda: defaultdict(list))
    owed: list[Outbox] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    usage: list[Usage] = field(default_factory=list)
    audit: list[Audited] = field(default_factory=list)

    @property
    def plan(self) -> list[Step]:
        """Return the steps of the current plan in their order."""
        current = (step for step in self.steps if step.retired_in is None)
        return sorted(current, key=lambda step: step.position)

    def audited(self, *actions: str) -> list[Audited]:
        """Return the entries of some actions."""
        return [entry for entry in self.audit if entry.action in actions]


# Field of Evidence, model, order.
_TASK_ROWS: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
    ("steps", Step, ("id",)),
    ("ranges", StepRange, ("id",)),
    ("attempts", Attempt, ("id",)),
    ("slices", Slice, ("fence",)),
    ("checkpoints", Checkpoint, ("seq",)),
    ("events", Event, ("seq",)),
    ("artifacts", Artifact, ("created_at", "id")),
    ("commands", SteeringCommand, ("seq",)),
    ("approvals", Approval, ("created_at", "id")),
    ("owed", Outbox, ("id",)),
)
_LEDGER_ROWS: tuple[tuple[str, Any, str], ...] = (
    ("effects", Effect, "id"),
    ("receipts", Receipt, "created_at"),
    ("usage", Usage, "id"),
)


def collect(tasks: Iterable[Task]) -> list[Evidence]:
    """Return the evidence of each task; the number of queries does not grow with the tasks."""
    found = {task.id: Evidence(task) for task in tasks}
    ids = list(found)
    for name, model, order in _TASK_ROWS:
        rows = model.objects.all_tenants("a test looks").filter(task_id__in=ids)
        for row in rows.order_by(*order):
            getattr(found[row.task_id], name).append(row)
    for name, model, by in _LEDGER_ROWS:
        for row in model.objects.filter(task_id__in=ids).order_by(by):
            getattr(found[row.task_id], name).append(row)
    _add_decisions(found)
    _add_audit(found)
    return list(found.values())


def of(task: Task) -> Evidence:
    """Return the evidence of one task."""
    return collect([task])[0]


def _add_decisions(found: dict[UUID, Evidence]) -> None:
    owner = {row.id: evidence for evidence in found.values() for row in evidence.approvals}
    if not owner:
        return
    rows = ApprovalDecision.objects.all_tenants("a test looks").filter(approval_id__in=list(owner))
    for row in rows.order_by("id"):
        owner[row.approval_id].decisions[row.approval_id].append(row)


def _add_audit(found: dict[UUID, Evidence]) -> None:
    streams = {f"task:{task_id}": evidence for task_id, evidence in found.items()}
    rows = AuditEntry.objects.filter(stream__in=list(streams)).order_by("stream", "seq")
    for stream, seq, at, envelope, details in rows.values_list(
        "stream", "seq", "at", "envelope", "details"
    ):
        entry = Audited(seq, at, json.loads(envelope), json.loads(details or "{}"))
        streams[stream].audit.append(entry)


class Progress:
    """How often each step body or item ran, and which results were committed, at one moment."""

    def __init__(self, task: Task, file: Path) -> None:
        evidence = of(task)
        self.runs = read_runs(file)
        self.committed = {step.key for step in evidence.plan if step.status in DONE}
        for row in evidence.ranges:
            self.committed |= {str(n) for n in range(row.first_item, row.end_item)}


def read_runs(file: Path) -> Counter[str]:
    """Return how often each line stands in a file that step bodies append to."""
    return Counter(file.read_text().splitlines()) if file.exists() else Counter()


def rows_of(task_id: UUID) -> dict[str, list[Any]]:
    """Return every row that belongs to a task, to be compared with a later look."""
    found: dict[str, list[Any]] = {}
    for model in (Step, StepRange, Attempt, Slice, Checkpoint, Event, Artifact):
        rows = model.objects.all_tenants("a test looks").filter(task_id=task_id)
        found[model.__name__] = list(rows.order_by("pk").values())
    tasks = Task.objects.all_tenants("a test looks").filter(pk=task_id)
    found["Task"] = list(tasks.values())
    for ledger in (Effect, Receipt, Usage):
        found[ledger.__name__] = list(
            ledger.objects.filter(task_id=task_id).order_by("pk").values()
        )
    entries = AuditEntry.objects.filter(stream=f"task:{task_id}").order_by("seq")
    found["AuditEntry"] = list(entries.values_list("seq", "envelope", "details"))
    return found


def written(evidence: Evidence) -> Iterator[tuple[str, int, datetime | None]]:
    """Yield every row of a task that carries a fence, with the time of its last write."""
    for step in evidence.steps:
        if step.fence:
            # A person's answer ends a question, whoever asked it.
            at = None if step.kind == "question" else step.finished_at
            yield f"step {step.key}", step.fence, at
    for effect in evidence.effects:
        yield f"effect {effect.key}", effect.fence, effect.settled_at or effect.begun_at
    # A person who rewinds a held task writes without a slice, under the row's lock.
    checkpoints = [row for row in evidence.checkpoints if row.reason != "rewind"]
    rows: Sequence[tuple[str, Sequence[Any], str]] = (
        ("range", evidence.ranges, "created_at"),
        ("checkpoint", checkpoints, "created_at"),
        ("artifact", evidence.artifacts, "created_at"),
        ("attempt", evidence.attempts, "ended_at"),
    )
    for name, listed, column in rows:
        for row in listed:
            yield name, row.fence, getattr(row, column)
