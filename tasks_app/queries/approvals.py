"""Approvals: the inbox, and one act in full. Arguments are the real ones (S58)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from django.db.models import QuerySet

from tasks_app.domain.errors import NotFoundError
from tasks_app.domain.principal import Principal
from tasks_app.models import Approval, ApprovalDecision
from tasks_app.queries.filters import Filters
from tasks_app.queries.paging import MAX_PAGE_SIZE, PAGE_SIZE, Page
from tasks_app.queries.people import Person, person
from tasks_app.queries.rows import row_of

PENDING = "pending"


@dataclass(frozen=True, slots=True)
class ApprovalFilters(Filters):
    """What a list of approvals is narrowed to; `mine` are those that the caller may decide."""

    status: tuple[str, ...] = (PENDING,)
    task_id: UUID | None = None
    tool: str = ""
    workflow: str = ""
    requested_by: str = ""
    mine: bool = False

    LOOKUPS: ClassVar = {
        "status": "status__in",
        "task_id": "task_id",
        "tool": "tool",
        "workflow": "task__workflow",
        "requested_by": "task__initiator__username",
    }
    ORDERS: ClassVar = {
        "expires": ("expires_at", "id"),
        "-expires": ("-expires_at", "-id"),
        "-created": ("-created_at", "-id"),
        "created": ("created_at", "id"),
    }


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """What one person said to an approval."""

    decision: str
    by: Person
    reason: str
    via: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """One act that waits for a person; `decisions` are read for one approval only."""

    id: UUID
    version: int
    status: str
    tool: str
    arguments: Mapping[str, Any]
    args_sha256: str
    display: Mapping[str, Any]
    plan_version: int
    policy_version: int
    on_timeout: str
    required: int
    created_at: datetime
    expires_at: datetime
    decided_at: datetime | None
    task_id: UUID
    task_title: str
    task_status: str
    workflow: str
    requested_by: Person
    agent: str
    decisions: tuple[DecisionRow, ...] = ()


def list_approvals(
    principal: Principal,
    filters: ApprovalFilters = ApprovalFilters(),
    cursor: str | None = None,
    limit: int = PAGE_SIZE,
) -> Page[ApprovalRow]:
    """Return the tenant's approvals, nearest deadline first unless another order is named."""
    rows = filters.narrow(_rows(principal))
    if filters.mine:
        rows = rows.filter(pk__in=approvals_waiting_for(principal).values("pk"))
    return filters.keyset(principal, "approvals").page(rows, cursor, limit, _row)


def list_inbox(principal: Principal, tab: str = "waiting", limit: int = 100) -> list[ApprovalRow]:
    """Return approvals: `mine` and `waiting` by nearest deadline, `decided` newest first."""
    rows = _rows(principal)
    if tab == "decided":
        rows = rows.exclude(status=PENDING).order_by("-created_at")
    else:
        rows = rows.filter(status=PENDING).order_by("expires_at")
    if tab == "mine":
        rows = _decidable(rows, principal)
    return [_row(row) for row in rows[:limit]]


def list_task_approvals(principal: Principal, task_id: UUID) -> list[ApprovalRow]:
    """Return the approvals of one task, newest first."""
    rows = _rows(principal).filter(task_id=task_id).order_by("-created_at")
    return [_row(row) for row in rows[:MAX_PAGE_SIZE]]


def get_approval(principal: Principal, approval_id: UUID) -> ApprovalRow:
    """Return one approval with its decisions.

    Raises:
        NotFoundError: no such approval, or not the caller's to see.
    """
    row = _rows(principal).filter(pk=approval_id).first()
    if row is None:
        raise NotFoundError("Not found.")
    decisions = ApprovalDecision.objects.visible_to(principal).filter(approval_id=row.id)
    return _row(
        row,
        tuple(
            row_of(DecisionRow, d, by=person(d.approver))
            for d in decisions.select_related("approver").order_by("at")
        ),
    )


def count_waiting(principal: Principal) -> int:
    """Return how many approvals wait for this very person."""
    return approvals_waiting_for(principal).count()


def find_next_waiting(principal: Principal, *, after: UUID) -> UUID | None:
    """Return the next approval that the person may decide, if one waits."""
    found = approvals_waiting_for(principal).exclude(pk=after).order_by("expires_at").first()
    return found.pk if found else None


def _rows(principal: Principal) -> QuerySet[Approval]:
    rows: QuerySet[Approval] = Approval.objects.visible_to(principal)
    return rows.select_related("task__initiator", "task__agent")


def approvals_waiting_for(principal: Principal) -> QuerySet[Approval]:
    """Return the pending approvals that this very person may decide."""
    rows: QuerySet[Approval] = Approval.objects.visible_to(principal)
    if not principal.can("approvals:decide"):
        return rows.none()
    return _decidable(rows.filter(status=PENDING), principal)


def _decidable(rows: QuerySet[Approval], principal: Principal) -> QuerySet[Approval]:
    """Leave out what the person asked for or already decided; admission checks the rest."""
    return rows.exclude(task__initiator_id=principal.user_id).exclude(
        decisions__approver_id=principal.user_id
    )


def _row(row: Approval, decisions: tuple[DecisionRow, ...] = ()) -> ApprovalRow:
    return row_of(
        ApprovalRow,
        row,
        task_title=row.task.title,
        task_status=row.task.status,
        workflow=row.task.workflow,
        requested_by=person(row.task.initiator),
        agent=row.task.agent.name,
        decisions=decisions,
    )
