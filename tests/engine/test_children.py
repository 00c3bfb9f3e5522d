"""Children: tasks that a step starts once, waits for without a process, and ends with."""

from typing import Any
from uuid import UUID

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.urls import reverse
from pydantic import BaseModel
from pytest_django import Settings
from typing_extensions import override

from tasks_app.admission import tasks
from tasks_app.api.outputs import TaskOut
from tasks_app.engine import children, recovery
from tasks_app.models import Checkpoint, SteeringCommand, Step, Task
from tasks_app.queries.snapshot import get_snapshot
from tasks_app.workflows import (
    FunctionContext,
    Retry,
    StepContext,
    StepFailedError,
    Workflow,
    durable_function,
    registry,
    step,
)
from tests import factories
from tests.engine.test_checkpoints import damage
from tests.support.engine import Engine


class Number(BaseModel):
    n: int = 0


class Letter(BaseModel):
    text: str = ""
    wait: bool = True
    skip: bool = False


class Double(Workflow[Number, int]):
    """The child: doubles a number, or fails on 13."""

    workflow_name, version, title, description, acts = "double", 1, "Double", "", ()

    @override
    def plan(self, goal: Number, p: Any) -> Any:
        return p.step(self.double, goal.n)

    @step(retry=Retry(max=1))
    def double(self, ctx: StepContext, n: int) -> int:
        if n == 13:
            raise ValueError("thirteen")
        return 2 * n


class Parent(Workflow[Letter, Any]):
    """Measures a text and has the number doubled by a child."""

    workflow_name, version, title, description, acts = "parent", 1, "Parent", "", ()

    @override
    def plan(self, goal: Letter, p: Any) -> Any:
        size = p.step(self.size, goal.text)
        return p.child(
            Double,
            {"n": size.field("n")},
            wait=goal.wait,
            budget_share=0.25,
            on_failure="skip" if goal.skip else "fail",
        )

    @step(pure=True)
    def size(self, ctx: StepContext, text: str) -> Number:
        return Number(n=len(text))


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_known", dict(registry._known))
    registry.add(Double)
    registry.add(Parent)


def submit(engine: Engine, name: str = "parent", **goal: Any) -> UUID:
    return tasks.admit_task(engine.submitter, workflow=name, goal=goal, source="code").task_id


def child_of(engine: Engine, task_id: UUID) -> Task:
    found: Task = Task.objects.for_tenant(engine.tenant.id).get(parent_id=task_id)
    return found


def wait_for_child(engine: Engine, **goal: Any) -> tuple[UUID, Task]:
    """Run a parent until it waits; return it and its child."""
    task_id = submit(engine, **goal)
    assert engine.run(task_id) == "child"
    return task_id, child_of(engine, task_id)


def test_parent_waits_without_a_process_and_takes_the_result(engine: Engine) -> None:
    """E-table child: started once in the parent's commit, joined by its own id."""
    task_id, child = wait_for_child(engine, text="abc")
    parent = engine.task(task_id)
    assert (parent.status, parent.next_wake_at, parent.lease_owner) == ("queued", None, None)
    assert (child.source, child.goal) == (
        "child",
        {"n": 3},
    )
    assert (child.initiator_id, child.agent_id) == (parent.initiator_id, parent.agent_id)
    assert child.deadline_at == parent.deadline_at
    assert engine.run(child.id) == "completed"
    assert engine.task(task_id).next_wake_at is not None
    parent = engine.drive(task_id)
    assert (parent.status, parent.result) == ("completed", 6), parent.error
    assert Task.objects.for_tenant(engine.tenant.id).filter(parent_id=task_id).count() == 1
    engine.assert_audit_verifies(task_id)
    engine.assert_audit_verifies(child.id)


def test_parent_that_does_not_wait_goes_on_and_ends_alone(engine: Engine) -> None:
    """wait=False: the result is the child's id; a completed parent leaves its children alone."""
    task_id = submit(engine, text="abc", wait=False)
    parent = engine.drive(task_id)
    child = child_of(engine, task_id)
    assert (parent.status, parent.result, child.status) == ("completed", str(child.id), "queued")
    recovery.sweep()
    assert engine.drive(child.id).result == 6


def test_child_that_fails_fails_the_step(engine: Engine) -> None:
    """The parent's error names the child; `on_failure="skip"` goes on without a result."""
    task_id, child = wait_for_child(engine, text="x" * 13)
    assert engine.run(child.id) == "failed"
    parent = engine.drive(task_id)
    assert (parent.status, parent.stop_reason) == ("failed", "step_failed")
    assert (parent.error["code"], parent.error["child"]) == ("child_failed", str(child.id))
    assert "thirteen" in parent.error["message"]
    skipping, child = wait_for_child(engine, text="x" * 13, skip=True)
    engine.run(child.id)
    parent = engine.drive(skipping)
    assert (parent.status, parent.result) == ("completed", None), parent.error


