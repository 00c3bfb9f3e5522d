"""What must be true of a task whatever was killed on the way (engine contract, section 10).

Each oracle asserts; none of them knows how the fault was made.
"""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from ledger_app.models import AuditEntry, Effect, Receipt, Usage
from ledger_app.queries import EffectRow, list_audit_entries, list_effects
from ledger_app.services import audit
from tasks_app.domain import checkpoint
from tasks_app.domain.states import TERMINAL, TaskStatus, bumps_version
from tasks_app.models import Artifact, Attempt, Checkpoint, Event, Outbox, Slice, Step, StepRange
from tasks_app.models import Task as TaskRow
from tests.support.outside import Count

_DONE = {"succeeded", "skipped"}


def check_task(task: TaskRow) -> None:
    """Check everything that a task's own rows can show."""
    check_audit(task)
    check_versions(task)
    check_events(task)
    check_checkpoints(task)
    check_fences(task)
    check_receipt(task)
    if task.status in TERMINAL:
        assert not Outbox.objects.for_tenant(task.tenant_id).filter(task_id=task.id).exists()


def check_audit(task: TaskRow) -> None:
    """The task's audit chain verifies."""
    verdict = audit.verify(f"task:{task.id}")
    assert verdict.fault is None, verdict


def check_versions(task: TaskRow) -> None:
    """`state_version` has no gap and no repeat over what was audited."""
    known = 0
    for envelope in _envelopes(task):
        old, new = envelope.get("old_version"), envelope.get("new_version")
        if new is None:
            continue
        assert new - known in {0, 1}, f"version {known} was followed by {new}: {envelope}"
        assert old is None or old <= new, f"{old} became {new}"
        known = new
    assert known == task.state_version, (known, task.state_version)


def check_events(task: TaskRow) -> None:
    """The journal is dense, and its status changes form one path that explains the version."""
    events = list(Event.objects.for_tenant(task.tenant_id).filter(task_id=task.id).order_by("seq"))
    assert [event.seq for event in events] == list(range(1, task.event_seq + 1))
    edges = [
        (TaskStatus(event.data["source"]), TaskStatus(event.data["target"]))
        for event in events
        if event.type == "status"
    ]
    at = TaskStatus.QUEUED
    for source, target in edges:
        assert source == at, f"{source} -> {target} came while the task was {at}"
        at = target
    assert at == task.status
    told = sum(event.type == "steering.applied" for event in events)
    bumps = sum(bumps_version(*edge) for edge in edges)
    assert task.state_version >= 1 + bumps + told, (task.state_version, bumps, told)


def check_checkpoints(task: TaskRow) -> None:
    """Checkpoints are dense and unharmed; the newest agrees with steps and ledger."""
    rows = Checkpoint.objects.for_tenant(task.tenant_id).filter(task_id=task.id).order_by("seq")
    documents = [checkpoint.parse(row.document, row.sha256) for row in rows]
    seqs = [document.checkpoint_seq for document in documents]
    assert seqs == list(range(1, task.checkpoint_seq + 1))
    fences = [document.fence for document in documents]
    assert fences == sorted(fences)
    if not documents:
        return
    newest = documents[-1]
    assert newest.task_id == str(task.id)
    assert newest.fence <= task.fence
    assert newest.plan_version == task.plan_version
    assert newest.next_position <= task.next_position
    done = {step.position for step in _steps(task) if step.status in _DONE}
    assert set(range(newest.next_position)) <= done
    states = {effect.key: effect.state.value for effect in _effects(task)}
    steps = {step.position: step for step in _steps(task)}
    for act in newest.side_effects:
        step = next(s for s in steps.values() if act["key"].endswith(f":{s.key}"))
        if step.position < newest.next_position:
            assert act["state"] == states[act["key"]], f"the checkpoint says {act}"


