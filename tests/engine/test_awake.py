"""Rules: a message wakes a worker; a worker that is awake works on, and wakes the next one."""

from typing import Any
from uuid import UUID

import pytest
from celery import current_app

from tasks_app.engine import continuation, slice_runner
from tests.support.engine import Engine

SAY: dict[str, Any] = {"op": "say"}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """Collect whom messages name; in the broker nothing waits."""
    names: list[UUID] = []

    def take(_job: str, *, args: list[str], queue: str) -> None:
        assert queue == "slices"
        names.append(UUID(args[0]))

    monkeypatch.setattr(current_app, "send_task", take)
    monkeypatch.setattr(continuation, "count_waiting", lambda: 0)
    return names


def test_one_message_is_enough_for_all_that_is_due(engine: Engine, sent: list[UUID]) -> None:
    """A job goes on until nothing is due."""
    ids = [engine.submit(SAY) for _ in range(4)]
    assert slice_runner.run_due(ids[0]) == "completed"
    assert {engine.task(one).status for one in ids} == {"completed"}


def test_a_worker_that_finds_work_wakes_one_more(engine: Engine, sent: list[UUID]) -> None:
    """With more than one task due it sends one message, for a task that is due; alone it does not."""
    ids = [engine.submit(SAY) for _ in range(3)]
    sent.clear()
    slice_runner.run_due(ids[0])
    assert len(sent) == 1
    assert sent[0] in ids[1:]
    alone = engine.submit(SAY)
    sent.clear()
    slice_runner.run_due(alone)
    assert sent == []


def test_nobody_is_woken_twice(
    engine: Engine, sent: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that nobody has taken yet wakes the next worker; another one is not sent."""
    ids = [engine.submit(SAY) for _ in range(3)]
    sent.clear()
    monkeypatch.setattr(continuation, "count_waiting", lambda: 1)
    slice_runner.run_due(ids[0])
    assert sent == []


def test_a_job_ends_after_a_while_and_leaves_the_rest_to_the_next(
    engine: Engine, sent: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is due then has a message again."""
    monkeypatch.setattr(slice_runner, "AWAKE_SECONDS", 0.0)
    first, second = engine.submit(SAY), engine.submit(SAY)
    sent.clear()
    slice_runner.run_due(first)
    assert engine.task(second).status == "queued"
    assert sent[-1] == second


def test_a_job_that_breaks_leaves_the_rest_to_the_next(
    engine: Engine, sent: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slice that breaks ends its job; what else is due does not wait for the sweeper."""
    first, second = engine.submit(SAY), engine.submit(SAY)
    sent.clear()

    def breaks(*_: Any) -> Any:
        raise RuntimeError("a fault of our own")

    monkeypatch.setattr(slice_runner, "_run", breaks)
    with pytest.raises(RuntimeError):
        slice_runner.run_due(first)
    assert sent[-1] == second


def test_a_broker_that_is_away_stops_no_worker(
    engine: Engine, sent: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waking others is best effort."""
    ids = [engine.submit(SAY) for _ in range(2)]

    monkeypatch.setattr(continuation, "count_waiting", lambda: None)
    slice_runner.run_due(ids[0])
    assert {engine.task(one).status for one in ids} == {"completed"}
