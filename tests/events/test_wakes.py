"""Rules: a reader is woken at once by an event, and by the clock while Redis is away (R50)."""

import asyncio
import time
from uuid import uuid4

import pytest

from runtime_project.local.redis_server import EmbeddedRedis
from tasks_app.events import publisher
from tasks_app.events.listening import SupervisedListenerManager
from tasks_app.events.wakes import POLL_SECONDS, Waker

pytestmark = pytest.mark.django_db


def test_an_event_wakes_at_once(manager: SupervisedListenerManager) -> None:
    """Far sooner than the reader would look by itself."""
    task_id = uuid4()

    async def wait() -> float:
        async with Waker(task_id) as waker:
            publisher.publish(uuid4(), task_id, 1, "progress", None, "", 1)
            began = time.monotonic()
            await waker.wait(20)
            return time.monotonic() - began

    assert asyncio.run(wait()) < 10
    assert manager.listeners_by_channel == {}


@pytest.mark.slow
def test_the_clock_wakes_while_redis_is_away(
    manager: SupervisedListenerManager, killable_redis: EmbeddedRedis
) -> None:
    """What happens meanwhile is found a second later."""
    killable_redis.stop()

    async def wait() -> float:
        async with Waker(uuid4()) as waker:
            began = time.monotonic()
            await waker.wait(20)
            return time.monotonic() - began

    assert POLL_SECONDS * 0.9 <= asyncio.run(wait()) < 10


@pytest.mark.parametrize("turns", range(3))
def test_a_hang_up_is_heard_though_an_event_comes_with_it(
    manager: SupervisedListenerManager, turns: int
) -> None:
    """Whichever turn of the loop it falls in; asyncio.wait_for of Python 3.11 would forget it."""

    async def wait() -> bool:
        async with Waker(uuid4()) as waker:
            reader = asyncio.create_task(waker.wait(20))
            [[listener]] = manager.listeners_by_channel.values()
            await _turns(3)  # Until it waits.
            listener.aevent.set()
            await _turns(turns)
            came_first = reader.done()
            reader.cancel()
            await asyncio.wait([reader])
            return came_first or reader.cancelled()

    assert asyncio.run(wait())


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
