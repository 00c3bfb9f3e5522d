"""What answers look like. Built from the dataclasses of `queries`; JSON of users stays as it is."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.urls import reverse
from pydantic import Field

from tasks_app.api.base import Output
from tasks_app.queries.snapshot import TaskSnapshot


class ProblemItem(Output):
    """One problem of one field."""

    pointer: str = Field(description="JSON pointer into the body; `?name` for a query key.")
    code: str
    detail: str


class Problem(Output):
    """RFC 9457, with `code` and one-string `detail`; more fields depend on the code."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    errors: list[ProblemItem] | None = None


class PersonOut(Output):
    """A user as others see one."""

    id: int
    name: str


class CheckpointMark(Output):
    """The newest checkpoint."""

    seq: int
    at: datetime | None


class LeaseOut(Output):
    """Who executes the task, and for how long without a sign of life."""

    owner: str
    pid: int | None
    fence: int
    seconds_left: float


class OpenApprovalOut(Output):
    """What a decision must repeat: `version` as `expectedVersion`, and the digest."""

    id: UUID
    tool: str
    version: int
    args_sha256: str
    expires_at: datetime


class OpenQuestionOut(Output):
    """What the task asks; the answer goes into a `provide_input` command."""

    step_key: str
    prompt: str
    schema_: Any = Field(alias="schema")


class TaskCreated(Output):
    """A task that was taken."""

    task_id: UUID
    status: str
    state_version: int
    title: str
    status_url: str
    stream_url: str


class TaskOut(Output):
    """The authoritative state of a task. `progress` is 0 to 1, null while the total is unknown."""

    task_id: UUID
    workflow: str
    workflow_version: int
    title: str
    status: str
    outside_status: str
    status_message: str
    state_version: int
    seq: int
    plan_version: int
    goal: Any
    priority: int
    progress: float | None
    progress_done: int
    progress_total: int | None
    phase: str
    last_checkpoint: CheckpointMark | None
    lease: LeaseOut | None
    recoveries: int
    cancel_requested: bool
    open_approval: OpenApprovalOut | None
    open_question: OpenQuestionOut | None
    pending_commands: int
    error: Any
    result: Any
    stop_reason: str
    steps_done: int
    initiator: PersonOut
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    deadline_at: datetime | None
    status_url: str
    stream_url: str


class TaskItem(Output):
    """A task in a list."""

    id: UUID = Field(serialization_alias="taskId")
    title: str
    workflow: str
    status: str
    cancelling: bool = Field(serialization_alias="cancelRequested")
    state_version: int
    priority: int
    phase: str
    progress: float | None
    progress_done: int
    progress_total: int | None
    initiator: str
    created_at: datetime
    updated_at: datetime


class CommandAccepted(Output):
    """A command that was stored; `status` tells whether it is applied already."""

    command_id: UUID
    task_id: UUID
    status: str
    state_version: int


class CommandOut(Output):
    """A command and what became of it."""

    command_id: UUID
    task_id: UUID
    seq: int
    type: str
    payload: Any
    reason: str
    requested_by: PersonOut
    source: str
    status: str
    rejection: str
    expected_version: int
    old_version: int
    new_version: int | None
    created_at: datetime
    applied_at: datetime | None


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


class CheckpointOut(Output):
    """One checkpoint without its document."""

    seq: int
    schema_version: int
    plan_version: int
    next_step: str
    reason: str
    fence: int
    sha256: str
    size_bytes: int
    created_at: datetime


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


class EventOut(Output):
    """One event of the journal."""

    seq: int
    type: str
    data: Any
    at: datetime


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


class DecisionOut(Output):
    """What one person said."""

    decision: str
    by: PersonOut
    reason: str
    via: str
    at: datetime


class ApprovalOut(Output):
    """An approval; secrets in `arguments` are hidden, the digest covers the real ones."""

    id: UUID
    task_id: UUID
    task_title: str
    tool: str
    status: str
    version: int
    args_sha256: str
    arguments: Any
    display: Any
    plan_version: int
    policy_version: int
    required: int
    on_timeout: str
    requested_by: PersonOut
    created_at: datetime
    expires_at: datetime
    decided_at: datetime | None
    decisions: list[DecisionOut]


class WorkflowOut(Output):
    """A workflow that can be started, with the JSON schema of its goal."""

    name: str
    version: int
    title: str
    description: str
    acts: list[str]
    approve_before: list[str]
    goal_schema: Any


class WorkflowList(Output):
    """All enabled workflows."""

    items: list[WorkflowOut]


class CapabilityOut(Output):
    """One thing the caller may do; `reach` is `all` or `own`."""

    name: str
    reach: str
    description: str


class WhoAmI(Output):
    """Who the credential stands for, and what it may do now."""

    kind: str
    name: str
    via: str
    tenant_id: UUID
    user_id: int | None
    agent_id: UUID | None
    api_key_id: UUID | None
    suspended: bool
    capabilities: list[CapabilityOut]


class KeyOut(Output):
    """An API key without its secret."""

    id: UUID
    key_id: str
    name: str
    owner: str
    scopes: list[str]
    allowed_cidrs: list[str]
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None
    replaces: UUID | None


class KeyCreated(Output):
    """A new key; `key` is shown this once."""

    id: UUID
    key_id: str
    key: str
    expires_at: datetime


class ListPage(Output):
    """One page of a list."""

    next_cursor: str | None


class TaskPage(ListPage):
    """Tasks, newest first."""

    items: list[TaskItem]


class CommandPage(ListPage):
    """Commands, newest first."""

    items: list[CommandOut]


class StepPage(ListPage):
    """Steps in their order."""

    items: list[StepOut]


class CheckpointPage(ListPage):
    """Checkpoints, newest first."""

    items: list[CheckpointOut]


class EffectPage(ListPage):
    """Effects, oldest first."""

    items: list[EffectOut]


class ArtifactPage(ListPage):
    """Artifacts, oldest first."""

    items: list[ArtifactOut]


class EventPage(ListPage):
    """Events in order."""

    items: list[EventOut]


class AuditPage(ListPage):
    """Audit entries in order."""

    items: list[AuditOut]


class ApprovalPage(ListPage):
    """Approvals, nearest deadline first."""

    items: list[ApprovalOut]


class KeyPage(ListPage):
    """Keys, newest first."""

    items: list[KeyOut]


def task_urls(task_id: UUID) -> dict[str, str]:
    """Return the addresses of a task that answers name."""
    return {
        "status_url": reverse("runtime:task", args=[task_id]),
        "stream_url": reverse("runtime:events", args=[task_id]),
    }


def task_out(snapshot: TaskSnapshot) -> TaskOut:
    """Return a snapshot as REST shows it."""
    names = TaskOut.model_fields.keys() - {"status_url", "stream_url"}
    values = {name: getattr(snapshot, name) for name in names}
    return TaskOut.model_validate({**values, **task_urls(snapshot.task_id)}, from_attributes=True)
