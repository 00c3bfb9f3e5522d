"""Tasks: which ones a principal sees, as a filtered list and as counts."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar
from uuid import UUID

from django.db.models import Count, Q, QuerySet

from tasks_app.domain.errors import NotFoundError
from tasks_app.domain.principal import Principal
from tasks_app.domain.states import TERMINAL, TaskStatus, progress_of
from tasks_app.models import Task
from tasks_app.queries.approvals import PENDING, approvals_waiting_for
from tasks_app.queries.filters import Filters
from tasks_app.queries.paging import PAGE_SIZE, Page
from tasks_app.queries.rows import row_of

_ID_PREFIX = re.compile(r"[0-9a-f]{4,32}")


@dataclass(frozen=True, slots=True)
class TaskFilters(Filters):
    """What a list of tasks is narrowed to.

    `q` is part of the title or the begin of an id; `needs_me` leaves the tasks in which the caller
    has something to decide, to answer or to repair.
    """

    q: str = ""
    states: tuple[str, ...] = ()
    workflow: str = ""
    initiator: str = ""
    source: tuple[str, ...] = ()
    priority: tuple[int, ...] = ()
    thread_id: UUID | None = None
    parent_id: UUID | None = None
    agent_id: UUID | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    needs_me: bool = False

    LOOKUPS: ClassVar = {
        "states": "status__in",
        "workflow": "workflow",
        "initiator": "initiator__username",
        "source": "source__in",
        "priority": "priority__in",
        "thread_id": "thread_id",
        "parent_id": "parent_id",
        "agent_id": "agent_id",
        "created_after": "created_at__gte",
        "created_before": "created_at__lt",
    }
    # Only the first has an index: the others sort what the filters leave.
    ORDERS: ClassVar = {
        "-created": ("-created_at", "-id"),
        "created": ("created_at", "id"),
        "-updated": ("-updated_at", "-id"),
        "updated": ("updated_at", "id"),
        "priority": ("priority", "-created_at", "-id"),
        "-priority": ("-priority", "-created_at", "-id"),
        "title": ("title", "id"),
    }

    @property
    def is_set(self) -> bool:
        """Tell whether anything is filtered out."""
        return bool(self.given)


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task in a list."""

    id: UUID
    title: str
    workflow: str
    status: str
    cancelling: bool
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


def require_visible(principal: Principal, task_id: UUID) -> None:
    """Refuse unless the task exists for this principal.

    Raises:
        NotFoundError: no such task, or outside what the principal may see.
    """
    if not Task.objects.visible_to(principal).filter(id=task_id).exists():
        raise NotFoundError("Not found.")


def list_tasks(
    principal: Principal,
    filters: TaskFilters = TaskFilters(),
    cursor: str | None = None,
    limit: int = PAGE_SIZE,
) -> Page[TaskRow]:
    """Return the visible tasks after the cursor, the newest first unless another order is named.

    Raises:
        InvalidInputError: the cursor was made for another tenant, filter or order, or is damaged.
    """
    rows = narrowed_tasks(principal, filters).select_related("initiator").only(*_ROW_COLUMNS)
    return filters.keyset(principal, "tasks").page(rows, cursor, limit, _row)


def estimate_tasks(principal: Principal, filters: TaskFilters) -> int:
    """Return about how many tasks the filters leave, as the planner of the database sees it."""
    plan = json.loads(narrowed_tasks(principal, filters).order_by().explain(format="json"))
    return int(plan[0]["Plan"]["Plan Rows"])


def narrowed_tasks(principal: Principal, filters: TaskFilters) -> QuerySet[Task]:
    """Return the visible tasks that fit the filters."""
    rows: QuerySet[Task] = filters.narrow(Task.objects.visible_to(principal))
    if filters.q:
        wanted = Q(title__icontains=filters.q)
        prefix = filters.q.lower().replace("-", "")
        if _ID_PREFIX.fullmatch(prefix):
            wanted |= Q(id__gte=UUID(prefix.ljust(32, "0")), id__lte=UUID(prefix.ljust(32, "f")))
        rows = rows.filter(wanted)
    return rows.filter(_needing(principal)) if filters.needs_me else rows


def list_titles(principal: Principal, task_ids: Sequence[UUID]) -> dict[UUID, str]:
    """Return the titles of those of the tasks that the principal sees."""
    rows = Task.objects.visible_to(principal).filter(pk__in=list(task_ids))
    return dict(rows.values_list("pk", "title"))


def count_tasks(principal: Principal, filters: TaskFilters = TaskFilters()) -> dict[str, int]:
    """Return how many visible tasks each status has; the state filter itself is left out."""
    rows = narrowed_tasks(principal, replace(filters, states=()))
    counted = rows.order_by().values_list("status").annotate(n=Count("pk"))
    return dict(counted)


def is_cancelling(task: Task) -> bool:
    """Tell whether a live task was asked to stop and has not yet."""
    return task.cancel_requested_at is not None and TaskStatus(task.status) not in TERMINAL


_ROW_COLUMNS = (
    "title", "workflow", "status", "cancel_requested_at", "state_version", "priority", "phase",
    "progress_done", "progress_total", "created_at", "updated_at", "initiator__username",
    "source", "thread_id", "parent_id",
)  # fmt: skip


def _needing(principal: Principal) -> Q:
    """Return the condition of the tasks in which this very person is asked for something."""
    waiting = approvals_waiting_for(principal)
    wanted = Q(pk__in=waiting.values("task_id"))
    for capability, status in (
        ("tasks:steer", TaskStatus.INPUT_REQUIRED),
        ("deadletters:manage", TaskStatus.DEAD_LETTERED),
    ):
        if principal.can(capability):
            own = Q(initiator_id=principal.user_id) if principal.sees_only_own(capability) else Q()
            wanted |= Q(status=status) & own & ~Q(approvals__status=PENDING)
    return wanted


def _row(task: Task) -> TaskRow:
    return row_of(
        TaskRow,
        task,
        cancelling=is_cancelling(task),
        progress=progress_of(TaskStatus(task.status), task.progress_done, task.progress_total),
        initiator=task.initiator.get_username(),
    )
