"""Runs of one thread: who goes, who waits, who is ended, and what each leaves (R25-R30, R58-R62)."""

from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from tasks_app.admission import runs, threads
from tasks_app.domain.errors import (
    IdempotencyMismatchError,
    NoPendingInterruptError,
    NotFoundError,
    QueueFullError,
    RunActiveError,
    RunFinishedError,
    ThreadBusyError,
    ThreadExistsError,
)
from tasks_app.domain.run_bodies import parse
from tasks_app.domain.runs import MAX_WAITING
from tasks_app.engine import recovery
from tasks_app.models import Run, Task, Thread, ThreadState
from tests.support.engine import Engine

SAY = {"op": "say", "text": "hello"}
ASK = {"op": "interrupt", "value": "go on?"}


@pytest.fixture
def thread(engine: Engine) -> Thread:
    return threads.create_thread(engine.submitter, key="talk", metadata={})


def start(engine: Engine, *script: dict[str, Any], key: str | None = None, **body: Any) -> UUID:
    return created(engine, *script, key=key, **body).task_id


def created(
    engine: Engine, *script: dict[str, Any], key: str | None = None, **body: Any
) -> runs.CreatedRun:
    given = body.pop("input", {})
    whole = {"assistant_id": "scripted", "input": {"script": list(script), **given}, **body}
    return runs.create_run(
        engine.submitter, thread_key="talk", body=parse(whole), idempotency_key=key
    )


def run_of(engine: Engine, task_id: UUID) -> Run:
    found: Run = Run.objects.for_tenant(engine.tenant.id).get(pk=task_id)
    return found


def slots(engine: Engine, *task_ids: UUID) -> list[str]:
    return [run_of(engine, task_id).slot for task_id in task_ids]


def head(engine: Engine, thread: Thread) -> dict[str, Any]:
    states = ThreadState.objects.for_tenant(engine.tenant.id).filter(thread_id=thread.id)
    values: dict[str, Any] = states.order_by("-seq")[0].values
    return values


def texts(values: dict[str, Any]) -> list[str]:
    return [f"{message['type']}: {message['content']}" for message in values["messages"]]


def test_second_run_of_a_busy_thread_is_refused(engine: Engine, thread: Thread) -> None:
    """R25: nothing of it is stored; after the end of the first one the thread is free."""
    first = start(engine, SAY)
    with pytest.raises(ThreadBusyError):
        start(engine, SAY)
    assert Task.objects.for_tenant(engine.tenant.id).count() == 1
    engine.drive(first)
    assert slots(engine, first, start(engine, SAY)) == ["released", "holding"]


def test_waiting_runs_go_in_order(engine: Engine, thread: Thread) -> None:
    """R26: the end of a run begins the next one; one that was cancelled meanwhile is passed over."""
    first, second, third, fourth = (
        start(engine, SAY, multitask_strategy="enqueue") for _ in range(4)
    )
    assert slots(engine, first, second, third, fourth) == ["holding", *["waiting"] * 3]
    assert engine.task(second).next_wake_at is None
    runs.cancel_run(engine.operator, task_id=third, action="interrupt")
    assert engine.task(third).status == "cancelled"
    engine.drive(first)
    assert slots(engine, second, third, fourth) == ["holding", "released", "waiting"]
    engine.drive(second)
    assert engine.drive(fourth).status == "completed"


def test_conversation_goes_on_from_run_to_run(engine: Engine, thread: Thread) -> None:
    """What people and runs say, and the values that runs set, are the thread's."""
    ask = {"messages": [{"type": "human", "content": "hi"}]}
    values = {"op": "set", "values": {"mood": "good", "n": 1}}
    engine.drive(start(engine, SAY, values, input=ask))
    again = start(engine, SAY, {"op": "set", "values": {"n": 2}}, input=ask)
    engine.drive(again)
    found = head(engine, thread)
    assert texts(found) == ["human: hi", "ai: hello", "human: hi", "ai: hello"]
    assert (found["mood"], found["n"], found["result"]) == ("good", 2, {"n": 2})
    assert run_of(engine, again).final_state.values == found


def test_queued_run_begins_with_what_the_one_before_it_left(engine: Engine, thread: Thread) -> None:
    """Its message joins the conversation when it begins, not when it was sent."""
    first = start(engine, SAY, input={"messages": [{"role": "user", "content": "one"}]})
    second = start(
        engine,
        SAY,
        input={"messages": [{"role": "user", "content": "two"}]},
        multitask_strategy="enqueue",
    )
    engine.drive(first)
    engine.drive(second)
    said = texts(head(engine, thread))
    assert said == ["human: one", "ai: hello", "human: two", "ai: hello"]


