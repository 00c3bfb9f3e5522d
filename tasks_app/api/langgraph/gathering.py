"""One visit to the database for all streams that were woken within a moment.

Two hundred streams with five hundred events a second would otherwise make five hundred visits.
"""

import asyncio
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async

from tasks_app.api.visits import short_visit
from tasks_app.queries.pulses import Pulse, Question, pulses_of

# After a visit the next one waits so long; who asks meanwhile goes together.
PAUSE_SECONDS = 0.02

_Asked = tuple[Question, asyncio.Future[Pulse | None]]


class Gatherer:
    """Collects what is asked on one event loop; the first after a pause is asked at once."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._asked: list[_Asked] = []
        self._visits: asyncio.Task[None] | None = None
        self._rests_until = 0.0

    async def ask(self, question: Question) -> Pulse | None:
        """Return what is new in a run, as `pulses_of`. Raises: django.db.Error."""
        answer: asyncio.Future[Pulse | None] = self._loop.create_future()
        self._asked.append((question, answer))
        if self._visits is None or self._visits.done():
            self._visits = self._loop.create_task(self._visit_all())
        return await answer

    async def _visit_all(self) -> None:
        while self._asked:
            await asyncio.sleep(self._rests_until - self._loop.time())
            asked, self._asked = self._asked, []
            await self._visit(asked)
            self._rests_until = self._loop.time() + PAUSE_SECONDS

    async def _visit(self, asked: list[_Asked]) -> None:
        visit = sync_to_async(short_visit(pulses_of), thread_sensitive=False)
        try:
            found = await visit([question for question, _ in asked])
        except Exception as error:  # noqa: BLE001 - each asker is told
            for _, answer in asked:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, answer), pulse in zip(asked, found, strict=True):
            # An asker may have gone meanwhile.
            if not answer.done():
                answer.set_result(pulse)


_gatherers: WeakKeyDictionary[asyncio.AbstractEventLoop, Gatherer] = WeakKeyDictionary()


def gatherer() -> Gatherer:
    """Return the running loop's."""
    loop = asyncio.get_running_loop()
    if loop not in _gatherers:
        _gatherers[loop] = Gatherer()
    return _gatherers[loop]
