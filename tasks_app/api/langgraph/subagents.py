"""Frames of the tasks that a run started, beside its own, for readers who ask for them.

Their names end in the task that they are of. They carry no ids: the cursor is that of the run. Who
comes back gets what happened since the event that was seen last.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from tasks_app.api.langgraph.frames import Frames
from tasks_app.domain.conversation import begin
from tasks_app.domain.principal import Principal
from tasks_app.queries.conversations import descendants_of, events_between
from tasks_app.queries.events import EventRow
from tasks_app.queries.runs import RunHead


@dataclass(frozen=True, slots=True)
class ChildEvents:
    """New events of one task that the run started; `newest` is the last number that it gave."""

    task_id: UUID
    workflow: str
    newest: int
    events: tuple[EventRow, ...]


def time_of(principal: Principal, run: RunHead, seq: int) -> datetime | None:
    """Return when an event of the run happened; None before the first."""
    found = events_between(principal, run.task_id, after=seq - 1, up_to=seq)
    return found[0].at if found and seq else None


def look_at_children(
    principal: Principal, run: RunHead, seen: Mapping[UUID, int], since: datetime | None
) -> list[ChildEvents]:
    """Return events of the run's descendants after those that were seen, and after a time."""
    found = []
    for task_id, workflow, newest in descendants_of(principal, run.task_id):
        after = seen.get(task_id, 0)
        if newest == after:
            continue
        events = events_between(principal, task_id, after=after, up_to=newest)
        new = [event for event in events if since is None or event.at > since]
        found.append(ChildEvents(task_id, workflow, newest, tuple(new)))
    return found


class Subagents:
    """What a reader has seen of the tasks that a run started."""

    def __init__(self, run: RunHead, modes: tuple[str, ...]) -> None:
        self._run = run
        self._modes = modes
        self._frames: dict[UUID, Frames] = {}
        self.seen: dict[UUID, int] = {}

    def text(self, found: ChildEvents) -> str:
        """Return the frames of one task's events."""
        frames = self._frames.setdefault(found.task_id, self._frames_of(found))
        self.seen[found.task_id] = found.newest
        return "".join(frames.of(event, ()) for event in found.events)

    def _frames_of(self, found: ChildEvents) -> Frames:
        child = replace(self._run, task_id=found.task_id, workflow=found.workflow)
        return Frames(child, self._modes, begin({}), suffix=f"|subagent:{found.task_id}")
