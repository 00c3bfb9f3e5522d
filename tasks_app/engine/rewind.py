"""Going on from an older checkpoint: what a person may choose when the newest cannot be trusted.

A checkpoint never decides alone. Finished steps keep their results and the ledger knows what was
done outside, so going back repeats nothing; it only replaces the document that was not sound (E60).
"""

from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from ledger_app.queries import list_newest_effect_summaries
from tasks_app.domain.checkpoint import KEEP_NEWEST, NAMED_REASONS, CheckpointDocument, compress
from tasks_app.domain.errors import CorruptCheckpointError
from tasks_app.engine import checkpoints, transitions
from tasks_app.engine.lease import database_now
from tasks_app.events.catalogue import EventType
from tasks_app.models import Checkpoint, Step, Task
from tasks_app.queries.checkpoints import verified

# Names shown to a person; the counts beside them are exact.
_SHOWN = 50
_DONE = ("succeeded", "skipped")


@dataclass(frozen=True, slots=True)
class VerifiedCheckpoint:
    """One stored checkpoint and whether it can be continued from.

    Attributes:
        fault: empty when it is sound, else one sentence about what is wrong.
        same_plan: False when the goal was changed since; then the newer plan goes on.
    """

    seq: int
    plan_version: int
    next_step: str
    reason: str
    created_at: datetime
    fault: str
    same_plan: bool


@dataclass(frozen=True, slots=True)
class Rewind:
    """How a task goes on from a checkpoint.

    Attributes:
        next_step: the step that runs first; empty when only the end is left.
        kept: steps finished after that checkpoint, which are not run again; `kept_count` is exact.
        effects: what the ledger says of the task's newest acts, by key; it decides, not the cursor.
    """

    seq: int
    next_step: str
    next_position: int
    kept: tuple[str, ...]
    kept_count: int
    effects: dict[str, str]


def list_verified(tenant_id: UUID, task_id: UUID, *, limit: int = 50) -> list[VerifiedCheckpoint]:
    """Return a task's newest checkpoints, newest first, each checked as a slice would check it."""
    rows = Checkpoint.objects.for_tenant(tenant_id).filter(task_id=task_id)
    current = Task.objects.for_tenant(tenant_id).values_list("plan_version", flat=True)
    plan_version = current.get(pk=task_id)
    return [
        VerifiedCheckpoint(
            seq=row.seq,
            plan_version=row.plan_version,
            next_step=row.next_step,
            reason=row.reason,
            created_at=row.created_at,
            fault=_fault(row),
            same_plan=row.plan_version == plan_version,
        )
        for row in rows.order_by("-seq")[:limit]
    ]


def preview(task: Task, seq: int) -> Rewind:
    """Return how the task would go on from its checkpoint #seq; changes nothing.

    Raises:
        CorruptCheckpointError: that one is missing or not sound either.
    """
    return _rewind(task, _load(task, seq))


def rewind(task: Task, seq: int) -> Rewind:
    """Make a held task continue from its checkpoint #seq, and return how it goes on.

    A new checkpoint, which says from which it continues, becomes the newest; it
    pushes an old one out as every checkpoint does.
    The caller moves the task and audits the decision.

    Transaction: the caller's, which holds the task row.

    Raises:
        CorruptCheckpointError: that one is missing or not sound either.
    """
    document = _load(task, seq)
    found = _rewind(task, document)
    newest = _continued(task, document, found)
    Checkpoint.objects.create(
        tenant_id=task.tenant_id,
        task_id=task.id,
        seq=newest.checkpoint_seq,
        fence=task.fence,
        **checkpoints.row_of(newest, "rewind"),
    )
    task.checkpoint_seq, task.next_position = newest.checkpoint_seq, newest.next_position
    task.last_checkpoint_at = database_now()
    task.save(update_fields=["checkpoint_seq", "next_position", "last_checkpoint_at"])
    outdated = Checkpoint.objects.for_tenant(task.tenant_id).filter(
        task_id=task.id, seq=newest.checkpoint_seq - KEEP_NEWEST
    )
    outdated.exclude(reason__in=NAMED_REASONS).delete()
    transitions.append_event(
        task.id, task.tenant_id, EventType.CHECKPOINT, {"checkpoint": newest.checkpoint_seq}
    )
    return found


def _load(task: Task, seq: int) -> CheckpointDocument:
    rows = Checkpoint.objects.for_tenant(task.tenant_id)
    row = rows.filter(task_id=task.id, seq=seq).first()
    if row is None:
        raise CorruptCheckpointError(f"There is no checkpoint {seq}.", seq=seq)
    return verified(row)


def _fault(row: Checkpoint) -> str:
    try:
        verified(row)
    except CorruptCheckpointError as error:
        return error.message
    return ""


def _rewind(task: Task, document: CheckpointDocument) -> Rewind:
    """Find where the rows go on: the first step that has no result, wherever the cursor stood."""
    current = Step.objects.for_tenant(task.tenant_id).filter(task_id=task.id, retired_in=None)
    first_open = current.exclude(status__in=_DONE).order_by("position").first()
    position = current.count() if first_open is None else first_open.position
    # In a newer plan the old position means nothing.
    since = document.next_position if document.plan_version == task.plan_version else 0
    kept = current.filter(position__gte=since, position__lt=position, status__in=_DONE)
    effects = list_newest_effect_summaries(tenant_id=task.tenant_id, task_id=task.id, limit=_SHOWN)
    return Rewind(
        seq=document.checkpoint_seq,
        next_step="" if first_open is None else first_open.key,
        next_position=position,
        kept=tuple(kept.order_by("position").values_list("key", flat=True)[:_SHOWN]),
        kept_count=kept.count(),
        effects={row.key: row.state.value for row in effects},
    )


def _continued(task: Task, document: CheckpointDocument, found: Rewind) -> CheckpointDocument:
    references = checkpoints.References.load(task.tenant_id, task.id)
    return replace(
        document,
        checkpoint_seq=task.checkpoint_seq + 1,
        plan_version=task.plan_version,
        next_step=found.next_step,
        next_position=found.next_position,
        completed_steps=compress(range(found.next_position)),
        variables={},
        artifacts=references.artifact_list(),
        side_effects=references.effect_list(),
        steering_cursor=task.steering_cursor,
        fence=task.fence,
        created_at=database_now().isoformat(),
        workflow=f"{task.workflow}@{task.workflow_version}",
        continued_from=document.checkpoint_seq,
    )
