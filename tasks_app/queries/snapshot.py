"""The authoritative present state of one task: one shape for REST, MCP, streams and pages.

It is read in one statement, so that status, version, approval and question belong together. What
can be done about a held task is read besides: it changes by people's acts only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import (
    Count,
    DurationField,
    ExpressionWrapper,
    F,
    Func,
    OuterRef,
    QuerySet,
    Subquery,
)
from django.db.models.functions import Coalesce, JSONObject
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from tasks_app.domain.budgets import BudgetKind
from tasks_app.domain.errors import NotFoundError
from tasks_app.domain.principal import Principal, PrincipalKind
from tasks_app.domain.states import OUTSIDE, TaskStatus, progress_of
from tasks_app.domain.tracing import trace_id_of
from tasks_app.models import Approval, Budget, SteeringCommand, Step, Task
from tasks_app.queries import diagnostics, kept
from tasks_app.queries.holds import Hold, find_hold
from tasks_app.queries.kept import KeptQuery
from tasks_app.queries.people import Person, person
from tasks_app.queries.relatives import Relative, children_of_each, parent_of_each, relatives
from tasks_app.queries.rows import row_of

WAITING = "waiting"

# What is said of a status when the row gives nothing more to say; translated where it is read.
_MESSAGES = {
    TaskStatus.QUEUED: gettext_lazy("Waiting for a worker."),
    TaskStatus.WORKING: gettext_lazy("Working."),
    TaskStatus.PAUSING: gettext_lazy("Pausing at the next safe point."),
    TaskStatus.PAUSED: gettext_lazy("Paused."),
    TaskStatus.RECOVERING: gettext_lazy("A worker was lost; another one takes over."),
    TaskStatus.COMPLETED: gettext_lazy("Completed."),
    TaskStatus.CANCELLED: gettext_lazy("Cancelled."),
}


@dataclass(frozen=True, slots=True)
class LastCheckpoint:
    """The newest checkpoint and when it was written."""

    seq: int
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Lease:
    """Who executes the task; `seconds_left` by the database's clock, never negative."""

    owner: str
    pid: int | None
    fence: int
    seconds_left: float


@dataclass(frozen=True, slots=True)
class OpenApproval:
    """The approval the task waits for; `version` and `args_sha256` go into the decision."""

    id: UUID
    tool: str
    version: int
    args_sha256: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """The plain question the task waits for; `schema` is the JSON schema of an answer."""

    step_key: str
    prompt: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BudgetLine:
    """One limit of the task; `reserved` is taken by calls whose use is not known yet."""

    kind: str
    limit: int
    spent: int
    reserved: int

    @property
    def percent(self) -> int:
        """Return how much of the limit is taken, 100 at most."""
        taken = self.spent + self.reserved
        return 100 if taken >= self.limit else taken * 100 // self.limit


@dataclass(frozen=True, slots=True)
class RefusedAct:
    """An act that was left out because its approval was denied or ran out."""

    id: UUID
    tool: str
    status: str


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """Where a task stands. `progress` is 0 to 1, or None while the total is unknown."""

    tenant_id: UUID
    task_id: UUID
    workflow: str
    workflow_version: int
    title: str
    status: TaskStatus
    outside_status: str
    status_message: str
    state_version: int
    seq: int
    plan_version: int
    goal: Mapping[str, Any]
    priority: int
    progress: float | None
    progress_done: int
    progress_total: int | None
    phase: str
    last_checkpoint: LastCheckpoint | None
    lease: Lease | None
    recoveries: int
    cancel_requested: bool
    closing_as: str
    open_approval: OpenApproval | None
    open_question: OpenQuestion | None
    refused_acts: tuple[RefusedAct, ...]
    pending_commands: int
    hold: Hold | None
    forked_from: UUID | None
    trace_id: str
    parent: Relative | None
    children: tuple[Relative, ...]
    error: Mapping[str, Any] | None
    result: Any
    stop_reason: str
    steps_done: int
    budget: tuple[BudgetLine, ...]
    initiator: Person
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    deadline_at: datetime | None

    @property
    def initiator_id(self) -> int:
        """Return whose task it is, for `policy.capabilities`."""
        return self.initiator.id


