"""What `durable_function` refuses when the project starts (E12)."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from tasks_app.domain.errors import ConfigurationError
from tasks_app.workflows import (
    FunctionContext,
    GoalError,
    StepContext,
    durable_function,
    effect,
    registry,
)


class Goal(BaseModel):
    n: int = 1


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_known", dict(registry._known))


def think(ctx: StepContext, words: Any) -> str:
    return ""


@effect(kind="keyed")
def publish(ctx: StepContext) -> None:
    return None


def declare(function: Callable[..., Any], **rest: Any) -> Any:
    return durable_function(name=function.__name__, version=1, **rest)(function)


def carries_a_number(ctx: FunctionContext, goal: Goal) -> int:
    count = 0
    for _turn in ctx.loop("turn", limit=3):
        count += 1
    return count


def carries_a_list(ctx: FunctionContext, goal: Goal) -> int:
    words: list[str] = []
    for turn in ctx.loop("turn", limit=3):
        words.append(turn.step("think", think, words))
    return len(words)


def carries_a_draft(ctx: FunctionContext, goal: Goal) -> str:
    draft = ""
    for outer in ctx.loop("outer", limit=3):
        for inner in outer.loop("inner", limit=3):
            draft = inner.step("think", think, draft)
    return draft


def carries_a_table(ctx: FunctionContext, goal: Goal) -> int:
    table = {}
    for turn in ctx.loop("turn", limit=3):
        table[turn.index] = turn.step("think", think, None)
    return len(table)


@pytest.mark.parametrize(
    "function", [carries_a_number, carries_a_list, carries_a_draft, carries_a_table]
)
def test_variable_carried_from_turn_to_turn_is_refused(function: Any) -> None:
    """A task that goes on elsewhere starts at its open turn: only states are there."""
    with pytest.raises(ConfigurationError, match=r"carried from turn to turn.*ctx\.state"):
        declare(function)


def carries_nothing(ctx: FunctionContext, goal: Goal) -> int:
    words = ctx.state("words", list[str])
    word = ""
    for turn in ctx.loop("turn", limit=3):
        parts = []
        for number in range(3):
            parts.append(turn.step("think", think, number))  # noqa: PERF401 - the usual form
        word = "".join(parts)
        words.append(word)
        words[0] = word
        found = [part for part in parts if part]
        parts.extend(found)
        if word:
            turn.stop()
    return len(word)


def test_variables_of_one_turn_are_its_own() -> None:
    """States may change, and so may what a turn makes itself."""
    definition = declare(carries_nothing)
    assert definition.goal_type() is Goal
    assert registry.get_workflow("carries_nothing").version == 1


def without_model(ctx: Any, goal: dict[str, int]) -> int:
    return 0


def without_result(ctx: Any, goal: Goal):  # type: ignore[no-untyped-def]  # noqa: ANN201
    return 0


def with_more(ctx: Any, goal: Goal, more: int) -> int:
    return more


async def waits(ctx: Any, goal: Goal) -> int:
    return 0


def yields(ctx: Any, goal: Goal) -> Any:
    yield 0


@pytest.mark.parametrize("function", [without_model, without_result, with_more, waits, yields])
def test_function_that_cannot_be_called_is_refused(function: Any) -> None:
    """Goal and result are read from the annotations of a plain function."""
    with pytest.raises(ConfigurationError, match=function.__name__):
        declare(function)


def acts(ctx: FunctionContext, goal: Goal) -> None:
    ctx.effect("publish", publish)


def test_approve_before_must_name_an_act_of_the_module() -> None:
    """A misspelt name would silently leave an act unapproved."""
    with pytest.raises(ConfigurationError, match="approve_before"):
        declare(acts, approve_before=("publis",))
    assert registry.effect_names(declare(acts, approve_before=("publish",))) == {"publish"}


def test_goal_is_checked_as_that_of_a_class() -> None:
    """`check` refuses a goal before anything is stored."""

    def refuse(goal: Goal) -> None:
        raise GoalError("/n", "odd", "No.")

    with pytest.raises(GoalError):
        declare(acts, check=refuse)().check(Goal())


def test_two_workflows_of_one_name_are_refused() -> None:
    """The name decides which code runs."""
    declare(acts)
    with pytest.raises(ConfigurationError, match="two workflows"):
        durable_function(name="acts", version=1)(carries_nothing)
