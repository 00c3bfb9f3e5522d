"""Tasks: which ones a principal sees, as a filtered list and as counts."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, Q

from tasks_app.domain.errors import NotFoundError
from tasks_app.domain.principal import Principal
from tasks_app.domain.states import TERMINAL, TaskStatus, progress_of
from tasks_app.models import Task
from tasks_app.queries.paging import PAGE_SIZE, Page, keyset
from tasks_app.queries.rows import row_of

_ID_PREFIX = re.compile(r"[0-9a-f]{4,32}")


@dataclass(frozen=True, slots=True)
class TaskFilters:
    """What a list of tasks is narrowed to; empty means all."""

    q: str = ""
    states: tuple[str, ...] = ()
    workflow: str = ""

    @property
    def is_set(self) -> bool:
        """Tell whether anything is filtered out."""
        return bool(self.q or self.states or self.workflow)


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
    """Return the newest visible tasks after the cursor.

    Raises:
        InvalidInputError: the cursor was made for another tenant or filter, or is damaged.
    """
    rows = _narrowed(Task.objects.visible_to(principal), filters)
    if filters.states:
        rows = rows.filter(status__in=filters.states)
    keys = keyset(
        principal, "tasks", filters.q, filters.workflow, *sorted(filters.states),
        order=["-created_at", "-id"],
    )  # fmt: skip
    return keys.page(rows.select_related("initiator").only(*_ROW_COLUMNS), cursor, limit, _row)


def count_tasks(principal: Principal, filters: TaskFilters = TaskFilters()) -> dict[str, int]:
    """Return how many visible tasks each status has; the state filter itself is left out."""
    rows = _narrowed(Task.objects.visible_to(principal), filters)
    counted = rows.order_by().values_list("status").annotate(n=Count("pk"))
    return dict(counted)


def is_cancelling(task: Task) -> bool:
    """Tell whether a live task was asked to stop and has not yet."""
    return task.cancel_requested_at is not None and TaskStatus(task.status) not in TERMINAL


_ROW_COLUMNS = (
    "title", "workflow", "status", "cancel_requested_at", "state_version", "priority", "phase",
    "progress_done", "progress_total", "created_at", "updated_at", "initiator__username",
)  # fmt: skip


def _narrowed(rows: Any, filters: TaskFilters) -> Any:
    if filters.workflow:
        rows = rows.filter(workflow=filters.workflow)
    if filters.q:
        wanted = Q(title__icontains=filters.q)
        prefix = filters.q.lower().replace("-", "")
        if _ID_PREFIX.fullmatch(prefix):
            wanted |= Q(id__gte=UUID(prefix.ljust(32, "0")), id__lte=UUID(prefix.ljust(32, "f")))
        rows = rows.filter(wanted)
    return rows


def _row(task: Task) -> TaskRow:
    return row_of(
        TaskRow,
        task,
        cancelling=is_cancelling(task),
        progress=progress_of(TaskStatus(task.status), task.progress_done, task.progress_total),
        initiator=task.initiator.get_username(),
    )
