"""Installing one version after another of a workflow, as deployments do."""

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict
from typing_extensions import override

from tasks_app.workflows import StepContext, Workflow, registry, step, workflow

NAME = "versioned"

Plan = Callable[[Any, Any, Any], Any]


class Goal(BaseModel):
    """What the first versions take."""

    model_config = ConfigDict(extra="forbid")

    words: list[str] = ["one", "two", "three"]


class Base(Workflow[Goal, Any]):
    """The steps that every version has; each run is noted in `ran`."""

    ran: list[str]

    @step()
    def load(self, ctx: StepContext, words: list[str]) -> list[str]:
        self.ran.append(ctx.step_key)
        return words

    @step()
    def join(self, ctx: StepContext, words: list[str], between: str) -> str:
        self.ran.append(ctx.step_key)
        return between.join(words)

    @step()
    def shout(self, ctx: StepContext, text: str) -> str:
        self.ran.append(ctx.step_key)
        return text.upper()


def first_plan(self: Any, goal: Goal, p: Any) -> Any:
    """Load, ask, join: the question is where a deployment finds the task."""
    words = p.step(self.load, goal.words)
    p.question("go_on", prompt="Go on?", answer={"type": "object"})
    return p.step(self.join, words, " ")


class Deployment:
    """Which version is installed; steps of all versions note their runs in one list."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def install(
        self,
        version: int,
        plan: Plan | None = None,
        *,
        base: type[Workflow[Any, Any]] = Base,
        compatible_with: tuple[int, ...] = (),
        **members: Any,
    ) -> type[Workflow[Any, Any]]:
        members = {"plan": override(plan or first_plan), "ran": self.ran, **members}
        made = type("Versioned", (base,), members)
        return workflow(name=NAME, version=version, compatible_with=compatible_with)(made)

    def remove(self) -> None:
        registry._known.pop(NAME)
