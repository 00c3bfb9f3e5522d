"""What answers look like. Built from the dataclasses of `queries`; JSON of users stays as it is.

What a task leaves behind is in `records`.
"""

from datetime import datetime
from typing import Annotated, Any, Generic, Self, TypeVar
from uuid import UUID

from django.urls import reverse
from pydantic import BeforeValidator, Field, computed_field
from typing_extensions import override

from ledger_app.domain.redaction import redact
from tasks_app.api.base import Output

ItemT = TypeVar("ItemT", bound=Output)
Redacted = Annotated[Any, BeforeValidator(redact)]


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


class ListPage(Output, Generic[ItemT]):
    """One page of a list."""

    next_cursor: str | None
    items: list[ItemT]


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


class HoldOut(Output):
    """Why the task is held for a person, and which repairs the caller may make now."""

    code: str
    message: str
    since: datetime | None
    verbs: list[str]


class BudgetLineOut(Output):
    """One limit of the task and what is used of it."""

    kind: str
    limit: int
    spent: int
    reserved: int = Field(description="Taken by calls whose use is not known yet.")


class Addressed(Output):
    """An answer that names the addresses of a task."""

    @classmethod
    @override
    def of(cls, row: Any, **more: object) -> Self:
        address = [row.task_id]
        return super().of(
            row,
            status_url=reverse("runtime:task", args=address),
            stream_url=reverse("runtime:events", args=address),
            **more,
        )


class TaskCreated(Addressed):
    """A task that was taken."""

    task_id: UUID
    status: str
    state_version: int
    title: str
    status_url: str
    stream_url: str


class RelativeOut(Output):
    """A task that started this one or was started by it; `step_key` is the starting step's."""

    task_id: UUID
    title: str
    workflow: str
    status: str
    step_key: str

    @computed_field  # type: ignore[prop-decorator]
    @property
    def status_url(self) -> str:
        """Return the address of its own state."""
        return reverse("runtime:task", args=[self.task_id])


class TaskOut(Addressed):
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
    closing_as: str
    open_approval: OpenApprovalOut | None
    open_question: OpenQuestionOut | None
    pending_commands: int
    hold: HoldOut | None
    forked_from: UUID | None
    trace_id: str
    parent: RelativeOut | None
    children: list[RelativeOut]
    error: Any
    result: Any
    stop_reason: str
    steps_done: int
    budget: list[BudgetLineOut]
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
    source: str
    thread_id: UUID | None
    parent_id: UUID | None
    created_at: datetime
    updated_at: datetime


class TaskPage(ListPage[TaskItem]):
    """Tasks, newest first."""

    estimate: int | None = Field(None, description="About how many; only with `count=estimate`.")


class CommandAccepted(Output):
    """A command that was stored; `status` tells whether it is applied already."""

    command_id: UUID
    task_id: UUID
    status: str
    state_version: int


class StepNames(Output):
    """Steps of one kind of a difference: how many, and the first of them."""

    count: int
    keys: list[str]


class PlanDifference(Output):
    """What a plan keeps, adds and retires of the one before."""

    kept: StepNames
    added: StepNames
    retired: StepNames


class MapForecast(Output):
    """Items of a map that would not be run again; null: only running it can tell."""

    step: str
    items: int | None
    kept: int | None


class PlanPreviewOut(Output):
    """What a changed goal would do to the plan; nothing was changed."""

    task_id: UUID
    state_version: int
    plan_version: int
    workflow_version: int
    goal: Any
    difference: PlanDifference
    maps: list[MapForecast]


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


class CommandPage(ListPage[CommandOut]):
    """Commands, newest first."""


class ScheduleOut(Output):
    """A schedule; `firesAt` is null while it is paused."""

    id: UUID
    name: str
    workflow: str
    goal: dict[str, Any]
    title: str
    priority: int
    budget: dict[str, Any]
    cron: str
    interval_seconds: int | None
    time_zone: str
    overlap: str
    catch_up_limit: int
    jitter_seconds: int
    due_at: datetime | None
    fires_at: datetime | None
    paused_at: datetime | None
    pause_reason: str
    fired: int
    skipped: int
    last_fired_at: datetime | None
    last_task_id: UUID | None
    last_error: dict[str, Any] | None
    version: int
    created_at: datetime


class SchedulePage(ListPage[ScheduleOut]):
    """Schedules, newest first."""


class FiredOut(Output):
    """The task that a schedule started, or null."""

    task_id: UUID | None


class LimitOut(Output):
    """A limit above tasks; `reserved` is what live tasks were granted of it."""

    kind: str
    period: str
    agent_id: UUID | None
    limit: int | None
    spent: int
    reserved: int
    updated_at: datetime


class LimitPage(ListPage[LimitOut]):
    """Limits, oldest first."""


class PriceOut(Output):
    """A price; the highest version counts."""

    subject: str
    unit: str
    version: int
    micros_per_million: int
    created_at: datetime


class PricePage(ListPage[PriceOut]):
    """Prices, newest first."""


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
    arguments: Redacted
    display: Redacted
    plan_version: int
    policy_version: int
    required: int
    on_timeout: str
    requested_by: PersonOut
    created_at: datetime
    expires_at: datetime
    decided_at: datetime | None
    decisions: list[DecisionOut]


class ApprovalPage(ListPage[ApprovalOut]):
    """Approvals, nearest deadline first."""


class WorkflowOut(Output):
    """A workflow that can be started, with the JSON schema of its goal."""

    name: str
    version: int
    title: str
    description: str
    acts: list[str] = Field(description="What it does outside, in its author's words.")
    effects: list[str] = Field(description="Its declared acts on the outside world.")
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


class KeyPage(ListPage[KeyOut]):
    """Keys, newest first."""


class KeyCreated(Output):
    """A new key; `key` is shown this once, and null where the answer is repeated."""

    id: UUID
    key_id: str
    key: str | None
    expires_at: datetime
