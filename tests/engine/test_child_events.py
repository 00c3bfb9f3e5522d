"""What a parent's journal and conversation tell of its children (runs contract R69-R72)."""

from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from ledger_app.queries import total_usage
from tasks_app.engine import recovery
from tasks_app.models import Event, Task
from tests.support.engine import Engine

SAY = {"op": "say", "text": "hello", "tokens": [10, 2], "call_id": "one"}
CALL = "call-1"


def child(*script: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"op": "task", "script": list(script) or [SAY], "external_id": CALL, **more}


def child_of(engine: Engine, task_id: UUID) -> Task:
    found: Task = Task.objects.for_tenant(engine.tenant.id).get(parent_id=task_id)
    return found


def told(engine: Engine, task_id: UUID, kind: str = "child") -> list[dict[str, Any]]:
    events = Event.objects.for_tenant(engine.tenant.id).filter(task_id=task_id, type=kind)
    return list(events.order_by("seq").values_list("data", flat=True))


def family(engine: Engine, *script: dict[str, Any], **more: Any) -> tuple[UUID, Task]:
    """Return a parent that waits or goes on, and the child that it has started."""
    parent_id = engine.submit(child(*script, **more))
    engine.run(parent_id)
    return parent_id, child_of(engine, parent_id)


def test_a_child_is_told_from_its_start_to_its_end(engine: Engine) -> None:
    """R72: started, running, completed; both ids in each, and what it used with the end."""
    parent_id, started = family(engine)
    engine.drive(started.id)
    engine.drive(parent_id)
    events = told(engine, parent_id)
    assert [event["status"] for event in events] == ["started", "running", "completed"]
    assert {event["executionId"] for event in events} == {str(started.id)}
    assert {event["externalId"] for event in events} == {CALL}
    assert events[-1]["tokenUsage"] == {"input": 10, "output": 2, "total": 12}


def test_a_child_answers_the_call_that_started_it(engine: Engine) -> None:
    """R72: a message of the tool with the result, its digest, its use and the child's own id."""
    parent_id, started = family(engine, {"op": "set", "values": {"n": 1}})
    engine.drive(started.id)
    engine.drive(parent_id)
    (answer,) = told(engine, parent_id, "message")
    assert (answer["type"], answer["toolCallId"], answer["content"]) == ("tool", CALL, '{"n": 1}')
    about = answer["additionalKwargs"]
    assert (about["subagent_status"], about["execution_id"]) == ("completed", str(started.id))
    assert about["subagent_result_sha256"] == told(engine, parent_id)[-1]["resultSha256"]


def test_use_of_a_child_is_marked_where_its_call_is_known(engine: Engine) -> None:
    """R74: the message that made the call stands in the journal; without one there is no mark."""
    called = {"op": "toolcall", "id": CALL, "name": "ask", "then": [child()]}
    marks = []
    for operation in (called, child()):
        parent_id = engine.submit(operation)
        engine.run(parent_id)
        engine.drive(child_of(engine, parent_id).id)
        engine.drive(parent_id)
        about = [one.get("additionalKwargs", {}) for one in told(engine, parent_id, "message")]
        [answer] = [one for one in about if "subagent_token_usage" in one]
        marks.append(answer.get("subagent_token_usage_attributed"))
    assert marks == [True, None]


@pytest.mark.parametrize("end", ["failed", "cancelled", "timed_out"])
def test_a_child_that_ends_otherwise_says_so(engine: Engine, end: str) -> None:
    """R71: the word is that of how it ended."""
    script = {"failed": [{"op": "fail"}]}.get(end, [SAY, {"op": "interrupt"}])
    parent_id, started = family(engine, *script, timeout_s=3600, on_failure="skip")
    engine.drive(started.id)
    if end == "cancelled":
        engine.steer(started.id, "cancel")
    if end == "timed_out":
        expire(started.id)
    engine.drive(parent_id)
    assert told(engine, parent_id)[-1]["status"] == end
    assert told(engine, parent_id, "message")[-1]["additionalKwargs"]["subagent_status"] == end
    # What it used until then counts.
    used = total_usage(tenant_id=engine.tenant.id, task_ids=[started.id])
    assert sum(row.input_tokens for row in used) == (0 if end == "failed" else 10)


def expire(task_id: UUID) -> None:
    """Move time: the deadline of a task that waits has passed; the sweeper sees it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE tasks_app_task SET deadline_at = clock_timestamp() - interval '1 s'"
            " WHERE id = %s AND deadline_at > clock_timestamp()",
            [task_id],
        )
        assert cursor.rowcount == 1
    recovery.sweep()


def test_a_child_that_nobody_waits_for_is_told_as_well(engine: Engine) -> None:
    """It answers no call: the call was answered by its start."""
    parent_id = engine.submit(child(wait=False), {"op": "interrupt"})
    engine.drive(parent_id)
    engine.drive(child_of(engine, parent_id).id)
    assert [event["status"] for event in told(engine, parent_id)] == [
        "started", "running", "completed",
    ]  # fmt: skip
    assert told(engine, parent_id, "message") == []


@pytest.mark.parametrize("order", ["cancel", "adjust_goal"])
def test_a_child_that_is_not_wanted_any_more_is_told_as_well(engine: Engine, order: str) -> None:
    """R61, R71, R72: its end stands before its parent's."""
    parent_id, started = family(engine)
    engine.steer(parent_id, order, payload={"script": [SAY]} if order == "adjust_goal" else {})
    recovery.sweep()
    parent = engine.drive(parent_id)
    assert parent.status == {"cancel": "cancelled", "adjust_goal": "completed"}[order]
    assert [event["status"] for event in told(engine, parent_id)] == ["started", "cancelled"]
    assert {event["executionId"] for event in told(engine, parent_id)} == {str(started.id)}


def test_nothing_follows_the_end_of_the_parent(engine: Engine) -> None:
    """A child that goes on alone tells its parent nothing any more."""
    parent_id = engine.submit(child(wait=False))
    assert engine.drive(parent_id).status == "completed"
    engine.drive(child_of(engine, parent_id).id)
    assert [event["status"] for event in told(engine, parent_id)] == ["started"]


def test_an_id_from_outside_may_come_twice(engine: Engine) -> None:
    """R69, R72: one parent uses it again; each child is told under an id of its own."""
    parent_id = engine.submit(child(), child({"op": "set", "values": {"n": 2}}))
    for _ in range(2):
        engine.run(parent_id)
        engine.drive(Task.objects.for_tenant(engine.tenant.id).get(
            parent_id=parent_id, status="queued").id)  # fmt: skip
    task = engine.drive(parent_id)
    assert (task.status, task.result) == ("completed", {"n": 2})
    ends = [event for event in told(engine, parent_id) if event["status"] == "completed"]
    assert len({event["executionId"] for event in ends}) == 2
    answers = told(engine, parent_id, "message")
    assert len({answer["id"] for answer in answers}) == 2


def test_a_model_that_gives_up_is_no_success(engine: Engine) -> None:
    """R68: what it said is in the conversation, the journal names it, and the run is an error."""
    task = engine.drive(engine.submit({"op": "llm_fallback", "text": "try later"}, SAY))
    assert (task.status, task.stop_reason) == ("failed", "step_failed")
    assert task.error is not None
    assert (task.error["type"], task.error["message"]) == ("ModelFailedError", "try later")
    # Asked twice; the second message takes the place of the first.
    said = told(engine, task.id, "message")
    assert [message["content"] for message in said] == ["try later"] * 2
    assert len({message["id"] for message in said}) == 1
    assert told(engine, task.id, "model_error")[-1]["message"] == "try later"
