"""The schedules that expose a wrong run, in one process: actors ordered by sync points.

Named after the runs contract, section 10 (S…) and 12 (F…); `tests/architecture/test_schedules.py`
tells where each of them is held.
"""

import time
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now

from ledger_app.queries import find_receipt, total_usage
from runtime_project.local.processes import wait_until
from tasks_app.admission import runs, threads
from tasks_app.domain.errors import (
    IdempotencyMismatchError,
    NoPendingInterruptError,
    RunFinishedError,
    ThreadBusyError,
    VersionConflictError,
)
from tasks_app.domain.run_bodies import parse
from tasks_app.engine import session, slice_runner, transitions
from tasks_app.models import Event, Run, Slice, Task
from tasks_app.queries.conversations import events_between
from tasks_app.queries.runs import get_head
from tests.races.actors import PATIENCE_SECONDS, Actor, waiting
from tests.support.engine import Engine
from tests.support.syncdir import SyncDir

SAY = {"op": "say", "text": "hello", "tokens": [10, 2], "call_id": "one"}
ASK = {"op": "interrupt", "value": "go on?"}


@pytest.fixture(autouse=True)
def thread(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    # As in production: a slice looks for commands only so often.
    monkeypatch.setattr(session, "LOOK_SECONDS", 0.05)
    threads.create_thread(engine.submitter, key="talk", metadata={})


def created(
    engine: Engine, *script: dict[str, Any], key: str | None = None, **body: Any
) -> runs.CreatedRun:
    whole = {"assistant_id": "scripted", "input": {"script": list(script) or [SAY]}, **body}
    return runs.create_run(
        engine.submitter, thread_key="talk", body=parse(whole), idempotency_key=key
    )


def start(engine: Engine, *script: dict[str, Any], **more: Any) -> UUID:
    return created(engine, *script, **more).task_id


def cancel(engine: Engine, task_id: UUID, action: str = "interrupt") -> str:
    return runs.cancel_run(engine.submitter, task_id=task_id, action=action)


def usage(engine: Engine, task_id: UUID) -> int:
    rows = total_usage(tenant_id=engine.tenant.id, task_ids=[task_id])
    return sum(row.input_tokens + row.output_tokens for row in rows)


def status(engine: Engine, task_id: UUID) -> str:
    return get_head(engine.submitter, task_id).status


def slot(engine: Engine, task_id: UUID) -> str:
    found: str = Run.objects.for_tenant(engine.tenant.id).get(pk=task_id).slot
    return found


def at_once(sync: SyncDir, point: str, *acts: Any) -> list[Any]:
    """Bring acts to one point, let them go on together, and return their results."""
    sync.hold(point)
    actors = [Actor(act) for act in acts]
    sync.wait_hit(point, count=len(acts))
    sync.release(point)
    return [actor.result() for actor in actors]


def test_s01_two_requests_make_one_run(engine: Engine, sync: SyncDir) -> None:
    """S1: both stand right before the insert; one is made, the other hears that the thread is busy."""
    results = at_once(sync, "admit.before_insert", lambda: created(engine), lambda: created(engine))
    assert sorted(type(one).__name__ for one in results) == ["CreatedRun", "ThreadBusyError"]
    assert Task.objects.for_tenant(engine.tenant.id).count() == 1


def test_s02_one_key_makes_one_run(engine: Engine, sync: SyncDir) -> None:
    """S2: both get it, it is built once, and the key refuses another input for ever."""
    first, second = at_once(
        sync, "admit.before_insert", lambda: created(engine, key="k"),
        lambda: created(engine, key="k"),
    )  # fmt: skip
    assert first.task_id == second.task_id
    assert sorted([first.replayed, second.replayed]) == [False, True]
    engine.drive(first.task_id)
    assert created(engine, key="k").task_id == first.task_id
    assert len(sync.hits("build.before", first.task_id)) == 1
    with pytest.raises(IdempotencyMismatchError):
        created(engine, SAY, SAY, key="k")


@pytest.mark.parametrize("point", ["claim.before", "claim.after"])
@pytest.mark.parametrize("form", ["plan", "function"])
def test_s04_s05_f1_a_run_that_was_cancelled_is_not_built(
    engine: Engine, sync: SyncDir, point: str, form: str
) -> None:
    """S4, S5, F1: the cancel comes before the worker has begun, and the run never begins."""
    body = {"assistant_id": "scripted.loop", "input": {"turns": 1}} if form == "function" else {}
    task_id = start(engine, **body)
    sync.hold(point)
    worker = Actor(lambda: engine.run(task_id))
    sync.wait_hit(point, task_id)
    claimed_at = time.monotonic()
    cancel(engine, task_id)
    assert wait_until(
        lambda: time.monotonic() - claimed_at > session.LOOK_SECONDS, seconds=PATIENCE_SECONDS
    )
    sync.release(point)
    assert worker.result() in {"idle", "cancelled"}
    assert status(engine, task_id) == "interrupted"
    assert sync.hits("build.before", task_id) == []
    assert usage(engine, task_id) == 0
    receipt = find_receipt(tenant_id=engine.tenant.id, task_id=task_id)
    assert receipt is not None
    assert (receipt.outcome, receipt.items) == ("cancelled", [])


def test_s06_a_message_that_comes_three_times_starts_one_slice(
    engine: Engine, sync: SyncDir
) -> None:
    """S6: three workers stand before the claim; one of them gets the run."""
    task_id = start(engine)
    sync.hold("claim.before")
    workers = [Actor(lambda: slice_runner.run_slice(task_id)) for _ in range(3)]
    sync.wait_hit("claim.before", task_id, count=3)
    sync.release("claim.before")
    assert sorted(worker.result() for worker in workers) == ["completed", "idle", "idle"]
    assert len(sync.hits("claim.after", task_id)) == 1
    assert Slice.objects.for_tenant(engine.tenant.id).filter(task_id=task_id).count() == 1


def test_s07_a_cancel_that_was_accepted_never_ends_in_success(
    engine: Engine, sync: SyncDir
) -> None:
    """S7: before the terminal commit it wins, whatever was done; after it, the run has finished."""
    task_id = start(engine)
    sync.hold("finish.before_receipt")
    worker = Actor(lambda: engine.run(task_id))
    sync.wait_hit("finish.before_receipt", task_id)
    cancel(engine, task_id)
    sync.release("finish.before_receipt")
    worker.result()
    assert status(engine, task_id) == "interrupted"

    task_id = start(engine)
    sync.hold("finish.before_terminal")
    worker = Actor(lambda: engine.run(task_id))
    sync.wait_hit("finish.before_terminal", task_id)
    person = Actor(lambda: cancel(engine, task_id))
    assert wait_until(lambda: waiting() == 1, seconds=PATIENCE_SECONDS)
    sync.release("finish.before_terminal")
    assert isinstance(person.result(), RunFinishedError)
    assert worker.result() == "completed"
    assert status(engine, task_id) == "success"


def test_s12_no_event_is_passed_over(engine: Engine, sync: SyncDir) -> None:
    """S12: the second writer waits for the first; a reader who asks meanwhile sees neither."""
    task_id = start(engine, ASK)
    engine.drive(task_id)
    seen = get_head(engine.submitter, task_id).seq

    def write(text: str) -> None:
        with transaction.atomic():
            transitions.append_event(task_id, engine.tenant.id, "log", {"message": text})

    def told(after: int) -> list[str]:
        up_to = get_head(engine.submitter, task_id).seq
        events = events_between(engine.submitter, task_id, after=after, up_to=up_to)
        return [event.data["message"] for event in events]

    passed = len(sync.hits("event.after_seq", task_id))
    sync.hold("event.after_seq", task_id, at=[passed + 1])
    first = Actor(lambda: write("one"))
    sync.wait_hit("event.after_seq", task_id, count=passed + 1)
    second = Actor(lambda: write("two"))
    assert wait_until(lambda: waiting() == 1, seconds=PATIENCE_SECONDS)
    assert told(seen) == []
    sync.release("event.after_seq", task_id)
    assert (first.result(), second.result()) == (None, None)
    assert told(seen) == ["one", "two"]


def test_s14_an_id_from_outside_is_nobodys_key(engine: Engine, sync: SyncDir) -> None:
    """S14: two parents use one id; each gets its own result, and a cancel ends only its own child."""
    threads.create_thread(engine.submitter, key="other", metadata={})

    def parent(key: str, text: str, *more: dict[str, Any]) -> UUID:
        child = {
            "op": "task", "external_id": "call",
            "script": [{"op": "set", "values": {"said": text}}, *more],
        }  # fmt: skip
        body = {"assistant_id": "scripted", "input": {"script": [child]}}
        return runs.create_run(engine.submitter, thread_key=key, body=parse(body)).task_id

    parents = [parent("talk", "a", ASK), parent("other", "b")]
    sync.hold("sub.registered")
    workers = [Actor(lambda task_id=task_id: engine.run(task_id)) for task_id in parents]  # type: ignore[misc]
    rows = Task.objects.for_tenant(engine.tenant.id)
    assert wait_until(
        lambda: rows.filter(parent_id__in=parents).count() == 2, seconds=PATIENCE_SECONDS
    )
    children = [rows.get(parent_id=task_id).id for task_id in parents]
    for child_id in children:
        sync.wait_hit("sub.registered", child_id)
    sync.release("sub.registered")
    assert [worker.result() for worker in workers] == ["child", "child"]
    engine.drive(children[0])
    cancel(engine, parents[0])
    assert engine.task(children[0]).status == "cancelled"
    assert engine.task(children[1]).status == "queued"
    engine.drive(children[1])
    assert engine.drive(parents[1]).result == {"said": "b"}
    answers = Event.objects.for_tenant(engine.tenant.id).filter(type="message")
    assert [row.task_id for row in answers] == [parents[1]]


def test_s16_a_child_whose_time_is_over_stays_timed_out(
    engine: Engine, sync: SyncDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S16: it is held beyond its time, then would complete; what it used before counts once."""
    child = {"op": "task", "script": [{**SAY, "impure": True}, ASK, SAY], "timeout_s": 3600,
             "on_failure": "skip", "external_id": "call"}  # fmt: skip
    parent_id = start(engine, child)
    engine.run(parent_id)
    child_id = Task.objects.for_tenant(engine.tenant.id).get(parent_id=parent_id).id
    engine.drive(child_id)
    engine.steer(child_id, "provide_input", payload={"answer": True})
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE tasks_app_task SET deadline_at = clock_timestamp() + interval '0.3 s'"
            " WHERE id = %s", [child_id],
        )  # fmt: skip
    passed = len(sync.hits("sub.before_run", child_id))
    sync.hold("sub.before_run", child_id)
    worker = Actor(lambda: engine.run(child_id))
    sync.wait_hit("sub.before_run", child_id, count=passed + 1)
    late = Task.objects.for_tenant(engine.tenant.id).filter(pk=child_id, deadline_at__lt=Now())
    assert wait_until(late.exists, seconds=PATIENCE_SECONDS)
    sync.release("sub.before_run", child_id)
    worker.result()
    task = engine.task(child_id)
    assert (task.status, task.stop_reason) == ("failed", "max_duration")
    assert engine.drive(parent_id).status == "completed"
    ends = Event.objects.for_tenant(engine.tenant.id).filter(task_id=parent_id, type="child")
    assert ends.order_by("-seq")[0].data["status"] == "timed_out"
    assert usage(engine, child_id) == 12


def test_s17_who_interrupts_waits_for_the_end_of_the_other(engine: Engine, sync: SyncDir) -> None:
    """S17: A is at work, B comes, C comes; B is never built, and C begins behind A's end."""
    first = start(engine, SAY, SAY)
    sync.hold("step.before", first, at=[2])
    worker = Actor(lambda: engine.run(first))
    sync.wait_hit("step.before", first, count=2)
    second = start(engine, multitask_strategy="interrupt")
    third = start(engine, multitask_strategy="interrupt")
    assert engine.run(third) == "idle"
    assert slot(engine, first) == "holding"
    sync.release("step.before", first)
    worker.result()
    assert [status(engine, one) for one in (first, second)] == ["interrupted", "interrupted"]
    assert engine.drive(third).status == "completed"
    assert sync.hits("build.before", second) == []
    assert len(sync.hits("build.before", third)) == 1
    after = Task.objects.for_tenant(engine.tenant.id).filter(
        pk=third, started_at__gt=engine.task(first).finished_at
    )
    assert after.exists()


def test_s18_the_slot_is_never_lost(engine: Engine, sync: SyncDir) -> None:
    """S18: C is cancelled while it waits, A's worker breaks right after A's end; B and D run."""
    first, second, third, fourth = (start(engine, multitask_strategy="enqueue") for _ in range(4))
    sync.hold("finish.before_receipt", first)
    worker = Actor(lambda: engine.run(first))
    sync.wait_hit("finish.before_receipt", first)
    cancel(engine, third)
    sync.fail("finish.after_terminal", 1)
    sync.release("finish.before_receipt", first)
    assert type(worker.result()).__name__ == "SyncPointFailureError"
    for task_id in (second, fourth):
        assert slot(engine, task_id) == "holding"
        assert engine.drive(task_id).status == "completed"
    assert sync.hits("build.before", third) == []


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["enqueue", "reject"])
def test_s18_who_comes_while_the_slot_passes_on_is_not_at_work_as_well(
    engine: Engine, sync: SyncDir, strategy: str
) -> None:
    """S18: it has waited for the end of A, by which B got the slot: it waits behind B, or is refused."""
    first = start(engine)
    second = start(engine, multitask_strategy="enqueue")
    sync.hold("finish.before_terminal", first)
    worker = Actor(lambda: engine.run(first))
    sync.wait_hit("finish.before_terminal", first)
    with transaction.atomic():
        runs_of = Run.objects.for_tenant(engine.tenant.id).filter(pk=first)
        list(runs_of.select_for_update(no_key=True))
        sync.release("finish.before_terminal", first)
        assert wait_until(lambda: waiting() == 1, seconds=PATIENCE_SECONDS)
        coming = Actor(lambda: start(engine, multitask_strategy=strategy))
        assert wait_until(lambda: waiting() == 2, seconds=PATIENCE_SECONDS)
    assert worker.result() == "completed"
    third = coming.result()
    assert slot(engine, second) == "holding"
    if strategy == "reject":
        assert isinstance(third, ThreadBusyError)
    else:
        assert slot(engine, third) == "waiting"
        assert [engine.drive(one).status for one in (second, third)] == ["completed"] * 2


def test_s23_one_answer_of_two_counts(engine: Engine, sync: SyncDir) -> None:
    """S23: both saw the question; the run goes on once, with the first answer."""
    task_id = start(engine, ASK, SAY)
    engine.drive(task_id)
    body = parse({"assistant_id": "scripted", "command": {"resume": True}})

    def answer() -> Any:
        return runs.create_run(engine.submitter, thread_key="talk", body=body)

    passed = len(sync.hits("event.after_seq", task_id))
    sync.hold("event.after_seq", task_id)
    first = Actor(answer)
    sync.wait_hit("event.after_seq", task_id, count=passed + 1)
    second = Actor(answer)
    assert wait_until(lambda: waiting() == 1, seconds=PATIENCE_SECONDS)
    sync.release("event.after_seq", task_id)
    assert first.result().task_id == task_id
    assert isinstance(second.result(), VersionConflictError | NoPendingInterruptError)
    assert engine.drive(task_id).status == "completed"
    applied = Event.objects.for_tenant(engine.tenant.id).filter(
        task_id=task_id, type="steering.applied"
    )
    assert applied.count() == 1
