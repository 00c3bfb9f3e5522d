"""The `scripted.loop` workflow: the function form's counterpart of `scripted`, for tests.

Each turn may count a line in a file, act on an address and run a script as a child.
"""

import httpx
from pydantic import BaseModel, ConfigDict, Field

from tasks_app.workflows.definition import effect, step
from tasks_app.workflows.functions import FunctionContext, durable_function
from tasks_app.workflows.scripted import Scripted, append_line
from tasks_app.workflows.step_context import StepContext


class LoopGoal(BaseModel):
    """How many turns, and what each of them does; `word` is there to be changed by adjust_goal."""

    model_config = ConfigDict(extra="forbid")

    turns: int = Field(ge=1, le=10_000)
    word: str = ""
    append: str | None = None
    post: str | None = None
    child: bool = False


@step()
def say(ctx: StepContext, word: str, append: str | None) -> str:
    """Count the run in the file."""
    append_line(append, ctx.step_key)
    return f"{word}{ctx.step_key}"


@step(pure=True)
def whisper(ctx: StepContext, append: str | None) -> str:
    """Count the run in the file; the result may wait for the next commit."""
    append_line(append, ctx.step_key)
    return ctx.step_key


@effect(kind="keyed")
def act(ctx: StepContext, address: str) -> str:
    """Do the act; the other side knows the key."""
    answer = httpx.post(address, headers={"Idempotency-Key": ctx.effect_key}, trust_env=False)
    answer.raise_for_status()
    return ctx.effect_key


@durable_function(
    name="scripted.loop", version=1, title="Scripted test loop", description="For tests only."
)
def scripted_loop(ctx: FunctionContext, goal: LoopGoal) -> list[str]:
    """Run the turns and return what each of them said, in order."""
    said = ctx.state("said", list[str])
    for turn in ctx.loop("turn", limit=goal.turns):
        said.append(turn.step("say", say, goal.word, goal.append))
        if goal.post:
            turn.effect("act", act, goal.post)
        if goal.child:
            script = [{"op": "say", "append": goal.append, "impure": True}]
            turn.child("child", Scripted, {"script": script})
        said.append(turn.step("whisper", whisper, goal.append))
    return said
