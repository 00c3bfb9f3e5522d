"""One open stream of a run: what was missed, then what happens, then its end.

The journal is the truth and read again at every wake, for all streams that wake together; what
wakes is only a hint. A run that is out of sight is noticed at once, an ended credential or right
with the next question from time to time.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import Error as DatabaseFailure

from tasks_app.api.langgraph.door import CutShortError
from tasks_app.api.langgraph.frames import HEARTBEAT, Frames
from tasks_app.api.langgraph.gathering import gatherer
from tasks_app.api.langgraph.subagents import ChildEvents, Subagents, look_at_children
from tasks_app.conf import runtime
from tasks_app.domain.errors import RuntimeFault
from tasks_app.domain.principal import Principal
from tasks_app.domain.runs import is_over
from tasks_app.domain.states import TERMINAL
from tasks_app.events.wakes import POLL_SECONDS, Waker
from tasks_app.queries.conversations import events_between
from tasks_app.queries.events import EventRow
from tasks_app.queries.pulses import Question
from tasks_app.queries.runs import RunHead, get_head
from tasks_app.queries.thread_states import (
    Interrupt,
    base_values,
    fold,
    interrupts_of,
    values_of,
)
from tasks_app.syncpoints import reach

logger = logging.getLogger(__name__)

RECHECK_SECONDS = 30.0
# How many events one look may return; the rest comes with the next, at once.
BATCH = 500
# How many events end a run: its status, its delivery, its end.
ENDING = 3
TRIES = 3
_ASKING = "input_required"


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at a run found: where it stands, and its events after the cursor.

    `values` are there with the first look, and when the run has come to rest. `base` is there when
    the run got its turn since the look before: only then is known what it began with.
    """

    run: RunHead
    events: list[EventRow] = field(default_factory=list)
    base: dict[str, Any] | None = None
    values: dict[str, Any] | None = None
    interrupts: tuple[Interrupt, ...] = ()
    children: tuple[ChildEvents, ...] = ()

    @property
    def is_last(self) -> bool:
        """Tell whether the run is at rest and every event of it is here."""
        return self.run.is_over and (not self.events or self.events[-1].seq == self.run.seq)


@dataclass(frozen=True, slots=True)
class Feed:
    """What a stream carries: a run in some modes, from after an event on.

    Without a cursor it begins with the present values, in place of what was `missed` after an
    event too far back, if so. `values` are those at the cursor. `look` visits the database with the
    run as it was known and the cursor; `confirm` asks whether the credential still stands.
    """

    run: RunHead
    modes: tuple[str, ...]
    cursor: int | None
    values: dict[str, Any]
    look: Callable[[RunHead, int | None, Mapping[UUID, int] | None], Awaitable[Look]]
    confirm: Callable[[], Awaitable[None]]
    missed: int | None = None
    with_children: bool = False


def look_at(
    principal: Principal,
    since: datetime | None,
    run: RunHead,
    after: int | None,
    seen: Mapping[UUID, int] | None,
) -> Look:
    """Return what happened to a run after one of its events; first of all, its values.

    Args:
        since: when the last event happened that the reader saw, for the tasks that the run started.
        seen: the reader's cursors in those tasks; None for readers who do not follow them.

    The row tells the newest event, and all up to there are stored: one row is one point in time.
    Raises: NotFoundError when the run is no longer visible.
    """
    now = get_head(principal, run.task_id)
    if after is None:
        found = Look(
            now, values=dict(values_of(principal, now)), interrupts=interrupts_of(principal, now)
        )
        reach("stream.after_snapshot", run.task_id)
    else:
        found = _events_after(principal, run, now, after)
    if seen is not None:
        children = look_at_children(principal, now, seen, since)
        found = replace(found, children=tuple(children))
    reach("stream.before_send", run.task_id)
    return found


def _events_after(principal: Principal, run: RunHead, now: RunHead, after: int) -> Look:
    # The events that end a run are never parted: its values belong to all of them.
    up_to = now.seq if now.seq - after <= BATCH + ENDING else after + BATCH
    events = events_between(principal, run.task_id, after=after, up_to=up_to)
    has_begun = run.base_state_id is None and now.base_state_id is not None
    found = Look(now, events, base=base_values(principal, now) if has_begun else None)
    if not found.is_last:
        return found
    values = dict(values_of(principal, now))
    return replace(found, values=values, interrupts=interrupts_of(principal, now))


def values_at(principal: Principal, run: RunHead, seq: int) -> dict[str, Any]:
    """Return a run's values after one of its events."""
    return fold(principal, run, seq) if seq else base_values(principal, run)


