"""A task belongs to the trace of the request that asked for it (W3C Trace Context)."""

import json
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel
from pytest_django import Settings

from tasks_app.admission import tasks
from tasks_app.domain.tracing import Trace, of_task, received, span_of, trace_id_of
from tasks_app.engine import webhooks
from tasks_app.models import Task
from tasks_app.queries.snapshot import get_snapshot
from tasks_app.workflows import FunctionContext, StepContext, durable_function
from tests.api.calls import api_of
from tests.support.engine import Engine
from tests.support.receiver import Receiver

ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{ID}-00f067aa0ba902b7-01"
SAY = {"op": "say", "text": "hello"}


def stored(engine: Engine, task_id: UUID) -> Trace:
    task = engine.task(task_id)
    return Trace(task.traceparent, task.tracestate)


@pytest.mark.parametrize(
    "parent",
    [
        None, 7, "", "00", PARENT[:-1], PARENT.upper(), PARENT + "-00", f"00-{'0' * 32}-{'1' * 16}-01",
        f"00-{ID}-{'0' * 16}-01", f"ff-{ID}-{'1' * 16}-01", f"00-{ID}-{'1' * 15}g-01",
    ],
)  # fmt: skip
def test_what_is_not_valid_counts_as_none(parent: Any) -> None:
    """Nobody is refused for it: the task begins a trace of its own."""
    assert received(parent, "a=1") is None
    assert received(of_task(None).parent) is not None


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert received(f"01{PARENT[2:]}-more", "a=1") == Trace(PARENT, "a=1")
    assert received(PARENT, "x" * 513) == received(PARENT, 3) == Trace(PARENT)


def test_an_act_has_one_span_at_every_try() -> None:
    first, again, other = span_of(PARENT, "a"), span_of(PARENT, "a"), span_of(PARENT, "b")
    assert (first, len({first, other, PARENT})) == (again, 3)
    assert received(first) == Trace(first)
    # A task of an older version has no trace.
    assert span_of("", "a") == ""


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/runtime/tasks", {"workflow": "scripted", "goal": {"script": [SAY]}}),
        ("/api/runs", {"assistant_id": "scripted", "input": {"script": [SAY]}}),
    ],
)
def test_rest_doors_go_on_with_the_trace(engine: Engine, path: str, body: dict[str, Any]) -> None:
    """A span of the task's own in the trace of the request, its flags and state kept."""
    api = api_of(engine.tenant, "submitter")
    answer = api.post(path, body, traceparent=PARENT, tracestate="vendor=1")
    assert answer.status_code in {200, 201}, answer.content
    task = Task.objects.for_tenant(engine.tenant.id).get()
    trace = Trace(task.traceparent, task.tracestate)
    assert (trace.id, trace.state, trace.parent[-2:]) == (ID, "vendor=1", "01")
    assert trace.parent != PARENT
    assert get_snapshot(engine.operator, task.id).trace_id == ID


def test_tasks_without_a_trace_begin_one_each(engine: Engine) -> None:
    ids = {stored(engine, engine.submit(SAY)).id for _ in range(2)}
    assert len(ids) == 2


def test_children_belong_to_the_trace_of_their_parent(engine: Engine) -> None:
    parent_id = engine.submit({"op": "task", "script": [SAY]}, trace=Trace(PARENT, "vendor=1"))
    engine.run(parent_id)
    child = Task.objects.for_tenant(engine.tenant.id).get(parent_id=parent_id)
    parent, own = stored(engine, parent_id), stored(engine, child.id)
    assert (own.id, own.state) == (parent.id, parent.state) == (ID, "vendor=1")
    assert own.parent != parent.parent


class Nothing(BaseModel):
    pass


@pytest.mark.usefixtures("own_registry")
def test_a_step_can_send_its_span(engine: Engine) -> None:
    def send(ctx: StepContext) -> str:
        return ctx.traceparent

    def traced(ctx: FunctionContext, goal: Nothing) -> list[str]:
        return [str(ctx.step(name, send)) for name in ("one", "two")]

    durable_function(name="traced", version=1)(traced)
    admitted = tasks.admit_task(
        engine.submitter, workflow="traced", goal={}, source="code", trace=Trace(PARENT)
    )
    sent = engine.drive(admitted.task_id).result
    assert isinstance(sent, list)
    assert [trace_id_of(parent) for parent in sent] == [ID, ID]
    assert len(set(sent)) == 2


def test_webhooks_carry_the_trace(engine: Engine, settings: Settings) -> None:
    with Receiver() as receiver:
        settings.RUNTIME = {**settings.RUNTIME, "webhook_private_hosts": (receiver.host,)}
        task_id = engine.submit(SAY, webhook=receiver.url(), trace=Trace(PARENT))
        engine.drive(task_id)
        webhooks.send_all()
        [heard] = receiver.heard
    assert json.loads(heard.body)["data"]["taskId"] == str(task_id)
    sent = received(heard.headers["traceparent"])
    assert sent is not None
    assert sent.id == ID
    assert sent.parent != stored(engine, task_id).parent
