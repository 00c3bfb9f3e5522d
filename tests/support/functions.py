"""Functions that tests run: what they call counts its runs and dies where a test wants that."""

from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from tasks_app.admission import approvals, tasks
from tasks_app.models import Approval, Step
from tasks_app.workflows import (
    EffectNotDoneError,
    FunctionContext,
    Retry,
    StepContext,
    durable_function,
    effect,
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