def get_snapshot(principal: Principal, task_id: UUID) -> TaskSnapshot:
    """Return the task's present state, in one query.

    Raises:
        NotFoundError: no such task, or outside what the principal may see.
    """
    known = _kept(principal.capabilities, principal.own_only)
    row = known.first({"id": task_id, "tenant": principal.tenant_id, "user": principal.user_id})
    if row is None:
        raise NotFoundError("Not found.")
    return _snapshot(principal, row)


@lru_cache(maxsize=64)
def _kept(capabilities: frozenset[str], own_only: frozenset[str]) -> KeptQuery[Task]:
    """Return the snapshot's query as whoever has these capabilities may run it."""
    somebody = Principal(
        kind=PrincipalKind.USER,
        tenant_id=kept.SOME_TENANT,
        user_id=kept.SOME_USER,
        via="",
        capabilities=capabilities,
        own_only=own_only,
    )
    rows = _rows(somebody).filter(id=kept.SOME_ID)
    return KeptQuery(rows, id=kept.SOME_ID, tenant=kept.SOME_TENANT, user=kept.SOME_USER)


def get_version(principal: Principal, task_id: UUID) -> tuple[int, int]:
    """Return (state_version, seq) of the task: one row read, for a snapshot's ETag.

    Raises:
        NotFoundError: as `get_snapshot`.
    """
    rows = Task.objects.visible_to(principal).filter(id=task_id)
    row: tuple[int, int] | None = rows.values_list("state_version", "event_seq").first()
    if row is None:
        raise NotFoundError("Not found.")
    return row


def _rows(principal: Principal) -> QuerySet[Task]:
    of_task = {"tenant_id": OuterRef("tenant_id"), "task_id": OuterRef("pk")}
    approval = (
        Approval.objects.visible_to(principal)
        .filter(**of_task, status="pending")
        .order_by("created_at")
        .values_list(
            JSONObject(
                id="id",
                tool="tool",
                version="version",
                args_sha256="args_sha256",
                expires_at="expires_at",
            )
        )
    )
    refused = (
        Approval.objects.visible_to(principal)
        .filter(**of_task, status__in=("denied", "expired"))
        .order_by("created_at")
        .values_list(JSONObject(id="id", tool="tool", status="status"))
    )
    question = (
        Step.objects.for_tenant(principal.tenant_id)
        .filter(**of_task, kind="question", status=WAITING, retired_in__isnull=True)
        .order_by("position")
        .values_list(JSONObject(key="key", options="options"))
    )
    pending = (
        SteeringCommand.objects.for_tenant(principal.tenant_id)
        .filter(**of_task, status="pending")
        .order_by()
        .values("task_id")
        .annotate(number=Count("id"))
        .values("number")
    )
    limits = (
        Budget.objects.for_tenant(principal.tenant_id)
        .filter(task_id=OuterRef("pk"), limit_amount__isnull=False)
        .order_by("id")
        .values_list(
            JSONObject(kind="kind", limit="limit_amount", spent="spent", reserved="reserved")
        )
    )
    rows: QuerySet[Task] = Task.objects.visible_to(principal)
    return rows.select_related("initiator").annotate(
        open_approvals=ArraySubquery(approval[:1]),
        refused_approvals=ArraySubquery(refused[:20]),
        open_questions=ArraySubquery(question[:1]),
        parents=parent_of_each(principal),
        started_tasks=children_of_each(principal),
        limits=ArraySubquery(limits),
        pending_commands=Coalesce(Subquery(pending), 0),
        lease_left=ExpressionWrapper(
            F("lease_expires_at") - Func(function="clock_timestamp"),
            output_field=DurationField(),
        ),
    )


def _snapshot(principal: Principal, row: Any) -> TaskSnapshot:
    status = TaskStatus(row.status)
    approval = _approval(row.open_approvals)
    refused = tuple(
        RefusedAct(UUID(found["id"]), found["tool"], found["status"])
        for found in row.refused_approvals or ()
    )
    return row_of(
        TaskSnapshot,
        row,
        task_id=row.id,
        status=status,
        outside_status=OUTSIDE[status],
        status_message=_message(row, status, approval, refused),
        refused_acts=refused,
        seq=row.event_seq,
        progress=progress_of(status, row.progress_done, row.progress_total),
        last_checkpoint=_checkpoint(row),
        lease=_lease(row),
        recoveries=row.recoveries_total,
        cancel_requested=row.cancel_requested_at is not None,
        open_approval=approval,
        open_question=_question(row.open_questions),
        error=diagnostics.shown(principal, row.error),
        hold=find_hold(principal, row, _reason(row)),
        forked_from=row.forked_from_id,
        trace_id=trace_id_of(row.traceparent),
        parent=next(iter(relatives(row.parents)), None),
        children=relatives(row.started_tasks),
        budget=tuple(_budget_line(row, found) for found in row.limits or ()),
        initiator=person(row.initiator),
    )


