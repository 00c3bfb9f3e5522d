"""What people did with a task while it was held."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from django.db.models import QuerySet

from tasks_app.domain.principal import Principal
from tasks_app.models import Repair
from tasks_app.queries.filters import Filters
from tasks_app.queries.paging import PAGE_SIZE, Page
from tasks_app.queries.people import Person, person
from tasks_app.queries.rows import row_of
from tasks_app.queries.tasks import require_visible


@dataclass(frozen=True, slots=True)
class RepairFilters(Filters):
    """What a list of repairs is narrowed to."""

    verb: tuple[str, ...] = ()
    cause: str = ""
    requested_by: str = ""

    LOOKUPS: ClassVar = {
        "verb": "verb__in",
        "cause": "cause",
        "requested_by": "requested_by__username",
    }
    ORDERS: ClassVar = {
        "-created": ("-id",),
        "created": ("id",),
    }


@dataclass(frozen=True, slots=True)
class RepairRow:
    """One repair; `status` is where it left the task."""

    repair_id: UUID
    task_id: UUID
    verb: str
    payload: Mapping[str, Any]
    cause: str
    reason: str
    requested_by: Person
    source: str
    status: str
    old_version: int
    new_version: int
    forked_task_id: UUID | None
    created_at: datetime


def list_repairs(
    principal: Principal,
    task_id: UUID,
    filters: RepairFilters = RepairFilters(),
    cursor: str | None = None,
    limit: int = PAGE_SIZE,
) -> Page[RepairRow]:
    """Return the repairs of a task, newest first by default; raises NotFoundError."""
    require_visible(principal, task_id)
    rows = filters.narrow(_rows(principal, task_id))
    return filters.keyset(principal, "repairs", task_id).page(rows, cursor, limit, _row)


def list_newest_repairs(principal: Principal, task_id: UUID, limit: int = 5) -> list[RepairRow]:
    """Return the newest repairs of a task."""
    return [_row(row) for row in _rows(principal, task_id).order_by("-id")[:limit]]


def _rows(principal: Principal, task_id: UUID) -> QuerySet[Repair]:
    rows: QuerySet[Repair] = Repair.objects.visible_to(principal)
    return rows.filter(task_id=task_id).select_related("requested_by")


def _row(row: Repair) -> RepairRow:
    return row_of(RepairRow, row, requested_by=person(row.requested_by))
