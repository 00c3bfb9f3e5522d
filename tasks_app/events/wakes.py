"""Wakes a reader of a task's journal: at once when an event was pushed, by the clock otherwise.

What was pushed is not looked at: the reader asks the database, so nothing can be lost on the way.
Only pieces of messages, which no database has, are handed on.
"""

from dataclasses import dataclass
from types import TracebackType
from typing import Self
from uuid import UUID

from django_eventstream.views import Listener

from tasks_app.events import ending, listening
from tasks_app.events.channels import task_channel
from tasks_app.events.pieces import PIECE, Piece, parse, pieces_channel

SUBSCRIBE_SECONDS = 1.0
# How often a reader looks by itself while Redis is away.
POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Heard:
    """What ended a wait; `is_new` unless it was nothing but pieces of messages."""

    pieces: tuple[Piece, ...]
    is_new: bool


class Waker:
    """Listens to one task while it is entered; to what it is saying, too, if asked to."""

    def __init__(self, task_id: UUID, *, hears_pieces: bool = False) -> None:
        self._channels = {task_channel(task_id)}
        if hears_pieces:
            self._channels.add(pieces_channel(task_id))
        self._manager = listening.manager()

    async def __aenter__(self) -> Self:
        self._listener = Listener()
        self._listener.channels = self._channels
        self._listener.assign_loop()
        ending.watch()
        self._manager.add_listener(self._listener)
        try:
            await self._manager.wait_connected(self._listener, SUBSCRIBE_SECONDS)
        except BaseException:
            self._manager.remove_listener(self._listener)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._manager.remove_listener(self._listener)

    @property
    def is_ending(self) -> bool:
        """Tell whether this server was told to stop."""
        return self._manager.is_ending

    async def wait(self, seconds: float) -> Heard:
        """Wait for something new, at most so long."""
        if not self._manager.is_connected:
            seconds = min(seconds, POLL_SECONDS)
        await listening.set_within(self._listener.aevent, seconds)
        heard = self._manager.take(self._listener)
        said = [event for event in heard if event.type == PIECE]
        pieces = filter(None, (parse(event.data) for event in said))
        return Heard(tuple(pieces), is_new=not said or len(said) < len(heard))