def _budget_line(row: Task, found: dict[str, Any]) -> BudgetLine:
    # What the engine counts itself is read from its counters while the task lives.
    counted = {
        BudgetKind.STEPS.value: row.steps_done,
        BudgetKind.ACTIVE_SECONDS.value: round(row.active_seconds),
    }
    return BudgetLine(**{**found, "spent": counted.get(found["kind"], found["spent"])})


def _checkpoint(row: Task) -> LastCheckpoint | None:
    if not row.checkpoint_seq:
        return None
    return LastCheckpoint(row.checkpoint_seq, row.last_checkpoint_at)


def _lease(row: Any) -> Lease | None:
    if row.lease_owner is None:
        return None
    host, pid = split_owner(row.lease_owner)
    left = row.lease_left.total_seconds() if row.lease_left is not None else 0.0
    return Lease(owner=host, pid=pid, fence=row.fence, seconds_left=max(left, 0.0))


def split_owner(owner: str) -> tuple[str, int | None]:
    """Return host name and process id of a lease owner, "<hostname>:<pid>:<token>"."""
    parts = owner.rsplit(":", 2)
    if len(parts) == 3 and parts[1].isdigit():
        return parts[0], int(parts[1])
    return owner, None


def _approval(found: list[dict[str, Any]]) -> OpenApproval | None:
    if not found:
        return None
    value = found[0]
    return OpenApproval(
        id=UUID(value["id"]),
        tool=value["tool"],
        version=value["version"],
        args_sha256=value["args_sha256"],
        expires_at=datetime.fromisoformat(value["expires_at"]),
    )


def _question(found: list[dict[str, Any]]) -> OpenQuestion | None:
    if not found:
        return None
    options = found[0]["options"]
    return OpenQuestion(
        step_key=found[0]["key"],
        prompt=str(options.get("prompt", "")),
        schema=options.get("schema") or {},
    )


def _message(
    row: Task,
    status: TaskStatus,
    approval: OpenApproval | None,
    refused: tuple[RefusedAct, ...],
) -> str:
    if row.closing_as and status is TaskStatus.QUEUED and row.next_wake_at is None:
        return _("Waiting for its child tasks to end.")
    if row.closing_as and status in (TaskStatus.QUEUED, TaskStatus.WORKING):
        return _("Undoing what was done, before the task ends.")
    if (
        row.cancel_requested_at is not None
        and not row.closing_as
        and status
        not in (
            TaskStatus.COMPLETED,
            TaskStatus.FAILED,
            TaskStatus.CANCELLED,
        )
    ):
        return _("Cancelling at the next safe point.")
    if status is TaskStatus.INPUT_REQUIRED:
        if approval is not None:
            return _("Waiting for a decision on %(tool)s.") % {"tool": approval.tool}
        return _("Waiting for a person.")
    if status is TaskStatus.COMPLETED and refused:
        acts = ", ".join(act.tool for act in refused)
        return _("Completed without %(acts)s: not approved.") % {"acts": acts}
    if status is TaskStatus.DEAD_LETTERED:
        return _("Held for an operator: %(reason)s") % {"reason": _reason(row)}
    if status is TaskStatus.PAUSED and row.stop_reason == "version_hold":
        return _("Paused, the installed code does not fit: %(reason)s") % {"reason": _reason(row)}
    if status is TaskStatus.QUEUED and row.next_wake_at is None:
        return _("Waiting for a child task.")
    if status is TaskStatus.FAILED:
        return _("Failed: %(reason)s") % {"reason": _reason(row)}
    if status is TaskStatus.WORKING and row.phase:
        return row.phase
    return str(_MESSAGES[status])


def _reason(row: Task) -> str:
    return str((row.error or {}).get("message") or row.stop_reason)
