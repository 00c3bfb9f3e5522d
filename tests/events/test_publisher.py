"""Rules: publishing costs the work nothing, is bounded, and tells the tenant at a quiet pace."""

import asyncio
import json
import os
import signal
import time
import uuid

import pytest

from runtime_project.local.redis_server import EmbeddedRedis
from tasks_app.events import publisher, transport
from tasks_app.events.catalogue import MAX_PUSHED_BYTES, PushedEvent
from tasks_app.events.channels import inbox_channel, task_channel, tasks_channel
from tasks_app.events.listening import SupervisedListenerManager
from tests.events.conftest import Ear

TENANT, TASK = uuid.uuid4(), uuid.uuid4()


def _publish(count: int, *, first: int = 1, kind: str = "progress") -> None:
    for seq in range(first, first + count):
        publisher.publish(TENANT, TASK, seq, kind, 0.5, "review", 3)


def test_events_arrive_in_order_with_the_light_form(manager: SupervisedListenerManager) -> None:
    """A listener gets every event once, in order, with exactly the five fields."""

    async def scenario() -> list[tuple[str, str]]:
        ear = Ear(manager, task_channel(TASK))
        await ear.connected()
        _publish(300)
        heard: list[tuple[str, str]] = []
        while len(heard) < 300:
            heard += await ear.hear()
        return heard

    heard = asyncio.run(scenario())
    forms = [json.loads(data) for _, data in heard]
    assert [form["seq"] for form in forms] == list(range(1, 301))
    assert forms[0] == {
        "seq": 1,
        "type": "progress",
        "progress": 0.5,
        "phase": "review",
        "version": 3,
    }


def test_tenant_hears_of_a_busy_task_at_most_once_in_two_seconds(
    manager: SupervisedListenerManager,
) -> None:
    """Of 200 events the tenant's list hears the first at once and the last when it is due."""

    async def scenario() -> list[tuple[str, str]]:
        tenant, task = uuid.uuid4(), uuid.uuid4()
        ear = Ear(manager, tasks_channel(tenant))
        await ear.connected()
        for seq in range(200):
            publisher.publish(tenant, task, seq, "progress", seq / 200, "", 1)
        assert await asyncio.to_thread(publisher.flush, 10)
        heard: list[tuple[str, str]] = []
        while len(heard) < 2:
            heard += await ear.hear()
        return heard

    heard = asyncio.run(scenario())
    assert [kind for kind, _ in heard] == ["task", "task"]
    assert json.loads(heard[-1][1])["progress"] == 199 / 200


def test_inbox_hears_questions_but_no_progress(manager: SupervisedListenerManager) -> None:
    """Only what may open or close a question reaches the inbox channel."""

    async def scenario() -> list[tuple[str, str]]:
        ear = Ear(manager, inbox_channel(TENANT))
        await ear.connected()
        _publish(5)
        _publish(1, first=6, kind="input_required")
        return await ear.hear()

    [(kind, data)] = asyncio.run(scenario())
    assert (kind, json.loads(data)["type"]) == ("inbox", "input_required")


def test_flush_tells_when_nothing_is_left(manager: SupervisedListenerManager) -> None:
    """`flush` returns True once all is sent, also without any listener."""
    _publish(50)
    assert publisher.flush(10)


def test_nothing_is_sent_where_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a subscription no event is encoded; the snapshot of a later reader tells it all."""
    sent: list[object] = []
    monkeypatch.setattr(transport, "is_anybody_listening", lambda: False)
    monkeypatch.setattr(transport, "send", sent.append)
    _publish(50)
    assert publisher.flush(10)
    assert sent == []


def test_what_gathers_goes_in_few_round_trips(
    manager: SupervisedListenerManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A burst costs a few round trips, not one for each event."""
    batches: list[int] = []
    send = transport.send

    def counted(messages: list[transport.Message]) -> None:
        batches.append(len(messages))
        send(messages)

    async def scenario() -> None:
        ear = Ear(manager, task_channel(TASK))
        await ear.connected()
        monkeypatch.setattr(transport, "send", counted)
        _publish(1000)
        assert await asyncio.to_thread(publisher.flush, 10)

    asyncio.run(scenario())
    assert sum(batches) >= 1000
    assert len(batches) < 100


def test_redis_down_costs_the_caller_nothing_and_loses_the_oldest(
    killable_redis: EmbeddedRedis, manager: SupervisedListenerManager
) -> None:
    """With Redis gone, 5,000 events are taken at once and the queue stays bounded."""
    killable_redis.stop()
    began = time.perf_counter()
    _publish(5000)
    assert time.perf_counter() - began < 2
    assert len(publisher._publisher._queue) <= publisher.MAX_QUEUED
    assert publisher.flush(30), "refused connections are given up quickly"


def test_redis_hung_costs_the_caller_nothing(
    killable_redis: EmbeddedRedis, manager: SupervisedListenerManager
) -> None:
    """A frozen Redis delays no caller; after it wakes, later events arrive."""
    assert killable_redis.process is not None

    async def scenario() -> list[str]:
        ear = Ear(manager, task_channel(TASK))
        await ear.connected()
        killable_redis.process.send_signal(signal.SIGSTOP)
        try:
            began = time.perf_counter()
            _publish(1000)
            assert time.perf_counter() - began < 1
        finally:
            killable_redis.process.send_signal(signal.SIGCONT)
        assert await asyncio.to_thread(publisher.flush, 20)
        _publish(1, first=2000, kind="terminal")
        return await ear.hear_until("terminal")

    assert asyncio.run(scenario())[-1] == "terminal"


def test_forked_child_publishes_with_a_queue_of_its_own(
    manager: SupervisedListenerManager,
) -> None:
    """After a fork the child sends its own events and none of the parent's again."""

    async def scenario() -> list[tuple[str, str]]:
        ear = Ear(manager, task_channel(TASK))
        await ear.connected()
        _publish(1)
        assert await asyncio.to_thread(publisher.flush, 10)
        await asyncio.to_thread(_publish_in_child)
        heard: list[tuple[str, str]] = []
        while len(heard) < 2:
            heard += await ear.hear()
        return heard

    heard = asyncio.run(scenario())
    assert [json.loads(data)["seq"] for _, data in heard] == [1, 2]


def _publish_in_child() -> None:
    pid = os.fork()
    if pid == 0:
        _publish(1, first=2)
        os._exit(0 if publisher.flush(10) else 1)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize("phase", ["x" * 5000, "审" * 5000, "😀" * 5000, '"' * 5000])
def test_pushed_form_keeps_to_its_limit(phase: str) -> None:
    """However long and in whatever script, the pushed JSON has at most 1 kB."""
    event = PushedEvent(TENANT, TASK, 2**62, "steering.applied", 1 / 3, phase, 2**31)
    assert len(json.dumps(event.task_form())) <= MAX_PUSHED_BYTES
    assert len(json.dumps(event.task_form())) > MAX_PUSHED_BYTES - 12