def check_fences(task: TaskRow) -> None:
    """No row was written under a fence after a newer one had taken the task over."""
    slices = list(Slice.objects.for_tenant(task.tenant_id).filter(task_id=task.id))
    started = {row.fence: row.started_at for row in slices}
    fences = sorted(started)
    assert len(fences) == len(slices)
    for name, fence, at in _written(task):
        assert fence in started, f"{name} carries fence {fence}, which nobody was given"
        newer = [started[other] for other in fences if other > fence]
        if newer and at is not None:
            assert at < min(newer), f"{name} was written under fence {fence} after its end"


def check_receipt(task: TaskRow) -> None:
    """A task that has ended owns exactly one receipt, an open one none."""
    rows = list(Receipt.objects.filter(task_id=task.id))
    if task.status not in TERMINAL:
        assert rows == []
        return
    assert [row.id for row in rows] == [task.receipt_id]
    assert rows[0].outcome == task.status


def check_outside(
    task: TaskRow, counts: dict[str, Count], *, expected: int, faults: int = 1
) -> None:
    """Each key was acted on once, asked for once more a fault at most, and is settled."""
    effects = {effect.key: effect for effect in _effects(task)}
    assert len(effects) == expected
    assert set(counts) == set(effects)
    for key, count in counts.items():
        assert count.acts == 1, f"{key} was acted on {count.acts} times"
        assert count.requests <= 1 + faults, f"{key} was asked for {count.requests} times"
        assert effects[key].state == "succeeded"
        assert effects[key].attempts <= 1 + faults


def check_runs(before: "Progress", after: "Progress") -> None:
    """What was committed before a fault never runs again; what was not, at most once more."""
    for line, runs in after.runs.items():
        known = before.runs.get(line, 0)
        if line in before.committed:
            assert runs == known, f"{line} was committed and ran again"
        else:
            assert runs <= known + 1, f"{line} ran {runs} times, {known} before the fault"


class Progress:
    """How often each step body or item ran, and which results were committed, at one moment."""

    def __init__(self, task: TaskRow, file: Path) -> None:
        self.runs = read_runs(file)
        self.committed = {step.key for step in _steps(task) if step.status in _DONE}
        for row in StepRange.objects.for_tenant(task.tenant_id).filter(task_id=task.id):
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
    tasks = TaskRow.objects.all_tenants("a test looks").filter(pk=task_id)
    found["Task"] = list(tasks.values())
    for ledger in (Effect, Receipt, Usage):
        found[ledger.__name__] = list(ledger.objects.filter(task_id=task_id).values())
    entries = AuditEntry.objects.filter(stream=f"task:{task_id}").order_by("seq")
    found["AuditEntry"] = list(entries.values_list("seq", "envelope", "details"))
    return found


def _envelopes(task: TaskRow) -> Iterator[dict[str, Any]]:
    stream, after = f"task:{task.id}", 0
    while page := list_audit_entries(tenant_id=task.tenant_id, stream=stream, after_seq=after):
        after = page[-1].seq
        for entry in page:
            yield json.loads(entry.envelope)


def _effects(task: TaskRow) -> list[EffectRow]:
    return list_effects(tenant_id=task.tenant_id, task_id=task.id)


def _steps(task: TaskRow) -> list[Step]:
    rows = Step.objects.for_tenant(task.tenant_id).filter(task_id=task.id, retired_in=None)
    return list(rows.order_by("position"))


def _written(task: TaskRow) -> Iterator[tuple[str, int, datetime | None]]:
    """Yield every row of a task that carries a fence, with the time of its last write."""
    for step in _steps(task):
        if step.fence:
            yield f"step {step.key}", step.fence, step.finished_at
    for effect in _effects(task):
        yield f"effect {effect.key}", effect.fence, effect.settled_at or effect.begun_at
    for name, model, column in (
        ("range", StepRange, "created_at"),
        ("checkpoint", Checkpoint, "created_at"),
        ("artifact", Artifact, "created_at"),
        ("attempt", Attempt, "ended_at"),
    ):
        rows = model.objects.for_tenant(task.tenant_id).filter(task_id=task.id)
        for fence, at in rows.values_list("fence", column):
            yield name, fence, at
