"""What answers say of the rows that a task leaves behind: steps, checkpoints, effects and more."""

from datetime import datetime
from typing import Any, Self
from uuid import UUID

from django.urls import reverse
from pydantic import Field
from typing_extensions import override

from tasks_app.api.base import Output
from tasks_app.api.outputs import ListPage, PlanDifference


class StepOut(Output):
    """One step of the plan; `retiredIn` names the plan version that replaced it."""

    key: str
    position: int
    kind: str
    method: str
    status: str
    attempts: int
    items_done: int
    items_failed: int
    plan_version: int
    retired_in: int | None
    error: Any
    started_at: datetime | None
    finished_at: datetime | None


class StepPage(ListPage[StepOut]):
    """Steps in their order."""


class PlanOut(Output):
    """One plan: why it was made and what it changed of the one before."""

    version: int
    cause: str
    workflow_version: int
    command_id: UUID | None
    difference: PlanDifference
    actor: str
    created_at: datetime


class PlanPage(ListPage[PlanOut]):
    """Plans, newest first."""


class SliceOut(Output):
    """What one delivery executed under one fence; `endedAt` is null while it runs."""

    fence: int
    worker: str
    recovered: bool
    outcome: str
    steps: int
    started_at: datetime
    ended_at: datetime | None


class SlicePage(ListPage[SliceOut]):
    """Slices, newest first."""


class AttemptOut(Output):
    """One try of a step that failed; `retryAt` is null after the last."""

    step: str
    number: int
    fence: int
    error: Any
    ended_at: datetime
    retry_at: datetime | None


class AttemptPage(ListPage[AttemptOut]):
    """Failed tries, newest first."""


class ThreadOut(Output):
    """A thread; its values are read under `/api`."""

    id: UUID
    key: str
    status: str
    metadata: dict[str, Any]
    run_id: UUID | None = Field(description="The task that tells the status.")
    created_at: datetime
    updated_at: datetime


class ThreadPage(ListPage[ThreadOut]):
    """Threads, newest first."""


class CheckpointOut(Output):
    """One checkpoint without its document."""

    seq: int
    schema_version: int
    plan_version: int
    next_step: str
    reason: str
    fence: int
    sha256: str
    verified: bool
    size_bytes: int
    created_at: datetime


class CheckpointPage(ListPage[CheckpointOut]):
    """Checkpoints, newest first."""


class EffectOut(Output):
    """One act on the outside world and where it stands."""

    step_key: str
    key: str
    kind: str
    tool: str
    target: str
    args_sha256: str
    state: str
    attempts: int
    approval_id: UUID | None
    request: Any
    response: Any
    error: Any
    begun_at: datetime | None
    settled_at: datetime | None
    created_at: datetime


class EffectPage(ListPage[EffectOut]):
    """Effects, oldest first."""


class ArtifactOut(Output):
    """One stored output; `contentUrl` gives the bytes."""

    id: UUID
    task_id: UUID
    name: str
    step_key: str
    media_type: str
    size_bytes: int
    sha256: str
    presented: bool
    created_at: datetime
    content_url: str

    @classmethod
    @override
    def of(cls, row: Any, **more: object) -> Self:
        url = reverse("runtime:artifact-content", args=[row.id])
        return super().of(row, content_url=url, **more)


class ArtifactPage(ListPage[ArtifactOut]):
    """Artifacts, oldest first."""


class EventOut(Output):
    """One event of the journal."""

    seq: int
    type: str
    data: Any
    at: datetime


class EventPage(ListPage[EventOut]):
    """Events in order."""


class AuditOut(Output):
    """One entry of the task's own audit stream."""

    seq: int
    at: datetime
    actor: str
    via: str
    action: str
    target: str
    outcome: str
    old_version: int | None
    new_version: int | None
    details: Any
    hash: str


class AuditPage(ListPage[AuditOut]):
    """Audit entries in order."""
