"""The function form: what is stored, what runs again, and what is refused instead of going wrong."""

import json
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pydantic import BaseModel
from pytest_django import Settings

from tasks_app.admission import approvals, tasks
from tasks_app.engine import function_memo, function_states
from tasks_app.models import Approval, Checkpoint, Event, Step
from tasks_app.workflows import (
    Ask,
    EffectNotDoneError,
    FunctionContext,
    NotApprovedError,
    Retry,
    StepContext,
    StepFailedError,
    durable_function,
    effect,
    registry,
    step,
)
from tests.support.engine import Engine


class Goal(BaseModel):
    turns: int = 3
    word: str = "a"


class Notes(BaseModel):
    words: list[str] = []
    total: int = 0


RUNS: Counter[str] = Counter()
KILL: set[str] = set()


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_known", dict(registry._known))
    RUNS.clear()


def think(ctx: StepContext, word: str, number: int) -> str:
    ran(f"think {number}")
    return f"{word}{number}"


@step(pure=True)
def weigh(ctx: StepContext, text: str) -> int:
    ran(f"weigh {text}")
    return len(text)


@effect(kind="keyed", retry=Retry(max=2, first_seconds=0.01, max_seconds=0.01))
def send(ctx: StepContext, text: str) -> str:
    ran(f"send {ctx.effect_key.partition(':')[2]} {text}")
    if text == "refuse":
        raise EffectNotDoneError("refused", "No.")
    return ctx.effect_key


@step(retry=Retry(max=2, first_seconds=0.01, max_seconds=0.01))
def stumble(ctx: StepContext, times: int) -> int:
    RUNS["stumble"] += 1
    if RUNS["stumble"] <= times:
        raise RuntimeError("stumbled")
    return RUNS["stumble"]


def define(function: Callable[[Any, Any], Any], **rest: Any) -> str:
    """Register a function under its own name and return the name."""
    durable_function(name=function.__name__, version=1, **rest)(function)
    return function.__name__


def start(engine: Engine, function: Callable[[Any, Any], Any], **goal: Any) -> UUID:
    """Register the function and submit one task of it."""
    define(function)
    return submit(engine, function.__name__, **goal)


def submit(engine: Engine, name: str, **goal: Any) -> UUID:
    return tasks.admit_task(engine.submitter, workflow=name, goal=goal, source="code").task_id


class Killed(BaseException):
    """The end of a process in the middle of an author's code."""


def kill_at(engine: Engine, task_id: UUID, label: str) -> None:
    """Run a slice that dies in the body of a step, then let the sweeper find it."""
    KILL.add(label)
    with pytest.raises(Killed):
        engine.run(task_id)
    KILL.clear()
    engine.lose_lease(task_id)


def ran(label: str) -> None:
    """Count a body's run, and die in it if a test wants that."""
    RUNS[label] += 1
    if label in KILL:
        raise Killed


def decide(engine: Engine, task_id: UUID, decision: str) -> Approval:
    found: Approval = Approval.objects.for_tenant(engine.tenant.id).get(
        task_id=task_id, status="pending"
    )
    approvals.decide_approval(
        engine.approver,
        approval_id=found.id,
        decision=decision,
        args_sha256=found.args_sha256,
        expected_version=found.version,
        reason="seen",
        source="rest",
    )
    return found


def rows(engine: Engine, task_id: UUID, **filters: Any) -> dict[str, Step]:
    found = Step.objects.for_tenant(engine.tenant.id).filter(task_id=task_id, **filters)
    return {row.key: row for row in found.order_by("position")}


def agent(ctx: FunctionContext, goal: Goal) -> str:
    """Think some turns, then send what was thought."""
    notes = ctx.state("notes", Notes)
    word = ""
    for turn in ctx.loop("turn", limit=50):
        word = turn.step("think", think, goal.word, turn.index)
        notes.total += turn.step("weigh", weigh, word)
        notes.words.append(word)
        if len(notes.words) >= goal.turns:
            turn.stop()
    ctx.effect("mail", send, " ".join(notes.words))
    return f"{notes.words} {notes.total} {word}"


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


def test_code_that_takes_another_way_stops_for_a_person(engine: Engine) -> None:
    """Never a silent wrong result: other arguments, or stored steps that are not reached."""

    def other_arguments(ctx: FunctionContext, goal: Goal) -> int:
        RUNS["calls"] += 1
        ctx.step("think", think, goal.word, RUNS["calls"])
        ctx.sleep(timedelta(days=1))
        return 0

    def other_way(ctx: FunctionContext, goal: Goal) -> int:
        RUNS["calls"] += 1
        if RUNS["calls"] == 1:
            ctx.step("think", think, goal.word, 0)
            ctx.sleep(timedelta(days=1))
        return 0

    for function in (other_arguments, other_way):
        RUNS.clear()
        task = engine.drive(start(engine, function))
        assert (task.status, task.error["code"]) == ("dead_lettered", "not_repeatable")
        assert task.error["step"] == "think"


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


def outer_in_turn(ctx: FunctionContext, goal: Goal) -> None:
    for _turn in ctx.loop("turn", limit=2):
        ctx.step("think", think, goal.word, 0)


def too_many(ctx: FunctionContext, goal: Goal) -> None:
    for number in range(9):
        ctx.step("think", think, goal.word, number)


def too_large(ctx: FunctionContext, goal: Goal) -> None:
    words = ctx.state("words", list[str])
    for _turn in ctx.loop("turn", limit=2):
        words.append("a long word")


def no_name(ctx: FunctionContext, goal: Goal) -> None:
    ctx.step("a/b", think, goal.word, 0)


def nameless(ctx: FunctionContext, goal: Goal) -> None:
    ctx.step("a", lambda ctx: 0)


def no_effect(ctx: FunctionContext, goal: Goal) -> None:
    ctx.effect("a", think, goal.word, 0)


def no_json(ctx: FunctionContext, goal: Goal) -> None:
    ctx.step("a", think, object(), 0)


def hidden() -> Any:
    """Return an act that no name of this module stands for."""

    def secretly(ctx: StepContext) -> None:
        return None

    return effect(kind="keyed")(secretly)


def unknown_act(ctx: FunctionContext, goal: Goal) -> None:
    ctx.effect("a", hidden())


def test_wrong_use_is_refused_by_name(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """E10, E12: mistakes stop the task with a code and a sentence, before anything is run."""
    monkeypatch.setattr(function_memo, "MAX_ENTRIES", 3)
    monkeypatch.setattr(function_states, "LIMIT_BYTES", 10)
    expected = {
        outer_in_turn: ("configuration_error", "inside of turn[0]"),
        too_many: ("scope_full", "use a loop"),
        too_large: ("state_too_large", "10 are allowed"),
        no_name: ("configuration_error", "letters, digits"),
        nameless: ("configuration_error", "is no @step"),
        no_effect: ("configuration_error", "is no @effect"),
        no_json: ("configuration_error", "must be JSON data"),
        unknown_act: ("configuration_error", "a name of the module"),
    }
    for function, (code, words) in expected.items():
        task = engine.drive(start(engine, function))
        assert (task.status, task.error["code"]) == ("dead_lettered", code), task.error
        assert words in task.error["message"], task.error
    assert RUNS == {"think 0": 1, "think 1": 1, "think 2": 1}


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
