"""Functions and people: approvals, questions, changed goals, pause and cancel."""

from datetime import timedelta

import pytest
from pytest_django import Settings

from tasks_app.admission import tasks
from tasks_app.models import Approval
from tasks_app.workflows import (
    Ask,
    FunctionContext,
    NotApprovedError,
    StepContext,
)
from tests.support.engine import Engine
from tests.support.functions import (
    RUNS,
    Goal,
    Notes,
    agent,
    decide,
    define,
    ran,
    rows,
    send,
    start,
    submit,
    think,
)

pytestmark = pytest.mark.usefixtures("own_registry")


def test_act_is_bound_to_its_approval(engine: Engine) -> None:
    """S56: people approve exactly the arguments; without their yes the function is told."""

    def asks(ctx: FunctionContext, goal: Goal) -> str:
        try:
            return ctx.effect("mail", send, goal.word, approval=Ask(deadline=timedelta(hours=1)))
        except NotApprovedError as error:
            return f"{error.step} {error.code}"

    task_id = start(engine, asks)
    assert engine.drive(task_id).status == "input_required"
    asked = decide(engine, task_id, "approve")
    assert (asked.tool, asked.arguments) == ("send", {"args": ["a"], "kwargs": {}})
    assert engine.drive(task_id).result == f"{task_id}:mail"
    assert Approval.objects.for_tenant(engine.tenant.id).get(pk=asked.id).status == "consumed"
    refused = submit(engine, "asks")
    engine.drive(refused)
    decide(engine, refused, "deny")
    assert engine.drive(refused).result == "mail not_approved"
    assert RUNS == {"send mail a": 1}


def test_acts_that_the_task_wants_approved_are_asked_for(engine: Engine) -> None:
    """`approve_before` and the task's own policy gate an act that the code does not gate."""
    define(agent)
    task_id = tasks.admit_task(
        engine.submitter,
        workflow="agent",
        goal={"turns": 1},
        source="code",
        approval_policy={"before": ["send"]},
    ).task_id
    assert engine.drive(task_id).status == "input_required"
    decide(engine, task_id, "approve")
    assert engine.drive(task_id).status == "completed"
    assert [row.kind for row in rows(engine, task_id, scope="").values()] == [
        "loop",
        "approval",
        "effect",
    ]


def test_function_waits_without_a_process(engine: Engine) -> None:
    """Approvals, questions and timers hold the task, not a worker; the code goes on behind them."""

    def patient(ctx: FunctionContext, goal: Goal) -> str:
        before = ctx.now
        ctx.sleep(timedelta(days=1))
        said = ctx.question("word", prompt="Which word?", answer=str)
        ok = ctx.approval("publish", show={"word": said}, deadline=timedelta(hours=1))
        return f"{said} {ok.approved} {ctx.now > before}"

    task_id = start(engine, patient)
    assert engine.run(task_id) == "sleeping"
    assert engine.drive(task_id).status == "input_required"
    engine.steer(task_id, "provide_input", payload={"answer": "tree"})
    assert engine.drive(task_id).status == "input_required"
    asked = decide(engine, task_id, "approve")
    assert asked.arguments == {"show": {"word": "tree"}}
    task = engine.drive(task_id)
    assert (task.status, task.result) == ("completed", "tree True True"), task.error


def test_changed_goal_keeps_what_is_done(engine: Engine, settings: Settings) -> None:
    """E72: finished turns stay, the open one goes on with the new goal, acts get a new key."""

    def two_mails(ctx: FunctionContext, goal: Goal) -> str:
        notes = ctx.state("notes", Notes)
        for turn in ctx.loop("turn", limit=goal.turns):
            notes.words.append(turn.step("think", think, goal.word, turn.index))
            turn.effect("mail", send, goal.word)
            turn.step("again", think, goal.word, 100 + turn.index)
        return " ".join(notes.words)

    settings.RUNTIME = {**settings.RUNTIME, "slice_steps": 5}
    task_id = start(engine, two_mails)
    assert engine.run(task_id) == "slice_spent"
    assert set(rows(engine, task_id)) >= {"turn[1]/think", "turn[1]/mail"}
    engine.steer(task_id, "adjust_goal", payload={"word": "b"})
    task = engine.drive(task_id)
    assert (task.status, task.result, task.plan_version) == ("completed", "a0 b1 b2", 2), task.error
    assert RUNS["think 0"] == 1
    assert RUNS["think 1"] == 2
    assert {name for name in RUNS if name.startswith("send")} == {
        "send turn[0]/mail a",
        "send turn[1]/mail a",
        "send turn[1]/mail@2 b",
        "send turn[2]/mail@2 b",
    }
    retired = rows(engine, task_id, retired_in=2)
    assert set(retired) == {"turn[1]/think", "turn[1]/mail"}


def test_goal_changed_after_a_loop_leaves_the_loop_alone(engine: Engine) -> None:
    """The last turn of a loop that was left is gone through again, never run again."""
    define(agent)
    task_id = tasks.admit_task(
        engine.submitter,
        workflow="agent",
        goal={"turns": 2},
        source="code",
        approval_policy={"before": ["send"]},
    ).task_id
    engine.drive(task_id)
    engine.steer(task_id, "adjust_goal", payload={"word": "b", "turns": 9})
    assert engine.drive(task_id).status == "input_required"
    decide(engine, task_id, "approve")
    task = engine.drive(task_id)
    assert (task.status, task.result) == ("completed", "['a0', 'a1'] 4 a1"), task.error
    assert set(RUNS.values()) == {1}


def test_pause_and_cancel_take_effect_between_steps(engine: Engine) -> None:
    """E70: a command given while a step runs is applied before the next one."""
    give: list[str] = []

    def told(ctx: StepContext, number: int) -> int:
        ran(f"told {number}")
        if give:
            engine.steer(ctx.task_id, give.pop())
        return number

    def steered(ctx: FunctionContext, goal: Goal) -> int:
        for turn in ctx.loop("turn", limit=3):
            turn.step("told", told, turn.index)
        return 0

    give.append("pause")
    task_id = start(engine, steered)
    assert engine.run(task_id) == "paused"
    assert RUNS == {"told 0": 1}
    engine.steer(task_id, "resume")
    give.append("cancel")
    assert engine.run(task_id) == "cancelled"
    assert RUNS == {"told 0": 1, "told 1": 1}
    engine.assert_audit_verifies(task_id)
