"""The workflows that are measured: steps that do nothing, so that the engine is all that costs."""

import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel
from typing_extensions import override

from tasks_app.workflows import (
    CheckpointPolicy,
    ItemList,
    StepContext,
    Workflow,
    effect,
    step,
    workflow,
)

# Called with the number of each step or item that begins, when the bench runs slices itself.
probe: Callable[[int], None] = lambda _number: None  # noqa: E731


class StepsGoal(BaseModel):
    """So many steps of one kind."""

    steps: int
    kind: Literal["committed", "pure", "act", "timed", "traced"] = "committed"
    trace: str = ""
    seconds: float = 0


class ItemsGoal(BaseModel):
    """So many items of a map."""

    items: int


class Numbers(BaseModel):
    """The items of the map."""

    numbers: ItemList


@workflow(name="bench.steps", version=1, title="Steps that are measured")
class Steps(Workflow[StepsGoal, None]):
    """A plan of equal steps."""

    checkpoint = CheckpointPolicy(every_steps=10, max_seconds=60)

    @override
    def plan(self, goal: StepsGoal, p: Any) -> None:
        if goal.kind == "traced":
            self._plan_traced(goal, p)
            return
        for number in range(goal.steps):
            match goal.kind:
                case "committed":
                    p.step(self.committed, number)
                case "pure":
                    p.step(self.pure, number)
                case "timed":
                    p.step(self.timed, number)
                case "act":
                    p.effect(self.act, number)

    def _plan_traced(self, goal: StepsGoal, p: Any) -> None:
        for number in range(goal.steps):
            p.step(self.traced, number, goal.trace, goal.seconds)
            p.effect(self.traced_act, number, goal.trace)

    @step()
    def committed(self, ctx: StepContext, number: int) -> int:
        """Return the number; the result is committed by itself."""
        probe(number)
        return number

    @step(pure=True)
    def pure(self, ctx: StepContext, number: int) -> int:
        """Return the number; the result may wait for the next commit."""
        probe(number)
        return number

    @step()
    def timed(self, ctx: StepContext, number: int) -> float:
        """Return when the step ran, on the clock that all processes of a machine share."""
        return time.monotonic()

    @effect(kind="keyed")
    def act(self, ctx: StepContext, number: int) -> int:
        """Do nothing outside; the ledger is what costs."""
        probe(number)
        return number

    @step()
    def traced(self, ctx: StepContext, number: int, trace: str, seconds: float) -> None:
        """Take a moment and leave a line."""
        _leave(trace, "step", number)
        _pause(seconds)

    @effect(kind="keyed")
    def traced_act(self, ctx: StepContext, number: int, trace: str) -> None:
        """Leave a line outside."""
        _leave(trace, "act", number)


@workflow(name="bench.items", version=1, title="Items that are measured")
class Items(Workflow[ItemsGoal, None]):
    """A list and a map over it."""

    @override
    def plan(self, goal: ItemsGoal, p: Any) -> Any:
        listed = p.step(self.number, goal.items)
        p.map(self.square, listed.field("numbers"), chunk=50)

    @step(pure=True)
    def number(self, ctx: StepContext, items: int) -> Numbers:
        """List the items."""
        return Numbers(numbers=ctx.items("numbers", ({"n": n} for n in range(items))))

    @step(pure=True)
    def square(self, ctx: StepContext, item: dict[str, int]) -> int:
        """Process one item."""
        probe(item["n"])
        return item["n"] ** 2


def _leave(trace: str, kind: str, number: int) -> None:
    line = f"{time.monotonic()} {os.getpid()} {kind} {number}\n"
    with Path(trace).open("a") as out:
        out.write(line)


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)


class Rest(BaseModel):
    """How long to sleep."""

    seconds: float


@workflow(name="bench.rest", version=1)
class Resting(Workflow[Rest, Any]):
    """Waits for a time, without a process."""

    @override
    def plan(self, goal: Rest, p: Any) -> Any:
        return p.sleep(timedelta(seconds=goal.seconds))
