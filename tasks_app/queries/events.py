"""The journal of a task."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, ClassVar
from uuid import UUID

from tasks_app.domain.principal import Principal
from tasks_app.models import Event
from tasks_app.queries import diagnostics
from tasks_app.queries.filters import Filters
from tasks_app.queries.paging import PAGE_SIZE, Page
from tasks_app.queries.rows import row_of
from tasks_app.queries.tasks import require_visible


@dataclass(frozen=True, slots=True)
class EventFilters(Filters):
    """What a list of events is narrowed to; `after` and `before` are numbers."""

    type: tuple[str, ...] = ()
    after: int | None = None
    before: int | None = None

    LOOKUPS: ClassVar = {
        "type": "type__in",
        "after": "seq__gt",
        "before": "seq__lt",
    }
    ORDERS: ClassVar = {
        "seq": ("seq",),
        "-seq": ("-seq",),
    }


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event of the journal."""

    seq: int
    type: str
    data: Mapping[str, Any]
    at: datetime


@dataclass(frozen=True, slots=True)
class NewestEvents:
    """Events, newest first; `older` is the `before` of the next page."""

    events: tuple[EventRow, ...]
    older: int | None


def list_events(
    principal: Principal,
    task_id: UUID,
    filters: EventFilters = EventFilters(),
    cursor: str | None = None,
    limit: int = PAGE_SIZE,
) -> Page[EventRow]:
    """Return the events of a task, in order by default; raises NotFoundError."""
    require_visible(principal, task_id)
    rows = filters.narrow(Event.objects.visible_to(principal).filter(task_id=task_id))
    pages = filters.keyset(principal, "journal", task_id)
    return pages.page(rows, cursor, limit, partial(_row, principal))


def list_newest_events(
    principal: Principal, task_id: UUID, *, before: int | None = None, limit: int = 100
) -> NewestEvents:
    """Return the newest events, or the newest before the one numbered `before`."""
    rows = Event.objects.visible_to(principal).filter(task_id=task_id)
    if before is not None:
        rows = rows.filter(seq__lt=before)
    found = list(rows.order_by("-seq")[: limit + 1])
    older = found[limit - 1].seq if len(found) > limit else None
    return NewestEvents(tuple(_row(principal, row) for row in found[:limit]), older)


def _row(principal: Principal, row: Event) -> EventRow:
    return row_of(EventRow, row, data=diagnostics.shown(principal, row.data))
