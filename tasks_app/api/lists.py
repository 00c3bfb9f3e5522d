"""What queries of lists may hold: filters, orders, how many rows, where to go on.

Several values of one filter are separated by commas; `sort` names a column, with "-" for descending.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from ledger_app.domain.effects import EffectState
from tasks_app.api.base import PageQuery
from tasks_app.api.inputs import Moment
from tasks_app.domain.budgets import BudgetKind
from tasks_app.domain.repairs import RepairVerb
from tasks_app.domain.runs import ThreadStatus
from tasks_app.domain.states import TaskStatus
from tasks_app.domain.steering import CommandType
from tasks_app.domain.webhooks import WORDS
from tasks_app.events.catalogue import EventType
from tasks_app.models.execution import STEP_KINDS, STEP_STATUSES
from tasks_app.models.plan import PLAN_CAUSES
from tasks_app.models.steering import APPROVAL_STATUSES, COMMAND_STATUSES
from tasks_app.models.task import SOURCES
from tasks_app.models.webhook import STATES as DELIVERY_STATES
from tasks_app.queries.approvals import ApprovalFilters
from tasks_app.queries.artifacts import ArtifactFilters
from tasks_app.queries.audit import AuditFilters
from tasks_app.queries.budgets import LimitFilters, PriceFilters
from tasks_app.queries.checkpoints import CheckpointFilters
from tasks_app.queries.commands import CommandFilters
from tasks_app.queries.effects import EffectFilters
from tasks_app.queries.events import EventFilters
from tasks_app.queries.filters import Filters
from tasks_app.queries.holds import HeldFilters
from tasks_app.queries.keys import STATES, KeyFilters
from tasks_app.queries.plans import PlanFilters
from tasks_app.queries.repairs import RepairFilters
from tasks_app.queries.schedules import ScheduleFilters
from tasks_app.queries.slices import AttemptFilters, SliceFilters
from tasks_app.queries.steps import StepFilters
from tasks_app.queries.tasks import TaskFilters
from tasks_app.queries.threads import ThreadListFilters
from tasks_app.queries.webhooks import DeliveryFilters, EndpointFilters


@dataclass(frozen=True)
class OneOf:
    """The value is one of these."""

    values: Iterable[str]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the schema of a closed set."""
        return core_schema.literal_schema([str(value) for value in self.values])


