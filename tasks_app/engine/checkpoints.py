"""Write a checkpoint's document, read the newest one back and trust it only after checking."""

from typing import Any
from uuid import UUID

from ledger_app.queries import list_newest_effect_summaries
from tasks_app.domain.checkpoint import MAX_BYTES, CheckpointDocument, digest, parse
from tasks_app.domain.errors import CorruptCheckpointError
from tasks_app.engine.lease import ClaimedTask
from tasks_app.models import Artifact, Checkpoint

# References kept in the document; the rows hold all of them.
_NEWEST = 50


def build(
    task: ClaimedTask,
    *,
    next_step: str,
    next_position: int,
    completed: list[str],
    variables: dict[str, Any],
    now: str,
) -> CheckpointDocument:
    """Return the document of the task's next checkpoint.

    Raises:
        CorruptCheckpointError: it would pass 64 KiB, which would mean data in the wrong place.
    """
    artifacts = (
        Artifact.objects.for_tenant(task.tenant_id)
        .filter(task_id=task.id)
        .order_by("-created_at")
        .values("id", "name", "sha256")[:_NEWEST]
    )
    effects = list_newest_effect_summaries(tenant_id=task.tenant_id, task_id=task.id, limit=_NEWEST)
    document = CheckpointDocument(
        task_id=str(task.id),
        checkpoint_seq=task.checkpoint_seq + 1,
        plan_version=task.plan_version,
        next_step=next_step,
        next_position=next_position,
        completed_steps=completed,
        variables=variables,
        artifacts=[{**row, "id": str(row["id"])} for row in artifacts],
        side_effects=[{"key": row.key, "state": row.state.value} for row in effects],
        steering_cursor=task.steering_cursor,
        fence=task.fence,
        created_at=now,
    )
    if len(document.text()) > MAX_BYTES:
        raise CorruptCheckpointError("The checkpoint would be larger than 64 KiB.")
    return document


def row_of(document: CheckpointDocument, reason: str) -> dict[str, Any]:
    """Return the columns of a checkpoint as the commit statement takes them."""
    text = document.text()
    return {
        "schema_version": document.schema_version,
        "plan_version": document.plan_version,
        "next_step": document.next_step,
        "document": text,
        "sha256": digest(text),
        "reason": reason,
    }


def load_newest(tenant_id: UUID, task_id: UUID, expected_seq: int) -> CheckpointDocument | None:
    """Return the newest checkpoint after verifying it; None when none was written yet.

    `expected_seq` is the number of the newest one by the task's row: a removed one is noticed.

    Raises:
        CorruptCheckpointError: checksum, schema or owner do not fit; nothing may be executed.
    """
    row = Checkpoint.objects.for_tenant(tenant_id).filter(task_id=task_id).order_by("-seq").first()
    if (0 if row is None else row.seq) != expected_seq:
        raise CorruptCheckpointError("The newest checkpoint is missing.", expected_seq=expected_seq)
    if row is None:
        return None
    document = parse(row.document, row.sha256)
    if document.task_id != str(task_id) or document.checkpoint_seq != row.seq:
        raise CorruptCheckpointError("The checkpoint belongs elsewhere.", seq=row.seq)
    return document
