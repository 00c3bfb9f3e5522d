"""What functions may not do is refused by name, instead of going wrong."""

from datetime import timedelta
from typing import Any

import pytest

from tasks_app.engine import function_memo, function_states
from tasks_app.workflows import (
    FunctionContext,
    StepContext,
    effect,
)
from tests.support.engine import Engine
from tests.support.functions import (
    RUNS,
    Goal,
    start,
    think,
)

pytestmark = pytest.mark.usefixtures("own_registry")


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