@dataclass(frozen=True)
class Several:
    """Values between commas, each of these if any are named; kept once each, in order."""

    values: Iterable[str] = ()

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the schema of a list that is written in one text."""
        inner = handler(source)
        if self.values:
            names = core_schema.literal_schema([str(value) for value in self.values])
            inner = core_schema.tuple_variable_schema(names, min_length=1)
        split = core_schema.no_info_before_validator_function(_split, inner)
        return core_schema.no_info_after_validator_function(lambda v: tuple(sorted(set(v))), split)


def _split(value: Any) -> Any:
    return value.split(",") if isinstance(value, str) else value


Short = Annotated[str, Field(max_length=200)]
Words = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=100)], ...], Several()]
Number = Annotated[int, Field(ge=0, le=2**63 - 1)]
_BY = "Name of the person."


class ListQuery(PageQuery):
    """A query that narrows a list; its fields are those of FILTERS."""

    FILTERS: ClassVar[type[Filters]]

    @property
    def filters(self) -> Filters:
        """Return what the list is narrowed to, and its order."""
        return self.FILTERS(
            **{item.name: getattr(self, item.name) for item in fields(self.FILTERS)}
        )


class TaskListQuery(ListQuery):
    """Which tasks to list; newest first by default."""

    FILTERS = TaskFilters

    q: str = Field("", max_length=200, description="Part of the title, or the begin of an id.")
    states: Annotated[tuple[str, ...], Several(TaskStatus)] = Field((), alias="status")
    workflow: Short = ""
    initiator: Short = Field("", description=_BY)
    source: Annotated[tuple[str, ...], Several(SOURCES)] = ()
    priority: Annotated[tuple[Annotated[int, Field(ge=0, le=9)], ...], Several()] = ()
    thread_id: UUID | None = None
    parent_id: UUID | None = None
    agent_id: UUID | None = None
    created_after: Moment | None = Field(None, description="This time or later.")
    created_before: Moment | None = Field(None, description="Before this time.")
    needs_me: bool = Field(False, description="Only where the caller has something to do.")
    sort: Annotated[str, OneOf(TaskFilters.ORDERS)] = "-created"
    count: Literal["estimate"] | None = Field(
        None, description="Also answer about how many there are."
    )


class HeldQuery(ListQuery):
    """Which held tasks to list; the longest held first by default."""

    FILTERS = HeldFilters

    cause: str = Field("", max_length=64, description="A code of `/dead-letters/causes`.")
    workflow: Short = ""
    initiator: Short = Field("", description=_BY)
    sort: Annotated[str, OneOf(HeldFilters.ORDERS)] = "since"


class ApprovalListQuery(ListQuery):
    """Which approvals to list; nearest deadline first by default."""

    FILTERS = ApprovalFilters

    status: Annotated[tuple[str, ...], Several(APPROVAL_STATUSES)] = ("pending",)
    task_id: UUID | None = None
    tool: Short = ""
    workflow: Short = ""
    requested_by: Short = Field("", description=_BY)
    mine: bool = Field(False, description="Only those that wait for the caller's decision.")
    sort: Annotated[str, OneOf(ApprovalFilters.ORDERS)] = "expires"


class CommandListQuery(ListQuery):
    """Which commands of a task to list; newest first by default."""

    FILTERS = CommandFilters

    type: Annotated[tuple[str, ...], Several(CommandType)] = ()
    status: Annotated[tuple[str, ...], Several(COMMAND_STATUSES)] = ()
    requested_by: Short = Field("", description=_BY)
    sort: Annotated[str, OneOf(CommandFilters.ORDERS)] = "-seq"


class RepairListQuery(ListQuery):
    """Which repairs of a task to list; newest first by default."""

    FILTERS = RepairFilters

    verb: Annotated[tuple[str, ...], Several(RepairVerb)] = ()
    cause: Short = ""
    requested_by: Short = Field("", description=_BY)
    sort: Annotated[str, OneOf(RepairFilters.ORDERS)] = "-created"


class PlanListQuery(ListQuery):
    """Which plans of a task to list; newest first by default."""

    FILTERS = PlanFilters

    cause: Annotated[tuple[str, ...], Several(PLAN_CAUSES)] = ()
    sort: Annotated[str, OneOf(PlanFilters.ORDERS)] = "-version"


class StepListQuery(ListQuery):
    """Which steps of a task to list; in the order of the plan by default."""

    FILTERS = StepFilters

    status: Annotated[tuple[str, ...], Several(STEP_STATUSES)] = ()
    kind: Annotated[tuple[str, ...], Several(STEP_KINDS)] = ()
    method: Short = ""
    plan_version: Number | None = None
    retired: bool | None = Field(None, description="Only those that a later plan replaced, or not.")
    sort: Annotated[str, OneOf(StepFilters.ORDERS)] = "position"


class SliceListQuery(ListQuery):
    """Which slices of a task to list; newest first by default."""

    FILTERS = SliceFilters

    outcome: Words = ()
    worker: Short = ""
    recovered: bool | None = None
    sort: Annotated[str, OneOf(SliceFilters.ORDERS)] = "-fence"


class AttemptListQuery(ListQuery):
    """Which failed tries of a task to list; newest first by default."""

    FILTERS = AttemptFilters

    step: Short = Field("", description="Key of a step.")
    fence: Number | None = None
    sort: Annotated[str, OneOf(AttemptFilters.ORDERS)] = "-ended"


class CheckpointListQuery(ListQuery):
    """Which checkpoints of a task to list; newest first by default."""

    FILTERS = CheckpointFilters

    reason: Words = ()
    plan_version: Number | None = None
    sort: Annotated[str, OneOf(CheckpointFilters.ORDERS)] = "-seq"


class EffectListQuery(ListQuery):
    """Which acts of a task to list; oldest first by default."""

    FILTERS = EffectFilters

    state: Annotated[tuple[str, ...], Several(EffectState)] = ()
    tool: Short = ""
    step_key: Short = ""
    sort: Annotated[str, OneOf(EffectFilters.ORDERS)] = "created"


class ArtifactListQuery(ListQuery):
    """Which outputs of a task to list; oldest first by default."""

    FILTERS = ArtifactFilters

    q: Short = Field("", description="Part of the name.")
    step_key: Short = ""
    media_type: Short = ""
    presented: bool | None = None
    sort: Annotated[str, OneOf(ArtifactFilters.ORDERS)] = "created"


class JournalQuery(ListQuery):
    """Which events of a task to list; in order by default."""

    FILTERS = EventFilters

    type: Annotated[tuple[str, ...], Several(EventType)] = ()
    after: Number = Field(0, description="The last `seq` that the caller has.")
    before: Number | None = None
    sort: Annotated[str, OneOf(EventFilters.ORDERS)] = "seq"


class AuditListQuery(ListQuery):
    """Which audit entries of a task to list; in order by default."""

    FILTERS = AuditFilters

    action: Words = ()
    actor: Short = ""
    sort: Annotated[str, OneOf(AuditFilters.ORDERS)] = "seq"


class ThreadListQuery(ListQuery):
    """Which threads to list; newest first by default."""

    FILTERS = ThreadListFilters

    q: str = Field("", max_length=64, description="The begin of the name.")
    owner: Short = Field("", description=_BY)
    status: Annotated[str, OneOf(ThreadStatus)] = ""
    sort: Annotated[str, OneOf(ThreadListFilters.ORDERS)] = "-created"


class ScheduleListQuery(ListQuery):
    """Which schedules to list; newest first by default."""

    FILTERS = ScheduleFilters

    q: Short = Field("", description="Part of the name.")
    workflow: Short = ""
    owner: Short = Field("", description=_BY)
    paused: bool | None = None
    sort: Annotated[str, OneOf(ScheduleFilters.ORDERS)] = "-created"


class KeyListQuery(ListQuery):
    """Which API keys to list; newest first by default."""

    FILTERS = KeyFilters

    q: Short = Field("", description="Part of the name.")
    owner: Short = Field("", description=_BY)
    state: Annotated[str, OneOf(STATES)] = ""
    sort: Annotated[str, OneOf(KeyFilters.ORDERS)] = "-created"


class LimitListQuery(ListQuery):
    """Which limits to list; oldest first by default."""

    FILTERS = LimitFilters

    kind: Annotated[tuple[str, ...], Several(BudgetKind)] = ()
    period: Annotated[tuple[str, ...], Several(("day", "month"))] = ()
    agent_id: UUID | None = None
    sort: Annotated[str, OneOf(LimitFilters.ORDERS)] = "created"


class PriceListQuery(ListQuery):
    """Which prices to list; newest first by default."""

    FILTERS = PriceFilters

    subject: Short = ""
    unit: Annotated[tuple[str, ...], Several(("input_token", "output_token", "call"))] = ()
    sort: Annotated[str, OneOf(PriceFilters.ORDERS)] = "-created"


class WebhookListQuery(ListQuery):
    """Which webhook endpoints to list; newest first by default."""

    FILTERS = EndpointFilters

    q: Short = Field("", description="Part of the address.")
    disabled: bool | None = None
    sort: Annotated[str, OneOf(EndpointFilters.ORDERS)] = "-created"


class DeliveryListQuery(ListQuery):
    """Which messages of a webhook to list; newest first by default."""

    FILTERS = DeliveryFilters

    state: Annotated[tuple[str, ...], Several(DELIVERY_STATES)] = ()
    status: Annotated[tuple[str, ...], Several(sorted(WORDS))] = ()
    task_id: UUID | None = None
    sort: Annotated[str, OneOf(DeliveryFilters.ORDERS)] = "-created"