class Stream:
    """The state of one running stream; `is_finished` once it has told the run's end."""

    def __init__(self, feed: Feed, waker: Waker) -> None:
        self._feed = feed
        self._waker = waker
        self._run = feed.run
        self._cursor = feed.cursor
        self._frames = Frames(feed.run, feed.modes, feed.values)
        self._children = Subagents(feed.run, feed.modes) if feed.with_children else None
        self._now = asyncio.get_running_loop().time
        self._confirmed_at = self._now()
        self._spoke_at = self._now()
        self.is_finished = False

    async def run(self) -> AsyncGenerator[str]:
        """Yield the frames; ends without `end` when the reader may not follow the run any more.

        Raises: CutShortError when this server stops or cannot read any more.
        """
        yield self._frames.opening()
        while True:
            found = await self._look()
            if found is None:
                return
            text = self._text(found)
            self._run = found.run
            if text:
                self._spoke_at = self._now()
                yield text
            if self.is_finished:
                return
            if self._waker.is_ending:
                raise CutShortError
            if found.run.seq == self._cursor:
                async with aclosing(self._rest()) as texts:
                    async for text in texts:
                        self._spoke_at = self._now()
                        yield text

    async def _rest(self) -> AsyncGenerator[str]:
        """Wait for something new; yield pieces of messages meanwhile, a heartbeat after silence."""
        beat = runtime().stream_heartbeat_seconds
        # Nothing wakes for what a child says.
        longest = beat if self._children is None else min(beat, POLL_SECONDS)
        until = self._now() + longest
        while True:
            speaks_at = self._spoke_at + beat
            heard = await self._waker.wait(min(until, speaks_at) - self._now())
            text = "".join(map(self._frames.piece, heard.pieces))
            if not text and self._now() - self._spoke_at >= beat:
                text = HEARTBEAT
            if text:
                yield text
            # However much is said, the right to hear it is asked for from time to time.
            if heard.is_new or self._waker.is_ending or self._now() >= until:
                return

    async def _look(self) -> Look | None:
        """Look at the run, if need be again; None when the reader may not see it any more."""
        for number in range(1, TRIES + 1):
            try:
                if self._now() - self._confirmed_at >= RECHECK_SECONDS:
                    await self._feed.confirm()
                    self._confirmed_at = self._now()
                return await self._pulse() or await self._full_look()
            except RuntimeFault:
                return None
            except DatabaseFailure as error:
                logger.warning("run_stream.unreadable", extra={"error": type(error).__name__})
                if number < TRIES:
                    await self._waker.wait(1.0)
        raise CutShortError

    async def _pulse(self) -> Look | None:
        """Return what is new together with what other streams ask; None when that is not enough.

        It is while the run merely goes on, and nobody follows what it started.
        """
        run = self._run
        if self._cursor is None or self._children is not None:
            return None
        pulse = await gatherer().ask(Question(run.tenant_id, run.task_id, self._cursor))
        if pulse is None or is_over(pulse.status):
            return None
        if (pulse.status, pulse.base_state_id) != (run.task_status, run.base_state_id):
            return None
        return Look(replace(run, seq=pulse.seq), pulse.events)

    async def _full_look(self) -> Look:
        seen = None if self._children is None else self._children.seen
        return await self._feed.look(self._run, self._cursor, seen)

    def _text(self, found: Look) -> str:
        parts = []
        if found.base is not None:
            self._frames.begin_with(found.base)
        if self._cursor is None:
            parts.append(self._begin(found))
        if self._children is not None:
            parts += [self._children.text(child) for child in found.children]
        for event in found.events:
            if found.values is not None and _is_end(event):
                self._frames.begin_with(found.values)
            is_open = found.is_last and event is found.events[-1]
            parts.append(self._frames.of(event, () if is_open else _asked_by(event)))
            self._cursor = event.seq
        if found.is_last:
            parts.append(self._frames.closing(found.run, found.values, found.interrupts))
            self.is_finished = True
        return "".join(parts)

    def _begin(self, found: Look) -> str:
        """Return the present values; those of a run that has ended stand before its last event."""
        run, values = found.run, found.values or {}
        self._cursor = run.seq
        self._frames.begin_with(values)
        mark: int | None = run.seq - 1 if run.is_terminal else run.seq
        parts = []
        if self._feed.missed is not None:
            earliest = max(1, run.seq - runtime().max_replayed_events + 1)
            parts.append(self._frames.gap(self._feed.missed, earliest, run.seq, mark))
            mark = None
        if run.is_terminal or not run.is_over:
            parts.append(self._frames.snapshot(values, mark))
        return "".join(parts)


def _is_end(event: EventRow) -> bool:
    return event.type == "status" and event.data.get("target") in TERMINAL


def _asked_by(event: EventRow) -> tuple[Interrupt, ...]:
    """Return what an event asked for that was answered since."""
    if event.type != _ASKING:
        return ()
    name = event.data.get("approvalId") or event.data.get("reason")
    return (Interrupt(str(name), dict(event.data)),)
