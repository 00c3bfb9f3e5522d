"""Events of runs under the names and numbers of the run door, and the messages among them.

An event's number in its thread is the run's number and the event's own side by side, so no counter
is kept for it: runs of a thread follow each other, and so do their events.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from tasks_app.domain.conversation import MESSAGE
from tasks_app.domain.principal import Principal
from tasks_app.domain.runs import CancelAction
from tasks_app.domain.states import TaskStatus
from tasks_app.models import Event, Run, Task
from tasks_app.queries.events import EventRow

RUN_BITS = 32
CHILD = "child"


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event of a run; `thread_seq` orders it among all events of its thread."""

    task_id: UUID
    number: int
    seq: int
    type: str
    data: Mapping[str, Any]
    at: datetime

    @property
    def thread_seq(self) -> int:
        """Return the number of the event in its thread."""
        return thread_seq(self.number, self.seq)


@dataclass(frozen=True, slots=True)
class RunEvents:
    """Events in order; `more` tells whether there are others beyond the asked end."""

    events: tuple[RunEvent, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class Window:
    """Which part of a list of events: the newest, or those before or after a number."""

    limit: int = 50
    before: int | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True)
class ChildFilter:
    """A task that a run started: by the id from outside that it answers, or by its own."""

    task_id: str = ""
    execution_id: str = ""

    @property
    def condition(self) -> Q:
        """Return the condition on events."""
        found = Q(type=CHILD)
        if self.execution_id:
            found &= Q(data__executionId=self.execution_id)
        if self.task_id:
            own = Q(data__externalId="", data__executionId=self.task_id)
            found &= Q(data__externalId=self.task_id) | own
        return found


def thread_seq(number: int, seq: int) -> int:
    """Return the number in its thread of an event of the thread's nth run."""
    return number << RUN_BITS | seq


def list_messages(
    principal: Principal,
    thread_id: UUID,
    window: Window,
    *,
    task_id: UUID | None = None,
    include_superseded: bool = False,
) -> RunEvents:
    """Return messages of a thread, or of one run of it, oldest first.

    What a run said that was rolled back is left out unless it is asked for.
    """
    runs = Run.objects.visible_to(principal).filter(thread_id=thread_id, hidden_at=None)
    if task_id is not None:
        runs = runs.filter(pk=task_id)
    elif not include_superseded:
        runs = runs.exclude(task__status=TaskStatus.CANCELLED, cancel_action=CancelAction.ROLLBACK)
    rows = Event.objects.visible_to(principal).filter(
        type=MESSAGE, task_id__in=runs.order_by().values("pk")
    )
    return _cut(rows, window)


def list_run_events(
    principal: Principal,
    task_id: UUID,
    *,
    after: int = 0,
    limit: int = 500,
    types: Collection[str] | None = None,
    message_types: Collection[str] = (),
    child: ChildFilter | None = None,
) -> tuple[RunEvent, ...]:
    """Return events of a run after the one numbered `after`, in order.

    Args:
        types: only these; a `message` also if its own type is among `message_types`.
        child: only what tells of one task that the run started.
    """
    rows = Event.objects.visible_to(principal).filter(task_id=task_id, seq__gt=after)
    if types is not None:
        wanted = Q(type__in=types) | Q(type=MESSAGE, data__type__in=message_types)
        rows = rows.filter(wanted)
    if child is not None:
        rows = rows.filter(child.condition)
    return _read(rows.order_by("seq")[:limit])


def events_between(
    principal: Principal, task_id: UUID, *, after: int, up_to: int, types: Sequence[str] = ()
) -> list[EventRow]:
    """Return a run's events after one number and up to another, in order; of some types only."""
    rows = Event.objects.visible_to(principal).filter(
        task_id=task_id, seq__gt=after, seq__lte=up_to
    )
    if types:
        rows = rows.filter(type__in=types)
    found = rows.order_by("seq").values_list("seq", "type", "data", "at")
    return [EventRow(*values) for values in found]


def descendants_of(principal: Principal, task_id: UUID) -> list[tuple[UUID, str, int]]:
    """Return the tasks that a run started, at any depth: id, workflow, newest event."""
    found: list[tuple[UUID, str, int]] = []
    level = [task_id]
    while level:
        children = Task.objects.visible_to(principal).filter(parent_id__in=level)
        rows = list(children.order_by("created_at").values_list("pk", "workflow", "event_seq"))
        found += rows
        level = [child for child, *_ in rows]
    return found


def _cut(rows: QuerySet[Event], window: Window) -> RunEvents:
    backwards = window.after is None
    if window.before is not None:
        rows = rows.filter(_beyond(window.before, "lt"))
    if window.after is not None:
        rows = rows.filter(_beyond(window.after, "gt"))
    order = ("-task__run__number", "-seq") if backwards else ("task__run__number", "seq")
    found = _read(rows.order_by(*order)[: window.limit + 1])
    shown = found[: window.limit]
    return RunEvents(shown[::-1] if backwards else shown, more=len(found) > window.limit)


def _beyond(number: int, side: str) -> Q:
    """Return the condition of events on one side of a number in their thread."""
    run, seq = number >> RUN_BITS, number & ((1 << RUN_BITS) - 1)
    beyond = Q((f"task__run__number__{side}", run))
    return beyond | Q(("task__run__number", run), (f"seq__{side}", seq))


def _read(rows: QuerySet[Event]) -> tuple[RunEvent, ...]:
    found = rows.values_list("task_id", "task__run__number", "seq", "type", "data", "at")
    return tuple(RunEvent(*values) for values in found)
