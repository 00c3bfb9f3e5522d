"""What executed a task: its slices, and the tries of steps that did not succeed."""

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, ClassVar
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone

from tasks_app.domain.principal import Principal
from tasks_app.models import Attempt, Slice
from tasks_app.queries import diagnostics
from tasks_app.queries.filters import Filters
from tasks_app.queries.paging import PAGE_SIZE, Page
from tasks_app.queries.rows import row_of
from tasks_app.queries.tasks import require_visible

_NEWEST = 50


@dataclass(frozen=True, slots=True)
class SliceFilters(Filters):
    """What a list of slices is narrowed to."""

    outcome: tuple[str, ...] = ()
    worker: str = ""
    recovered: bool | None = None

    LOOKUPS: ClassVar = {"outcome": "outcome__in", "worker": "worker", "recovered": "recovered"}
    ORDERS: ClassVar = {"-fence": ("-fence",), "fence": ("fence",)}


@dataclass(frozen=True, slots=True)
class AttemptFilters(Filters):
    """What a list of failed tries is narrowed to; `step` is the key of one."""

    step: str = ""
    fence: int | None = None

    LOOKUPS: ClassVar = {"step": "step__key", "fence": "fence"}
    ORDERS: ClassVar = {"-ended": ("-id",), "ended": ("id",)}


@dataclass(frozen=True, slots=True)
class SliceRow:
    """What one delivery executed."""

    fence: int
    worker: str
    recovered: bool
    outcome: str
    steps: int
    started_at: datetime
    ended_at: datetime | None

    @property
    def seconds(self) -> float:
        """Return how long the slice ran so far."""
        return ((self.ended_at or timezone.now()) - self.started_at).total_seconds()


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One failed try of a step."""

    step: str
    number: int
    fence: int
    error: Any
    ended_at: datetime
    retry_at: datetime | None


def list_slices(
    principal: Principal,
    task_id: UUID,
    filters: SliceFilters = SliceFilters(),
    cursor: str | None = None,
    limit: int = PAGE_SIZE,
) -> Page[SliceRow]:
    """Return the slices of a task, newest first by default; raises NotFoundError."""
    require_visible(principal, task_id)
    rows = filters.narrow(_slices(principal, task_id))
    pages = filters.keyset(principal, "slices", task_id)
    return pages.page(rows, cursor, limit, partial(row_of, SliceRow))


def list_newest_slices(principal: Principal, task_id: UUID) -> list[SliceRow]:
    """Return the newest slices of a task."""
    rows = _slices(principal, task_id).order_by("-fence")
    return [row_of(SliceRow, row) for row in rows[:_NEWEST]]


def list_attempts(
    principal: Principal,
    task_id: UUID,
    filters: AttemptFilters = AttemptFilters(),
    cursor: str | None = None,
    limit: int = PAGE_SIZE,
) -> Page[AttemptRow]:
    """Return the tries that did not succeed, newest first by default; raises NotFoundError."""
    require_visible(principal, task_id)
    rows = filters.narrow(_attempts(principal, task_id))
    pages = filters.keyset(principal, "attempts", task_id)
    return pages.page(rows, cursor, limit, partial(_attempt, principal))


def list_newest_attempts(principal: Principal, task_id: UUID) -> list[AttemptRow]:
    """Return the newest tries that did not succeed."""
    rows = _attempts(principal, task_id).order_by("-id")
    return [_attempt(principal, row) for row in rows[:_NEWEST]]


def _slices(principal: Principal, task_id: UUID) -> QuerySet[Slice]:
    rows: QuerySet[Slice] = Slice.objects.visible_to(principal)
    return rows.filter(task_id=task_id)


def _attempts(principal: Principal, task_id: UUID) -> QuerySet[Attempt]:
    rows: QuerySet[Attempt] = Attempt.objects.visible_to(principal)
    return rows.filter(task_id=task_id).select_related("step")


def _attempt(principal: Principal, row: Attempt) -> AttemptRow:
    return row_of(AttemptRow, row, step=row.step.key, error=diagnostics.shown(principal, row.error))
