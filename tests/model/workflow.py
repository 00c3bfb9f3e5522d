"""The workflow that schedules run: a few steps of every kind, drawn from the seed."""

import random
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict
from typing_extensions import override

from ledger_app.services import usage
from tasks_app.workflows import (
    Collect,
    EffectNotDoneError,
    Found,
    ItemError,
    MapResults,
    Retry,
    StepContext,
    Workflow,
    effect,
    step,
    workflow,
)
from tests.model.world import world

NAME = "model.random"
# Pauses are long: virtual time ends them, real time never does.
_RETRY = Retry(max=3, first_seconds=900, max_seconds=1000)


class Operation(BaseModel):
    """One thing to do; `label` makes its arguments different from others'."""

    model_config = ConfigDict(extra="forbid")
    op: str
    label: str = ""
    quorum: int = 1
    items: int = 0
    deadline_seconds: float = 20_000


class ModelGoal(BaseModel):
    """What a task of a seed does."""

    model_config = ConfigDict(extra="forbid")
    script: list[Operation]
    note: str = ""


@workflow(name=NAME, version=1, title="Random model")
class RandomModel(Workflow[ModelGoal, dict[str, Any]]):
    """One or two plan steps for each operation."""

    @override
    def plan(self, goal: ModelGoal, p: Any) -> Any:
        last: Any = None
        for operation in goal.script:
            last = self._add(operation, p)
        return last

    def _add(self, operation: Operation, p: Any) -> Any:
        label, deadline = operation.label, timedelta(seconds=operation.deadline_seconds)
        match operation.op:
            case "pure":
                return p.step(self.think, label)
            case "impure":
                return p.step(self.note, label)
            case "use":
                return p.step(self.use, label)
            case "fail":
                return p.step(self.stumble, label)
            case "map":
                items = list(range(operation.items))
                on_error = Collect(None)
                return p.step(
                    self.add_up, p.map(self.square, items, label, chunk=2, on_error=on_error)
                )
            case "sleep":
                return p.sleep(timedelta(seconds=2000))
            case "question":
                return p.question("ask", prompt=label, answer={"type": "object"}, deadline=deadline)
            case "asked":
                ok = p.approval("keyed", deadline=deadline, quorum=operation.quorum)
                return p.effect(self.keyed, label, approval=ok)
            case "keyed":
                return p.effect(self.keyed, label)
            case "queryable":
                return p.effect(self.queryable, label)
            case "opaque":
                return p.effect(self.opaque, label)
        raise AssertionError(operation.op)

    @step(pure=True)
    def think(self, ctx: StepContext, label: str) -> str:
        world().other_side.runs[f"{ctx.task_id}:{ctx.step_key}"] += 1
        ctx.log(label)
        return label

    @step()
    def note(self, ctx: StepContext, label: str) -> str:
        world().other_side.runs[f"{ctx.task_id}:{ctx.step_key}"] += 1
        ctx.artifact(f"{ctx.step_key}.txt", label, "text/plain")
        return label

    @step(retry=_RETRY)
    def use(self, ctx: StepContext, label: str) -> str:
        source = f"{ctx.step_key}:{label}"
        tokens_in, tokens_out, micros = world().other_side.use_model(ctx.task_id, source)
        usage.record(
            tenant_id=world().tenant_id,
            task_id=ctx.task_id,
            source_id=source,
            caller="lead_agent",
            model="none",
            input_tokens=tokens_in,
            output_tokens=tokens_out,
            cost_micros=micros,
            currency="EUR",
        )
        return label

    @step(retry=_RETRY)
    def stumble(self, ctx: StepContext, label: str) -> str:
        if world().other_side.chance.random() < 0.4:
            raise RuntimeError(label)
        return label

    @step(pure=True)
    def square(self, ctx: StepContext, item: int, label: str) -> int:
        world().other_side.runs[f"{ctx.task_id}:{ctx.step_key}:{item}"] += 1
        if item == 3:
            raise ItemError("three", "three is refused")
        return item * item

    @step(pure=True)
    def add_up(self, ctx: StepContext, squares: MapResults[int]) -> dict[str, int]:
        done = [item.result for item in squares if item.result is not None]
        return {"count": len(done), "total": sum(done)}

    @effect(kind="keyed", retry=_RETRY)
    def keyed(self, ctx: StepContext, label: str) -> str:
        return world().other_side.call(ctx.effect_key, "keyed")

    @effect(kind="queryable", find="find_queryable", retry=_RETRY)
    def queryable(self, ctx: StepContext, label: str) -> str:
        if label == "refused":
            raise EffectNotDoneError("refused", "The other side refuses.")
        return world().other_side.call(ctx.effect_key, "queryable")

    def find_queryable(self, ctx: StepContext, label: str) -> Found[str] | None:
        if world().other_side.has_acted(ctx.effect_key):
            return Found(f"done {ctx.effect_key}")
        return None

    @effect(kind="opaque", unattended=True)
    def opaque(self, ctx: StepContext, label: str) -> str:
        return world().other_side.call(ctx.effect_key, "opaque")


_OPS = {
    "pure": 4,
    "impure": 3,
    "use": 1,
    "fail": 1,
    "map": 2,
    "sleep": 1,
    "question": 1,
    "asked": 2,
    "keyed": 2,
    "queryable": 3,
    "opaque": 3,
}


def draw_operation(chance: random.Random, label: str) -> dict[str, Any]:
    """Return one operation."""
    op = chance.choices(list(_OPS), list(_OPS.values()))[0]
    drawn: dict[str, Any] = {"op": op, "label": label}
    if op == "map":
        drawn["items"] = chance.randint(0, 6)
    if op == "asked":
        drawn["quorum"] = chance.choice([1, 1, 2])
    if op in {"asked", "question"}:
        drawn["deadline_seconds"] = chance.choice([1400, 3000, 20_000])
    if op == "queryable" and chance.random() < 0.1:
        drawn["label"] = "refused"
    return drawn


def draw_script(chance: random.Random) -> list[dict[str, Any]]:
    """Return the operations of one task."""
    script = [draw_operation(chance, f"o{n}") for n in range(chance.randint(2, 5))]
    if chance.random() < 0.3:
        # What people are asked about soon is what most can go wrong with.
        quorum, deadline = chance.choice([1, 2]), chance.choice([1400, 3000, 20_000])
        asked = {"op": "asked", "label": "early", "quorum": quorum, "deadline_seconds": deadline}
        script.insert(chance.randint(0, 1), asked)
    return script
