"""The function form: what is stored, what runs again, and what a call gives."""

import json
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from tasks_app.models import Checkpoint, Event, Task
from tasks_app.workflows import (
    FunctionContext,
    Retry,
    StepContext,
    StepFailedError,
    step,
)
from tests.support.engine import Engine
from tests.support.functions import (
    RUNS,
    Goal,
    agent,
    kill_at,
    rows,
    start,
    stumble,
    submit,
    think,
)

pytestmark = pytest.mark.usefixtures("own_registry")


def test_function_runs_to_its_result(engine: Engine) -> None:
    """E2: the function's steps, turns and acts are rows, and its result is the task's."""
    task_id = start(engine, agent)
    task = engine.drive(task_id)
    assert (task.status, task.result) == ("completed", "['a0', 'a1', 'a2'] 6 a2"), task.error
    stored = rows(engine, task_id)
    assert [(key, row.kind, row.status) for key, row in stored.items()] == [
        ("turn", "loop", "succeeded"),
        ("turn[0]/think", "step", "succeeded"),
        ("turn[0]/weigh", "step", "succeeded"),
        ("turn[1]/think", "step", "succeeded"),
        ("turn[1]/weigh", "step", "succeeded"),
        ("turn[2]/think", "step", "succeeded"),
        ("turn[2]/weigh", "step", "succeeded"),
        ("mail", "effect", "succeeded"),
    ]
    assert set(RUNS.values()) == {1}
    engine.assert_audit_verifies(task_id)


@pytest.mark.parametrize("label", ["think 0", "think 2", "weigh a2", "send mail a0 a1 a2"])
def test_killed_anywhere_it_goes_on_with_the_open_turn(engine: Engine, label: str) -> None:
    """E-table loop turn: committed steps of the turn are reused, the rest again, states as of its start."""
    task_id = start(engine, agent)
    kill_at(engine, task_id, label)
    task = engine.drive(task_id)
    assert (task.status, task.result) == ("completed", "['a0', 'a1', 'a2'] 6 a2"), task.error
    # Only what ran when the process died ran twice, and what was held back with it.
    again = {name for name, times in RUNS.items() if times > 1}
    assert label in again
    assert again <= {label, "weigh a2"}


def test_every_slice_goes_on_where_the_last_one_ended(engine: Engine, settings: Settings) -> None:
    """E4: with one step a slice everything still happens once, and states survive."""
    settings.RUNTIME = {**settings.RUNTIME, "slice_steps": 1}
    task_id = start(engine, agent)
    task = engine.drive(task_id)
    assert (task.status, task.result) == ("completed", "['a0', 'a1', 'a2'] 6 a2"), task.error
    assert set(RUNS.values()) == {1}


def test_going_on_costs_the_same_at_every_turn(engine: Engine, settings: Settings) -> None:
    """E2: the rows and queries of a slice do not grow with the turns that are done."""

    def long(ctx: FunctionContext, goal: Goal) -> int:
        for turn in ctx.loop("turn", limit=60):
            turn.step("think", think, goal.word, turn.index)
        return 0

    settings.RUNTIME = {**settings.RUNTIME, "slice_steps": 1}
    task_id = start(engine, long)
    counts = []
    for _ in range(12):
        with CaptureQueriesContext(connection) as queries:
            engine.run(task_id)
        counts.append(len(queries))
    assert max(counts[3:]) == min(counts[3:])
    newest = Checkpoint.objects.for_tenant(engine.tenant.id).filter(task_id=task_id).latest("seq")
    document = json.loads(newest.document)
    assert document["completed_steps"] == ["turn[0..11]"]
    assert document["next_step"] == "turn[12]"


def test_failed_step_is_told_to_the_function_once(engine: Engine) -> None:
    """E23: the function may go on without the step; the failure is stored like a result."""

    def careful(ctx: FunctionContext, goal: Goal) -> str:
        try:
            return str(ctx.step("hard", stumble, 9))
        except StepFailedError as error:
            return f"{error.step} {error.code} {ctx.step('easy', stumble, 2)}"

    def careless(ctx: FunctionContext, goal: Goal) -> int:
        return ctx.step("hard", stumble, 9)

    task = engine.drive(start(engine, careful))
    assert (task.status, task.result) == ("completed", "hard RuntimeError 3"), task.error
    RUNS.clear()
    task = engine.drive(start(engine, careless))
    assert (task.status, task.stop_reason) == ("failed", "step_failed")
    assert (task.error["step"], task.error["message"]) == ("hard", "stumbled")
    assert RUNS["stumble"] == 2