def test_interrupting_run_begins_after_the_end_of_the_one_at_work(
    engine: Engine, thread: Thread
) -> None:
    """R27: those that wait end at once, the one at work keeps what it did."""
    first = start(engine, SAY, {**SAY, "impure": True}, ASK)
    engine.drive(first)
    waiting = start(engine, SAY, multitask_strategy="enqueue")
    last = start(engine, SAY, multitask_strategy="interrupt")
    assert [engine.task(task_id).status for task_id in (first, waiting)] == ["cancelled"] * 2
    assert slots(engine, first, waiting, last) == ["released", "released", "holding"]
    assert run_of(engine, first).cancel_reason == "superseded"
    assert engine.task(first).stop_reason == "superseded"
    engine.drive(last)
    assert len(head(engine, thread)["messages"]) == 3


def test_rollback_leaves_what_was_before(engine: Engine, thread: Thread) -> None:
    """R28, R62: the newest state equals the one before the run, and the history keeps the rest."""
    engine.drive(start(engine, {"op": "set", "values": {"n": 1}}))
    before = head(engine, thread)
    second = start(engine, {"op": "set", "values": {"n": 2}}, ASK)
    engine.drive(second)
    third = start(engine, SAY, multitask_strategy="rollback")
    assert engine.task(second).status == "cancelled"
    assert head(engine, thread) == before
    engine.drive(third)
    assert head(engine, thread)["n"] == 1
    states = ThreadState.objects.for_tenant(engine.tenant.id).filter(thread_id=thread.id)
    assert [state.source for state in states.order_by("seq")] == ["run", "rollback", "run"]


def test_first_cancel_action_wins(engine: Engine, thread: Thread) -> None:
    """R58: a second action changes nothing, and a run that was cancelled can be told so again."""
    task_id = start(engine, SAY, ASK)
    engine.drive(task_id)
    runs.cancel_run(engine.operator, task_id=task_id, action="rollback")
    assert runs.cancel_run(engine.operator, task_id=task_id, action="interrupt") == "error"
    assert run_of(engine, task_id).cancel_action == "rollback"


def test_finished_run_cannot_be_cancelled(engine: Engine, thread: Thread) -> None:
    task_id = start(engine, SAY)
    engine.drive(task_id)
    with pytest.raises(RunFinishedError):
        runs.cancel_run(engine.operator, task_id=task_id, action="interrupt")


@pytest.mark.parametrize("act", ["resume", "adjust_goal"])
def test_waiting_run_is_not_due_whatever_it_is_told(
    engine: Engine, thread: Thread, act: str
) -> None:
    """Pause, resume and a new goal do not let a run overtake the one at work."""
    start(engine, SAY)
    second = start(engine, SAY, multitask_strategy="enqueue")
    if act == "resume":
        engine.steer(second, "pause")
        engine.steer(second, "resume")
    else:
        engine.steer(second, "adjust_goal", payload={"note": "other"})
    assert (engine.task(second).status, engine.task(second).next_wake_at) == ("queued", None)


def test_paused_run_keeps_its_turn(engine: Engine, thread: Thread) -> None:
    """A run that is paused while it waits gets the slot and begins when it is resumed."""
    first = start(engine, SAY)
    second = start(engine, SAY, multitask_strategy="enqueue")
    engine.steer(second, "pause")
    engine.drive(first)
    assert slots(engine, second) == ["holding"]
    assert engine.task(second).status == "paused"
    engine.steer(second, "resume")
    assert engine.drive(second).status == "completed"


def test_later_run_waits_for_its_time(engine: Engine, thread: Thread) -> None:
    """`after_seconds`: the sweeper begins it; meanwhile others may go first."""
    later = start(engine, SAY, after_seconds=3600)
    assert slots(engine, later) == ["waiting"]
    engine.drive(start(engine, SAY, multitask_strategy="enqueue"))
    assert recovery.sweep().begun == 0
    with connection.cursor() as cursor:
        cursor.execute("UPDATE tasks_app_run SET not_before = clock_timestamp()")
    assert recovery.sweep().begun == 1
    assert engine.drive(later).status == "completed"


def test_run_ends_with_its_creator_if_that_was_wanted(engine: Engine, thread: Thread) -> None:
    """R54: who comes back in time lets it go on; who does not has it cancelled."""
    task_id = start(engine, SAY, ASK, on_disconnect="cancel")
    engine.drive(task_id)
    runs.note_disconnect(engine.submitter, task_id=task_id)
    runs.note_reconnect(engine.submitter, task_id=task_id)
    assert recovery.sweep().deserted == 0
    runs.note_disconnect(engine.submitter, task_id=task_id)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE tasks_app_run SET disconnect_deadline = clock_timestamp()")
    assert recovery.sweep().deserted == 1
    task = engine.task(task_id)
    assert (task.status, task.stop_reason) == ("cancelled", "client_disconnected")


