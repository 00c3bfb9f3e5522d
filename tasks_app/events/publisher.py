"""Pushes committed events to whoever listens: best effort, never in the way of the work.

`publish` puts an event into a bounded queue and returns; one daemon thread a process sends what has
gathered in one round trip, at most fifty times a second. Redis down, slow or hung costs the caller
nothing: the oldest events are dropped, and readers notice the gap in `seq` and read the snapshot.
Call it after the commit of what it tells, never before.
"""

import atexit
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from itertools import takewhile
from uuid import UUID

from redis import ConnectionError as RedisConnectionError
from redis import RedisError

from tasks_app.events import transport
from tasks_app.events.catalogue import INBOX_TYPES, PushedEvent, TenantHint
from tasks_app.events.channels import inbox_channel, task_channel, tasks_channel
from tasks_app.events.pieces import PIECE, Piece, pieces_channel
from tasks_app.events.transport import Message

logger = logging.getLogger(__name__)

MAX_QUEUED = 2000
# After a round trip the next one waits so long: what comes meanwhile goes together.
SEND_PAUSE_SECONDS = 0.02
# A list of tasks is refreshed at most this often for one busy task (ux U9).
TENANT_PAUSE_SECONDS = 2.0
# While Redis is away, say so this often and not for every event.
COMPLAINT_PAUSE_SECONDS = 60.0
EXIT_FLUSH_SECONDS = 1.0
# Where nobody listens nothing is tried for so long: a worker without Redis has better to do.
AWAY_PAUSE_SECONDS = 0.25


class Publisher:
    """A bounded queue with one sending thread, started at first use and after a fork."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        # Set while somebody waits for `flush`: then nothing is put off.
        self._hurry = threading.Event()
        self._queue: deque[PushedEvent | Message] = deque(maxlen=MAX_QUEUED)
        # Newest event of each task that waits for its turn on the tenant's channel.
        self._held: dict[UUID, PushedEvent] = {}
        self._tenant_due: dict[UUID, float] = {}
        self._thread: threading.Thread | None = None
        self._sending = False
        self._flushing = 0
        self._complained_at = -COMPLAINT_PAUSE_SECONDS
        self._lost = 0
        self._away_until = 0.0

    def put(self, event: PushedEvent | Message) -> None:
        """Queue an event; drops the oldest one when full. Never raises, never waits for Redis.

        A message as it is, such as a piece of what a task says, drops no event: it is left out
        when half of the queue is taken.
        """
        with self._changed:
            if not isinstance(event, PushedEvent) and len(self._queue) > MAX_QUEUED // 2:
                return
            if len(self._queue) == MAX_QUEUED:
                self._lost += 1
            self._queue.append(event)
            if self._thread is None:
                self._start()
            self._changed.notify_all()

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until everything queued was sent or given up; return whether that was reached.

        Events held back for a tenant's channel are sent at once.
        """
        with self._changed:
            self._flushing += 1
            self._hurry.set()
            self._changed.notify_all()
            try:
                return self._changed.wait_for(self._is_idle, timeout_seconds)
            finally:
                self._flushing -= 1
                if not self._flushing:
                    self._hurry.clear()

    def _is_idle(self) -> bool:
        return not self._queue and not self._held and not self._sending

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="event-publisher", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The interpreter is ending or out of threads; the journal has the event.
            logger.warning("publisher.no_thread")
        else:
            self._thread = thread

    def _run(self) -> None:
        while True:
            with self._changed:
                self._sending = False
                self._changed.notify_all()
                self._changed.wait_for(self._has_work, self._seconds_to_next_due())
                self._sending = True
                events = list(self._queue)
                self._queue.clear()
                due = self._take_due(ending=self._flushing > 0 and not events)
            if events or due:
                self._send(events, due)
                self._hurry.wait(SEND_PAUSE_SECONDS)

    def _has_work(self) -> bool:
        return bool(self._queue) or (bool(self._held) and self._flushing > 0)

    def _seconds_to_next_due(self) -> float | None:
        first = next(iter(self._tenant_due.values()), None)
        return None if first is None else max(0.0, first - time.monotonic())

    def _take_due(self, *, ending: bool) -> list[PushedEvent]:
        """Remove and return the held events whose time has come; forget pauses that are over.

        `_tenant_due` is in order of time, since every pause has the same length.
        """
        now = time.monotonic()
        taken = []
        for task_id, due in list(self._tenant_due.items()) if ending else self._over(now):
            event = self._held.pop(task_id, None)
            if event is not None:
                taken.append(event)
            if event is not None or due <= now:
                del self._tenant_due[task_id]
        for event in taken:
            self._tenant_due[event.task_id] = now + TENANT_PAUSE_SECONDS
        return taken

    def _over(self, now: float) -> list[tuple[UUID, float]]:
        return list(takewhile(lambda pause: pause[1] <= now, self._tenant_due.items()))

    def _messages(self, events: Sequence[PushedEvent | Message]) -> list[Message]:
        """Return what to send now; what a tenant hears of a busy task later is held."""
        told: list[Message] = []
        # A tenant's channels say where to look: the newest event of each task says it all.
        hints: dict[tuple[str, UUID], Message] = {}
        now = time.monotonic()
        for event in events:
            if not isinstance(event, PushedEvent):
                told.append(event)
                continue
            told.append((task_channel(event.task_id), event.type, event.task_form()))
            if event.type in INBOX_TYPES:
                inbox = inbox_channel(event.tenant_id)
                hints[inbox, event.task_id] = (inbox, TenantHint.INBOX, event.tenant_form())
            if event.task_id in self._tenant_due:
                self._held[event.task_id] = event
            else:
                self._tenant_due[event.task_id] = now + TENANT_PAUSE_SECONDS
                hint = _task_hint(event)
                hints[hint[0], event.task_id] = hint
        return [*told, *hints.values()]

    def _send(self, events: Sequence[PushedEvent | Message], due: Sequence[PushedEvent]) -> None:
        if time.monotonic() < self._away_until:
            self._lost += len(events)
            return
        try:
            if transport.is_anybody_listening():
                transport.send([*self._messages(events), *map(_task_hint, due)])
        except (RedisError, OSError) as error:
            if isinstance(error, RedisConnectionError):
                self._away_until = time.monotonic() + AWAY_PAUSE_SECONDS
            self._complain(error, len(events))
        except Exception:  # the thread must outlive any single event
            logger.exception("publisher.events_refused")

    def _complain(self, error: Exception, lost: int) -> None:
        self._lost += lost
        now = time.monotonic()
        if now - self._complained_at >= COMPLAINT_PAUSE_SECONDS:
            self._complained_at = now
            logger.warning(
                "publisher.redis_unavailable",
                extra={"error": type(error).__name__, "lost": self._lost},
            )


