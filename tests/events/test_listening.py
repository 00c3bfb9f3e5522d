"""Rules: a listener survives outages of Redis (P16) and never loses events in silence (P17)."""

import asyncio
import json
import uuid

import pytest
from django_eventstream.event import Event

from runtime_project.local.processes import wait_until
from runtime_project.local.redis_server import EmbeddedRedis
from tasks_app.events import listening, publisher, transport
from tasks_app.events.channels import task_channel
from tasks_app.events.listening import SupervisedListenerManager
from tests.events.conftest import Ear

TENANT, TASK = uuid.uuid4(), uuid.uuid4()


def _publish(seq: int, kind: str = "progress") -> None:
    publisher.publish(TENANT, TASK, seq, kind, None, "", 1)


def test_outage_ends_in_a_resync_and_later_events(
    killable_redis: EmbeddedRedis, manager: SupervisedListenerManager
) -> None:
    """P16: Redis stopped and started again; the same listener hears `resync`, then new events."""

    async def scenario() -> list[str]:
        ear = Ear(manager, task_channel(TASK))
        await ear.connected()
        await asyncio.to_thread(killable_redis.stop)
        _publish(1)
        await asyncio.to_thread(publisher.flush, 10)
        await asyncio.to_thread(killable_redis.start)
        types = await ear.hear_until("resync")
        _publish(2, "terminal")
        return types + await ear.hear_until("terminal")

    assert asyncio.run(scenario()) == ["resync", "terminal"]


@pytest.mark.slow
def test_redis_absent_at_the_first_listener(
    killable_redis: EmbeddedRedis, manager: SupervisedListenerManager
) -> None:
    """A listener that came while Redis was away is told to look again once it is there."""
    killable_redis.stop()

    async def scenario() -> list[str]:
        ear = Ear(manager, task_channel(TASK))
        assert not await manager.wait_connected(ear.listener, 0.3)
        await asyncio.to_thread(killable_redis.start)
        types = await ear.hear_until("resync")
        _publish(1, "terminal")
        return types + await ear.hear_until("terminal")

    assert asyncio.run(scenario()) == ["resync", "terminal"]


def test_overflow_becomes_one_resync(manager: SupervisedListenerManager) -> None:
    """P17: a reader that is 3,000 events behind gets a resync and a bounded rest."""

    async def scenario() -> list[str]:
        ear = Ear(manager, task_channel(TASK))
        await ear.connected()
        # The loop is busy, so the listener cannot take anything meanwhile.
        for burst in range(3):
            for seq in range(1000):
                _publish(burst * 1000 + seq)
            assert publisher.flush(20)
        assert wait_until(lambda: _last_seq(ear) == 2999, seconds=20)
        types = [kind for kind, _ in await ear.hear()]
        _publish(3000, "terminal")
        return types + await ear.hear_until("terminal")

    types = asyncio.run(scenario())
    assert types[0] == "resync"
    assert types.count("resync") == 1
    assert len(types) <= listening.MAX_QUEUED + 2


def _last_seq(ear: Ear) -> int | None:
    queued: list[Event] = next(iter(ear.listener.channel_items.values()), [])
    last: int | None = json.loads(queued[-1].data).get("seq") if queued else None
    return last


def test_foreign_text_in_the_channel_is_passed_over(manager: SupervisedListenerManager) -> None:
    """Whatever else somebody publishes in Redis, the subscription goes on."""

    async def scenario() -> list[str]:
        ear = Ear(manager, task_channel(TASK))
        await ear.connected()
        with transport.connect() as client:
            for text in (b"\xff", b"[]", b"{}", b'{"channel": 1}', json.dumps("x").encode()):
                client.publish(transport.EVENTS_CHANNEL, text)
        _publish(1, "terminal")
        return await ear.hear_until("terminal")

    assert asyncio.run(scenario()) == ["terminal"]


def test_removed_listener_leaves_nothing_behind(manager: SupervisedListenerManager) -> None:
    """After the last listener of a channel has gone, the channel is forgotten."""

    async def scenario() -> None:
        ear = Ear(manager, task_channel(TASK))
        await ear.connected()
        manager.remove_listener(ear.listener)

    asyncio.run(scenario())
    assert manager.listeners_by_channel == {}
