"""Runs of one thread against each other: one slot, nobody forgotten (S1, S2, S17, S18)."""

from typing import Any

import pytest

from tasks_app.admission import runs, threads
from tasks_app.domain.errors import ThreadBusyError
from tasks_app.domain.run_bodies import parse
from tasks_app.models import Run, Task, Thread
from tests.races.actors import Actor, together
from tests.support.engine import Engine
from tests.support.syncdir import SyncDir

SAY = {"op": "say", "text": "hello"}


@pytest.fixture(autouse=True)
def thread(engine: Engine) -> None:
    threads.create_thread(engine.submitter, key="talk", metadata={})


def create(engine: Engine, key: str | None = None, **body: Any) -> runs.CreatedRun:
    whole = {"assistant_id": "scripted", "input": {"script": [SAY]}, **body}
    return runs.create_run(
        engine.submitter, thread_key="talk", body=parse(whole), idempotency_key=key
    )


def slots(engine: Engine) -> list[str]:
    rows = Run.objects.for_tenant(engine.tenant.id).order_by("number")
    return list(rows.values_list("slot", flat=True))


def test_one_of_many_gets_the_thread(engine: Engine) -> None:
    """S1: requests at the same moment make one run; the others leave nothing."""
    results = together([lambda: create(engine) for _ in range(6)])
    assert [isinstance(one, ThreadBusyError) for one in results].count(True) == 5
    assert Task.objects.for_tenant(engine.tenant.id).count() == 1


def test_one_key_makes_one_run(engine: Engine) -> None:
    """S2: all of them get the same run."""
    results = together([lambda: create(engine, "k") for _ in range(6)])
    assert len({one.task_id for one in results}) == 1
    assert [one.replayed for one in results].count(False) == 1


@pytest.mark.parametrize("name", [None, "new"])
def test_one_key_makes_one_thread(engine: Engine, name: str | None) -> None:
    """R29: whoever was overtaken leaves no thread behind."""
    whole = {"assistant_id": "scripted", "input": {"script": [SAY]}, "if_not_exists": "create"}

    def ask() -> runs.CreatedRun:
        return runs.create_run(
            engine.submitter, thread_key=name, body=parse(whole), idempotency_key="k"
        )

    results = together([ask for _ in range(6)])
    assert len({(one.task_id, one.thread_key) for one in results}) == 1
    keys = Thread.objects.for_tenant(engine.tenant.id).values_list("key", flat=True)
    assert sorted(keys) == sorted(["talk", results[0].thread_key])


def test_requests_that_wait_have_an_order(engine: Engine) -> None:
    """One of them is at work, the others wait, each with a number of its own."""
    together([lambda: create(engine, multitask_strategy="enqueue") for _ in range(6)])
    assert slots(engine) == ["holding", *["waiting"] * 5]


def test_run_that_comes_while_another_ends_is_not_forgotten(engine: Engine, sync: SyncDir) -> None:
    """S18: it sees the thread free, or is seen by the one that ends."""
    first = create(engine)
    sync.hold("finish.before_terminal")
    ending = Actor(lambda: engine.run(first.task_id))
    sync.wait_hit("finish.before_terminal", first.task_id)
    coming = Actor(lambda: create(engine, multitask_strategy="enqueue"))
    sync.release("finish.before_terminal")
    assert ending.result() == "completed"
    second = coming.result()
    assert slots(engine) == ["released", "holding"]
    assert engine.drive(second.task_id).status == "completed"


def test_three_who_interrupt_leave_one(engine: Engine) -> None:
    """S17: whatever their order, one of them is left and goes on."""
    first = create(engine)
    together([lambda: create(engine, multitask_strategy="interrupt") for _ in range(3)])
    left = Run.objects.for_tenant(engine.tenant.id).exclude(slot="released")
    assert left.count() == 1
    assert engine.task(first.task_id).status == "cancelled"
    assert engine.drive(left.get().pk).status == "completed"