def _task_hint(event: PushedEvent) -> Message:
    return (tasks_channel(event.tenant_id), TenantHint.TASK, event.tenant_form())


_publisher = Publisher()


def publish(
    tenant_id: UUID,
    task_id: UUID,
    seq: int,
    type: str,  # noqa: A002 - the event's field has this name everywhere
    progress: float | None,
    phase: str,
    version: int,
) -> None:
    """Tell listeners that an event was committed. Never raises and never waits.

    Args:
        tenant_id: whose task it is.
        task_id: the task.
        seq: the event's number in the task's journal.
        type: one of `catalogue.EventType`.
        progress: 0 to 1, or None while the total is unknown.
        phase: short name of what the task does now; cut when the form would grow too large.
        version: the task's `state_version` after the event.
    """
    _publisher.put(PushedEvent(tenant_id, task_id, seq, str(type), progress, phase, version))


def publish_piece(task_id: UUID, piece: Piece) -> None:
    """Show listeners a piece of a message that is still being said. Never raises and never waits."""
    _publisher.put((pieces_channel(task_id), PIECE, piece.form()))


def flush(timeout_seconds: float) -> bool:
    """Wait until every published event was sent or given up; return whether that was reached."""
    return _publisher.flush(timeout_seconds)


def _start_anew() -> None:
    """Give a forked child its own empty queue: threads and locks do not survive a fork."""
    global _publisher
    _publisher = Publisher()


os.register_at_fork(after_in_child=_start_anew)
atexit.register(lambda: _publisher.flush(EXIT_FLUSH_SECONDS))