def test_queue_has_an_end(engine: Engine, thread: Thread) -> None:
    """R26: the fifty-first waiting run is refused."""
    start(engine, SAY)
    for _ in range(MAX_WAITING):
        start(engine, SAY, multitask_strategy="enqueue")
    with pytest.raises(QueueFullError):
        start(engine, SAY, multitask_strategy="enqueue")


def test_resume_answers_the_run_that_waits(engine: Engine, thread: Thread) -> None:
    """R30: the same run goes on; the first answer wins."""
    task_id = start(engine, ASK, SAY)
    engine.drive(task_id)
    answer = parse({"assistant_id": "scripted", "command": {"resume": True}})
    told = runs.create_run(engine.submitter, thread_key="talk", body=answer)
    assert told.task_id == task_id
    assert told.resumed_after is not None
    with pytest.raises(NoPendingInterruptError):
        runs.create_run(engine.submitter, thread_key="talk", body=answer)
    assert engine.drive(task_id).status == "completed"


def test_key_stands_for_one_run_of_its_thread(engine: Engine, thread: Thread) -> None:
    """R21-R23: the same request gives the run back, another one is refused, metadata is no part."""
    first = created(engine, SAY, key="k")
    again = created(engine, SAY, key="k", metadata={"other": 1}, multitask_strategy="enqueue")
    assert (again.task_id, again.replayed) == (first.task_id, True)
    with pytest.raises(IdempotencyMismatchError):
        start(engine, SAY, SAY, key="k")


def test_thread_is_closed_for_good(engine: Engine, thread: Thread) -> None:
    """S19: not while a run is active; afterwards its name stays taken and its rows stay."""
    task_id = start(engine, SAY)
    with pytest.raises(RunActiveError):
        threads.delete_thread(engine.submitter, key="talk")
    engine.drive(task_id)
    threads.delete_thread(engine.submitter, key="talk")
    with pytest.raises(NotFoundError):
        start(engine, SAY)
    with pytest.raises(ThreadExistsError):
        threads.create_thread(engine.submitter, key="talk", metadata={})
    assert engine.task(task_id).status == "completed"


def test_values_that_a_client_writes_are_the_next_runs(engine: Engine, thread: Thread) -> None:
    """A written state is the head; while a run holds the slot nothing is written."""
    threads.write_state(
        engine.submitter,
        key="talk",
        values={"n": 7, "messages": [{"type": "human", "content": "by hand"}]},
    )
    task_id = start(engine, SAY)
    with pytest.raises(ThreadBusyError):
        threads.write_state(engine.submitter, key="talk", values={"n": 8})
    engine.drive(task_id)
    found = head(engine, thread)
    assert (found["n"], texts(found)) == (7, ["human: by hand", "ai: hello"])


def test_another_persons_thread_is_not_there(engine: Engine, thread: Thread) -> None:
    """R18: a submitter sees own threads only."""
    other = engine.person("submitter")
    body = parse({"assistant_id": "scripted", "input": {"script": []}})
    with pytest.raises(NotFoundError):
        runs.create_run(other, thread_key="talk", body=body)


def test_audit_of_runs_verifies(engine: Engine, thread: Thread) -> None:
    first = start(engine, SAY, ASK)
    engine.drive(first)
    second = start(engine, SAY, multitask_strategy="interrupt")
    engine.drive(second)
    for task_id in (first, second):
        engine.assert_audit_verifies(task_id)


CALL = {"op": "toolcall", "id": "call", "name": "search"}


def test_a_call_without_a_result_is_answered_by_the_end(engine: Engine, thread: Thread) -> None:
    """R61: a cancelled run leaves a conversation that the next one can go on with."""
    task_id = start(engine, CALL, {**CALL, "id": "other", "then": [ASK]})
    engine.drive(task_id)
    runs.cancel_run(engine.submitter, task_id=task_id, action="interrupt")
    said = head(engine, thread)["messages"]
    asked = [call["id"] for message in said for call in message.get("toolCalls", ())]
    answers = {one["toolCallId"]: one for one in said if one["type"] == "tool"}
    assert asked == list(answers) == ["call", "other"]
    assert answers["call"]["content"] == "done"
    assert answers["other"]["additionalKwargs"] == {"status": "cancelled"}
    assert engine.drive(start(engine, SAY)).status == "completed"


def test_a_call_of_a_run_that_fails_is_answered_as_well(engine: Engine, thread: Thread) -> None:
    """Once, and only if nothing else has answered it."""
    engine.drive(start(engine, {**CALL, "then": [{"op": "fail"}]}))
    answers = [one for one in head(engine, thread)["messages"] if one["type"] == "tool"]
    assert [one["additionalKwargs"]["status"] for one in answers] == ["failed"]
