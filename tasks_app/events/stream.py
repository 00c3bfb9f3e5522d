"""One live stream: first the present state, then events, with a heartbeat and an end.

Who may listen is decided by the caller, here only asked again from time to time. The stream holds
no database connection while it waits.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass

from django_eventstream.event import Event
from django_eventstream.utils import sse_encode_error, sse_encode_event
from django_eventstream.views import Listener

from tasks_app.conf import runtime
from tasks_app.events import ending, listening
from tasks_app.events.catalogue import EventType, SnapshotForm, StreamNotice, TenantHint

MAX_STREAM_SECONDS = 900.0
RECHECK_SECONDS = 30.0
# The database may be away for a moment; a right that cannot be confirmed for this long is gone.
UNCONFIRMED_SECONDS = 60.0
SUBSCRIBE_SECONDS = 1.0
HEARTBEAT = ": keep-alive\n\n"


class NoLongerAllowedError(Exception):
    """The listener's credential or right has ended since the stream began."""


class UnconfirmedError(Exception):
    """Whether the listener still has its right could not be found out."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the database says: the right still stands, and where the task is.

    `ended` tells that no further event can come; `snapshot` is None on a tenant's stream.
    """

    snapshot: SnapshotForm | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """What a stream carries.

    `look` asks the database for the right and the state; it raises NoLongerAllowedError or
    UnconfirmedError. `shows_tasks` is False for people who see only their own tasks.
    """

    channels: frozenset[str]
    look: Callable[[], Awaitable[Look]]
    shows_tasks: bool = True


async def live(plan: StreamPlan) -> AsyncGenerator[str]:
    """Yield the stream as server-sent events until it ends by itself or its reader goes."""
    listener = Listener()
    listener.channels = set(plan.channels)
    listener.assign_loop()
    manager = listening.manager()
    ending.watch()
    manager.add_listener(listener)
    try:
        await manager.wait_connected(listener, SUBSCRIBE_SECONDS)
        async with aclosing(_Stream(plan, listener, manager).run()) as texts:
            async for text in texts:
                yield text
    finally:
        manager.remove_listener(listener)


class _Stream:
    """The state of one running stream: what was sent and when to look again."""

    def __init__(
        self, plan: StreamPlan, listener: Listener, manager: listening.SupervisedListenerManager
    ) -> None:
        self._plan = plan
        self._listener = listener
        self._manager = manager
        self._seq = 0
        self._ended = False
        self._now = asyncio.get_running_loop().time
        self._ends_at = self._now() + MAX_STREAM_SECONDS
        self._confirmed_at = self._now()
        self._look_at = self._now()

    async def run(self) -> AsyncGenerator[str]:
        yield _sse(StreamNotice.OPEN, "{}")
        while True:
            if self._now() >= self._look_at:
                text, goes_on = await self._look()
                if text:
                    yield text
                if not goes_on:
                    return
            if self._now() >= self._ends_at or self._manager.is_ending:
                yield _sse(StreamNotice.RECONNECT, "{}")
                return
            yield await self._next_events() or HEARTBEAT
            if self._ended:
                return

    async def _look(self) -> tuple[str, bool]:
        """Ask the database; return what to send and whether the stream goes on."""
        try:
            found = await self._plan.look()
        except NoLongerAllowedError:
            return str(sse_encode_error("forbidden", "You may no longer listen here.")), False
        except UnconfirmedError:
            if self._now() - self._confirmed_at > UNCONFIRMED_SECONDS:
                return _sse(StreamNotice.RECONNECT, "{}"), False
            self._look_at = self._now() + RECHECK_SECONDS / 6
            return "", True
        self._confirmed_at = self._now()
        self._look_at = self._now() + RECHECK_SECONDS
        return self._snapshot_text(found.snapshot), not found.ended

    def _snapshot_text(self, form: SnapshotForm | None) -> str:
        """Return the snapshot when it is the first, or newer than every event that came."""
        if form is None or (self._seq and form["seq"] <= self._seq):
            return ""
        self._seq = form["seq"]
        return _sse(EventType.SNAPSHOT, json.dumps(form))

    async def _next_events(self) -> str:
        """Wait for events up to the next heartbeat; return them as text, empty if none came."""
        due = min(self._look_at, self._ends_at) - self._now()
        seconds = min(runtime().stream_heartbeat_seconds, due)
        if not await listening.set_within(self._listener.aevent, seconds):
            return ""
        return "".join(self._text(event) for event in self._manager.take(self._listener))

    def _text(self, event: Event) -> str:
        if event.type == StreamNotice.RESYNC:
            self._look_at = self._now()
            return _sse(event.type, event.data)
        if event.type in (TenantHint.TASK, TenantHint.INBOX):
            return _sse(event.type, event.data if self._plan.shows_tasks else "{}")
        form: Mapping[str, object] = json.loads(event.data)
        seq = form["seq"]
        if not isinstance(seq, int) or seq <= self._seq:
            return ""
        self._seq = seq
        self._ended = self._ended or event.type == EventType.TERMINAL
        return _sse(event.type, event.data)


def _sse(name: str, data: str) -> str:
    return str(sse_encode_event(name, data))