@pytest.mark.parametrize("lost", [False, True], ids=["told", "derived"])
def test_children_end_with_a_cancelled_parent(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """R61, R71: by a command of the system, or by the sweeper when nobody told; before the parent."""
    task_id, child = wait_for_child(engine, text="abc")
    with monkeypatch.context() as patch:
        if lost:
            patch.setattr(children, "cancel_live", lambda *_: None)
        engine.steer(task_id, "cancel")
    parent = engine.task(task_id)
    assert (parent.status, parent.closing_as) == ("queued", "cancelled")
    assert (engine.task(child.id).status == "queued") == lost
    if lost:
        assert engine.run(task_id) == "child"
        seen = get_snapshot(engine.operator, task_id)
        assert seen.status_message == "Waiting for its child tasks to end."
        recovery.sweep()
    ended = engine.task(child.id)
    assert (ended.status, ended.stop_reason) == ("cancelled", "parent_ended")
    assert engine.run(task_id) == "cancelled"
    parent = engine.task(task_id)
    assert (parent.status, parent.stop_reason) == ("cancelled", "user_cancelled")
    assert engine.end_of(task_id) > engine.end_of(child.id)
    engine.assert_audit_verifies(task_id)
    command = SteeringCommand.objects.for_tenant(engine.tenant.id).get(task_id=child.id)
    assert (command.type, command.status, command.source) == ("cancel", "applied", "system")
    engine.assert_audit_verifies(child.id)


def test_end_of_the_last_child_that_nobody_told_of_is_derived(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closing parent sleeps until the sweeper sees that none of its children lives."""
    task_id, child = wait_for_child(engine, text="abc")
    with monkeypatch.context() as patch:
        patch.setattr(children, "cancel_live", lambda *_: None)
        engine.steer(task_id, "cancel")
        assert engine.run(task_id) == "child"
        patch.setattr(children, "wake_parent", lambda *_: None)
        recovery.sweep()
    assert engine.task(child.id).status == "cancelled"
    assert engine.task(task_id).next_wake_at is None
    assert recovery.sweep().parents == 1
    assert engine.run(task_id) == "cancelled"


def test_failed_parent_ends_after_a_child_that_it_did_not_wait_for(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R71: what it failed of is what it says in the end."""

    def broken(ctx: FunctionContext, goal: Number) -> int:
        ctx.child("alone", Double, {"n": 5}, wait=False)
        raise ValueError("no more")

    durable_function(name="broken", version=1)(broken)
    task_id = submit(engine, "broken")
    engine.run(task_id)
    parent, child = engine.drive(task_id), child_of(engine, task_id)
    assert (parent.status, child.status) == ("failed", "cancelled")
    assert "no more" in parent.error["message"]
    assert engine.end_of(task_id) > engine.end_of(child.id)


def test_held_parent_that_is_given_up_ends_at_once(engine: Engine) -> None:
    """Nothing of it may be able to run, so nothing could wait; its children end after it."""
    task_id, child = wait_for_child(engine, text="abc")
    damage(Checkpoint.objects.for_tenant(engine.tenant.id).get(task_id=task_id))
    engine.steer(task_id, "pause")
    engine.steer(task_id, "resume")
    assert engine.run(task_id) == "dead_lettered"
    engine.steer(task_id, "cancel")
    assert engine.task(task_id).status == "cancelled"
    assert engine.task(child.id).status == "cancelled"


def test_running_child_is_cancelled_at_its_next_safe_point(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that a worker holds gets the command like any other; it is told once."""
    task_id, child = wait_for_child(engine, text="abc")

    def double(self: Any, ctx: StepContext, n: int) -> int:
        engine.steer(task_id, "cancel")
        recovery.sweep()
        return n

    monkeypatch.setattr(Double, "double", step()(double))
    assert engine.run(child.id) == "cancelled"
    assert (
        SteeringCommand.objects.for_tenant(engine.tenant.id).filter(task_id=child.id).count() == 1
    )


def test_end_of_a_child_that_nobody_told_of_is_derived(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash between the child's commit and the parent's wake-up loses nothing."""
    task_id, child = wait_for_child(engine, text="abc")
    with monkeypatch.context() as patch:
        patch.setattr(children, "wake_parent", lambda *_: None)
        assert engine.run(child.id) == "completed"
    assert engine.task(task_id).next_wake_at is None
    assert recovery.sweep().parents == 1
    assert engine.drive(task_id).result == 6


def test_parent_woken_too_early_waits_again(engine: Engine) -> None:
    """A resumed parent looks, finds its child at work and waits without starting another."""
    task_id, child = wait_for_child(engine, text="abc")
    engine.steer(task_id, "pause")
    engine.steer(task_id, "resume")
    assert engine.run(task_id) == "child"
    assert child_of(engine, task_id).id == child.id
    children.wake_parent(engine.tenant.id, task_id)
    assert engine.task(task_id).next_wake_at is None


def test_changed_goal_drops_the_child_that_it_does_not_want(engine: Engine) -> None:
    """E72: the step is replaced, so its child is cancelled and another one is started."""
    task_id, child = wait_for_child(engine, text="abc")
    engine.steer(task_id, "adjust_goal", payload={"text": "four"})
    assert engine.run(task_id) == "child"
    recovery.sweep()
    assert engine.task(child.id).status == "cancelled"
    other = Task.objects.for_tenant(engine.tenant.id).exclude(pk=child.id).get(parent_id=task_id)
    engine.run(other.id)
    assert engine.drive(task_id).result == 8


def test_who_started_a_task_is_final(engine: Engine) -> None:
    """S9, S20: not even the ORM moves a child elsewhere; one step has one child."""
    task_id, child = wait_for_child(engine, text="abc")
    rows = Task.objects.for_tenant(engine.tenant.id).filter(pk=child.id)
    with pytest.raises(IntegrityError), transaction.atomic():
        rows.update(parent_id=None)
    with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO tasks_app_task SELECT (jsonb_populate_record(t, jsonb_build_object("
            "'id', gen_random_uuid()))).* FROM tasks_app_task t WHERE id = %s",
            [child.id],
        )
    assert child_of(engine, task_id).id == child.id


def family(ctx: FunctionContext, goal: Number) -> str:
    """Start a child in each turn, wait for it, and go on without the one that fails."""
    sums = ctx.state("sums", list[int])
    for turn in ctx.loop("turn", limit=3):
        try:
            sums.append(turn.child("double", Double, Number(n=12 + turn.index)))
        except StepFailedError as error:
            sums.append(-1 if error.facts["child"] else 0)
    alone = ctx.child("alone", Double, {"n": 5}, wait=False)
    return f"{sums} {isinstance(alone, UUID)}"


def test_function_has_children_in_its_turns(engine: Engine) -> None:
    """The same rows and the same waiting; a failed child is told to the function."""
    durable_function(name="family", version=1)(family)
    task_id = submit(engine, "family")
    for _ in range(3):
        assert engine.run(task_id) == "child"
        live = Task.objects.for_tenant(engine.tenant.id).get(parent_id=task_id, status="queued")
        engine.run(live.id)
    task = engine.drive(task_id)
    assert (task.status, task.result) == ("completed", "[24, -1, 28] True"), task.error
    steps = Step.objects.for_tenant(engine.tenant.id).filter(task_id=task_id, kind="child")
    assert sorted(steps.values_list("key", "status")) == [
        ("alone", "succeeded"),
        ("turn[0]/double", "succeeded"),
        ("turn[1]/double", "failed"),
        ("turn[2]/double", "succeeded"),
    ]


def test_children_are_nested_so_deep_only(engine: Engine, settings: Settings) -> None:
    """A task that starts itself ends with a reason, not with the machine."""
    settings.RUNTIME = {**settings.RUNTIME, "max_child_depth": 2}

    def nested(ctx: FunctionContext, goal: Number) -> int:
        return int(ctx.child("deeper", registry.get_definition("nested"), {"n": goal.n + 1}))

    durable_function(name="nested", version=1)(nested)
    task_id = submit(engine, "nested")
    ids = [task_id]
    for _ in range(2):
        assert engine.run(ids[-1]) == "child"
        ids.append(child_of(engine, ids[-1]).id)
    assert engine.run(ids[-1]) == "failed"
    assert engine.task(ids[-1]).error["code"] == "child_too_deep"
    assert [engine.drive(found).error["code"] for found in reversed(ids[:-1])] == [
        "child_failed",
        "child_failed",
    ]


def test_goal_that_does_not_fit_fails_the_step(engine: Engine) -> None:
    """Nothing is admitted; the reason names the field."""

    def wrong(ctx: FunctionContext, goal: Number) -> int:
        return int(ctx.child("double", Double, {"n": "many"}))

    durable_function(name="wrong", version=1)(wrong)
    task = engine.drive(submit(engine, "wrong"))
    assert (task.status, task.error["code"]) == ("failed", "child_goal_invalid")
    assert "/goal/n" in task.error["message"]
    assert not Task.objects.for_tenant(engine.tenant.id).filter(parent_id=task.id).exists()


def test_snapshot_and_pages_show_parent_and_children(engine: Engine, client: Client) -> None:
    """Who started whom, with state and address, at every door that shows a task."""
    task_id, child = wait_for_child(engine, text="abc")
    parent_seen = get_snapshot(engine.operator, task_id)
    child_seen = get_snapshot(engine.operator, child.id)
    assert parent_seen.status_message == "Waiting for a child task."
    assert [(row.task_id, row.status, row.step_key) for row in parent_seen.children] == [
        (child.id, "queued", "double")
    ]
    assert (parent_seen.parent, child_seen.children) == (None, ())
    assert child_seen.parent is not None
    assert (child_seen.parent.task_id, child_seen.parent.step_key) == (task_id, "double")
    out = TaskOut.of(child_seen).model_dump(mode="json", by_alias=True)
    assert out["parent"]["statusUrl"] == f"/runtime/tasks/{task_id}"
    client.force_login(factories.make_member(engine.tenant, "operator"))
    for shown, other in ((task_id, child.id), (child.id, task_id)):
        page = client.get(reverse("dashboard:task", args=[shown])).content.decode()
        assert reverse("dashboard:task", args=[other]) in page
