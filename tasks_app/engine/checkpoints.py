"""Write a checkpoint's document, read the newest one back and trust it only after checking."""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from ledger_app.queries import list_newest_effect_summaries
from tasks_app.domain.checkpoint import CheckpointDocument, digest
from tasks_app.domain.errors import CorruptCheckpointError
from tasks_app.engine.lease import ClaimedTask
from tasks_app.models import Artifact, Checkpoint
from tasks_app.queries.checkpoints import verified

# References kept in the document; the rows hold all of them.
_NEWEST = 50


@dataclass(slots=True)
class References:
    """The newest artifacts and effects of a task, kept in memory so that a checkpoint reads nothing.

    Loaded once by the slice that needs them; the slice then notes what it adds itself. Both are in
    the order of their making.
    """

    artifacts: dict[UUID, dict[str, str]] = field(default_factory=dict)
    effects: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, tenant_id: UUID, task_id: UUID) -> "References":
        """Read the newest references of a task."""
        rows = Artifact.objects.for_tenant(tenant_id).filter(task_id=task_id)
        found = rows.order_by("-created_at").values_list("id", "name", "sha256")[:_NEWEST]
        references = cls()
        for artifact_id, name, sha256 in reversed(found):
            references.note_artifact(artifact_id, name, sha256)
        for row in list_newest_effect_summaries(
            tenant_id=tenant_id, task_id=task_id, limit=_NEWEST
        ):
            references.note_effect(row.key, row.state.value)
        return references

    def note_artifact(self, artifact_id: UUID, name: str, sha256: str) -> None:
        """Remember an output."""
        self.artifacts[artifact_id] = {"id": str(artifact_id), "name": name, "sha256": sha256}
        _keep_newest(self.artifacts)

    def note_effect(self, key: str, state: str) -> None:
        """Remember where an act stands now."""
        self.effects[key] = state
        _keep_newest(self.effects)

    def artifact_list(self) -> list[dict[str, str]]:
        """Return the outputs as a document holds them, newest first."""
        return [*reversed(self.artifacts.values())]

    def effect_list(self) -> list[dict[str, str]]:
        """Return the acts as a document holds them, newest last."""
        return [{"key": key, "state": state} for key, state in self.effects.items()]


def _keep_newest(known: dict[Any, Any]) -> None:
    while len(known) > _NEWEST:
        del known[next(iter(known))]


def build(
    task: ClaimedTask,
    references: References,
    *,
    next_step: str,
    next_position: int,
    completed: list[str],
    variables: dict[str, Any],
    now: str,
) -> CheckpointDocument:
    """Return the document of the task's next checkpoint, from what the session knows."""
    return CheckpointDocument(
        task_id=str(task.id),
        checkpoint_seq=task.checkpoint_seq + 1,
        plan_version=task.plan_version,
        next_step=next_step,
        next_position=next_position,
        completed_steps=completed,
        variables=variables,
        artifacts=references.artifact_list(),
        side_effects=references.effect_list(),
        steering_cursor=task.steering_cursor,
        fence=task.fence,
        created_at=now,
        workflow=f"{task.workflow}@{task.workflow_version}",
    )


def row_of(document: CheckpointDocument, reason: str) -> dict[str, Any]:
    """Return the columns of a checkpoint as the commit statement takes them.

    Raises:
        CorruptCheckpointError: it would pass 64 KiB, which would mean data in the wrong place.
    """
    text = document.fitted_text()
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
    if expected_seq == 0:
        return None
    row = Checkpoint.objects.for_tenant(tenant_id).filter(task_id=task_id).order_by("-seq").first()
    if (0 if row is None else row.seq) != expected_seq:
        raise CorruptCheckpointError("The newest checkpoint is missing.", expected_seq=expected_seq)
    return None if row is None else verified(row)
