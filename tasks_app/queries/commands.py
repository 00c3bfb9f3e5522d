"""Steering commands of a task."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from django.db.models import QuerySet

from tasks_app.domain.principal import Principal
from tasks_app.models import SteeringCommand
from tasks_app.queries.filters import Filters
from tasks_app.queries.paging import PAGE_SIZE, Page
from tasks_app.queries.people import Person, person
from tasks_app.queries.rows import row_of
from tasks_app.queries.tasks import require_visible


@dataclass(frozen=True, slots=True)
class CommandFilters(Filters):
    """What a list of commands is narrowed to."""

    type: tuple[str, ...] = ()
    status: tuple[str, ...] = ()
    requested_by: str = ""

    LOOKUPS: ClassVar = {
        "type": "type__in",
        "status": "status__in",
        "requested_by": "requested_by__username",
    }
    ORDERS: ClassVar = {
        "-seq": ("-seq",),
        "seq": ("seq",),
    }


@dataclass(frozen=True, slots=True)
class CommandRow:
    """A steering command and what became of it."""

    command_id: UUID
    task_id: UUID
    seq: int
    type: str
    payload: Mapping[str, Any]
    reason: str
    requested_by: Person
    source: str
    status: str
    rejection: str
    expected_version: int
    old_version: int
    new_version: int | None
    created_at: datetime
    applied_at: datetime | None


def list_commands(
    principal: Principal,
    task_id: UUID,
    filters: CommandFilters = CommandFilters(),
    cursor: str | None = None,
    limit: int = PAGE_SIZE,
) -> Page[CommandRow]:
    """Return the commands of a task, newest first by default; raises NotFoundError."""
    require_visible(principal, task_id)
    rows = filters.narrow(_rows(principal, task_id))
    return filters.keyset(principal, "commands", task_id).page(rows, cursor, limit, _row)


def list_newest_commands(principal: Principal, task_id: UUID, limit: int = 5) -> list[CommandRow]:
    """Return the newest commands of a task."""
    return [_row(row) for row in _rows(principal, task_id).order_by("-seq")[:limit]]


def _rows(principal: Principal, task_id: UUID) -> QuerySet[SteeringCommand]:
    rows: QuerySet[SteeringCommand] = SteeringCommand.objects.visible_to(principal)
    return rows.filter(task_id=task_id).select_related("requested_by")


def _row(row: SteeringCommand) -> CommandRow:
    return row_of(CommandRow, row, requested_by=person(row.requested_by))
