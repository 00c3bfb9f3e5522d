"""Schedules as people and programs see them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from tasks_app.domain.errors import NotFoundError
from tasks_app.domain.principal import Principal
from tasks_app.models import Schedule
from tasks_app.queries.filters import Filters
from tasks_app.queries.paging import PAGE_SIZE, Page
from tasks_app.queries.rows import row_of


@dataclass(frozen=True, slots=True)
class ScheduleFilters(Filters):
    """What a list of schedules is narrowed to; `q` is part of the name."""

    q: str = ""
    workflow: str = ""
    owner: str = ""
    paused: bool | None = None

    LOOKUPS: ClassVar = {
        "q": "name__icontains",
        "workflow": "workflow",
        "owner": "owner__username",
    }
    ORDERS: ClassVar = {
        "-created": ("-created_at", "-id"),
        "created": ("created_at", "id"),
        "name": ("name", "id"),
    }


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A schedule; `fires_at` is null while it is paused."""

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


def list_schedules(
    principal: Principal,
    filters: ScheduleFilters = ScheduleFilters(),
    cursor: str | None = None,
    limit: int = PAGE_SIZE,
) -> Page[ScheduleRow]:
    """Return the schedules that the caller sees, newest first by default."""
    rows = filters.narrow(Schedule.objects.visible_to(principal).filter(deleted_at=None))
    if filters.paused is not None:
        rows = rows.filter(paused_at__isnull=not filters.paused)
    return filters.keyset(principal, "schedules").page(rows, cursor, limit, schedule_row)


def get_schedule(principal: Principal, schedule_id: UUID) -> ScheduleRow:
    """Return a schedule that the caller sees. Raises: NotFoundError."""
    rows = Schedule.objects.visible_to(principal)
    found = rows.filter(pk=schedule_id, deleted_at=None).first()
    if found is None:
        raise NotFoundError("Not found.")
    return schedule_row(found)


def schedule_row(row: Schedule) -> ScheduleRow:
    """Return a schedule as it is shown."""
    return row_of(ScheduleRow, row)
