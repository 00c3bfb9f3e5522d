"""How the plan of a task changed."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from django.db.models import QuerySet

from tasks_app.domain.principal import Principal
from tasks_app.models import PlanVersion
from tasks_app.queries.filters import Filters
from tasks_app.queries.paging import PAGE_SIZE, Page
from tasks_app.queries.rows import row_of
from tasks_app.queries.tasks import require_visible


@dataclass(frozen=True, slots=True)
class PlanFilters(Filters):
    """What a list of plans is narrowed to."""

    cause: tuple[str, ...] = ()

    LOOKUPS: ClassVar = {
        "cause": "cause__in",
    }
    ORDERS: ClassVar = {
        "-version": ("-version",),
        "version": ("version",),
    }


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One plan of a task: why it was made and what it changed.

    `difference` is {"kept" | "added" | "retired": {"count", "keys"}}.
    """

    version: int
    cause: str
    workflow_version: int
    command_id: UUID | None
    difference: Mapping[str, Any]
    actor: str
    created_at: datetime


def list_plans(
    principal: Principal,
    task_id: UUID,
    filters: PlanFilters = PlanFilters(),
    cursor: str | None = None,
    limit: int = PAGE_SIZE,
) -> Page[PlanRow]:
    """Return a task's plans, newest first by default; none while it still has its first.

    Raises: NotFoundError.
    """
    require_visible(principal, task_id)
    rows = filters.narrow(_rows(principal, task_id))
    return filters.keyset(principal, "plans", task_id).page(rows, cursor, limit, _row)


def list_newest_plans(principal: Principal, task_id: UUID, limit: int = 10) -> list[PlanRow]:
    """Return the newest plans of a task."""
    return [_row(row) for row in _rows(principal, task_id).order_by("-version")[:limit]]


def _rows(principal: Principal, task_id: UUID) -> QuerySet[PlanVersion]:
    rows: QuerySet[PlanVersion] = PlanVersion.objects.visible_to(principal)
    return rows.filter(task_id=task_id)


def _row(row: PlanVersion) -> PlanRow:
    return row_of(PlanRow, row)