def test_error_of_the_function_fails_the_task(engine: Engine) -> None:
    """What the code between steps raises is the task's error."""

    def broken(ctx: FunctionContext, goal: Goal) -> int:
        return ctx.step("easy", stumble, 0) // 0

    task = engine.drive(start(engine, broken))
    assert (task.status, task.stop_reason) == ("failed", "function_failed")
    assert task.error["type"] == "ZeroDivisionError"


def test_no_except_of_the_author_keeps_a_slice_from_ending(
    engine: Engine, settings: Settings
) -> None:
    """What ends a slice comes out at the next call, or at the end, if the code catches it."""

    def greedy(ctx: FunctionContext, goal: Goal) -> int:
        for number in range(4):
            try:
                ctx.step("think", think, goal.word, number)
            except BaseException:  # noqa: BLE001 - what an author should not write
                RUNS["caught"] += 1
        return RUNS["caught"]

    settings.RUNTIME = {**settings.RUNTIME, "slice_steps": 2}
    task_id = start(engine, greedy)
    assert engine.run(task_id) == "slice_spent"
    assert engine.drive(task_id).status == "completed"
    assert {name: n for name, n in RUNS.items() if name != "caught"} == {
        f"think {n}": 1 for n in range(4)
    }


def test_loops_may_be_nested_and_left(engine: Engine, settings: Settings) -> None:
    """Turns of inner loops are kept by their outer turn; `break` and `return` end loops."""

    def nested(ctx: FunctionContext, goal: Goal) -> str:
        seen = ctx.state("seen", list[str])
        for outer in ctx.loop("outer", limit=9):
            word = ""
            for inner in outer.loop("inner", limit=9):
                word = inner.step("think", think, f"{outer.index}", inner.index)
                seen.append(word)
                if inner.index == 1:
                    break
            outer.step("after", think, word, 10 + outer.index)
            if outer.index == 2:
                return " ".join(seen)
        return "never"

    settings.RUNTIME = {**settings.RUNTIME, "slice_steps": 1}
    task_id = start(engine, nested)
    task = engine.drive(task_id)
    assert (task.status, task.result) == ("completed", "00 01 10 11 20 21"), task.error
    assert {name: RUNS[name] for name in RUNS} == {
        "think 0": 3, "think 1": 3, "think 10": 1, "think 11": 1, "think 12": 1
    }  # fmt: skip
    loops = rows(engine, task_id, kind="loop")
    assert {row.status for row in loops.values()} == {"succeeded"}


def test_context_gives_what_is_the_same_at_every_try(
    engine: Engine, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E13: ids, numbers and times repeat; the id from outside and secrets reach the step."""
    seen: list[Any] = []
    monkeypatch.setenv("MODEL_KEY", "open-sesame")

    def look(ctx: StepContext) -> str:
        seen.append((ctx.uuid("a"), ctx.random.random(), ctx.external_id, ctx.deadline))
        ctx.log("used open-sesame", key=ctx.secret("MODEL_KEY"))
        raise RuntimeError(f"refused {ctx.secret('MODEL_KEY')}")

    def looks(ctx: FunctionContext, goal: Goal) -> str:
        seen.append((ctx.uuid("a"), ctx.random.random(), ctx.now, ctx.deadline))
        return ctx.step("look", step(retry=Retry(2, 0.01, 0.01))(look), external_id="call-7")

    settings.RUNTIME = {**settings.RUNTIME, "step_secrets": ("MODEL_KEY",)}
    task_id = start(engine, looks)
    task = engine.drive(task_id)
    assert task.status == "failed"
    assert seen[0] == seen[2]
    assert seen[1] == seen[3]
    assert seen[1][2:] == ("call-7", task.deadline_at)
    events = Event.objects.for_tenant(engine.tenant.id).filter(task_id=task_id)
    stored = json.dumps([task.error, *(event.data for event in events)])
    assert "open-sesame" not in stored
    assert "[secret]" in stored
    settings.RUNTIME = {**settings.RUNTIME, "step_secrets": ()}
    refused = engine.drive(submit(engine, "looks"))
    assert (refused.status, refused.error["code"]) == ("failed", "secret_unavailable")


def test_function_stops_at_its_limits(engine: Engine) -> None:
    """Steps and time are counted in functions as in plans, and the deadline is looked at."""
    task_id = start(engine, agent)
    Task.objects.for_tenant(engine.tenant.id).filter(pk=task_id).update(budget={"steps": 2})
    task = engine.drive(task_id)
    assert (task.stop_reason, task.steps_done) == ("budget_exceeded", 2)
    late = start(engine, agent)
    Task.objects.for_tenant(engine.tenant.id).filter(pk=late).update(
        deadline_at="2020-01-01T00:00:00Z"
    )
    assert engine.drive(late).stop_reason == "max_duration"
