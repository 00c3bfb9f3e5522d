"""The `scripted` workflow: runs a list of operations, without network or model, for tests.

Offered only with RUNTIME_TEST_ASSISTANT=1. Real acts of a script are lines appended to a file or
POSTs to a local address, so that a process outside can count what really happened.
"""

import ctypes
import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import httpx
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import override

from ledger_app.domain.effects import EffectKind
from tasks_app.workflows.definition import (
    Collect,
    Retry,
    StepContext,
    Workflow,
    effect,
    step,
)
from tasks_app.workflows.registry import workflow
from tasks_app.workflows.values import (
    EffectNotDoneError,
    Found,
    GoalError,
    ItemError,
    ItemList,
    MapResults,
)

_QUICK_RETRY = Retry(max=2, first_seconds=0.01, max_seconds=0.02)


class _Operation(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Say(_Operation):
    """Write a line to the journal; `append` also counts real executions in a file."""

    op: Literal["say"]
    text: str = ""
    append: str | None = None
    impure: bool = False


class Sleep(_Operation):
    """Wait: as a timer of the task, or (block) inside C code that never yields."""

    op: Literal["sleep"]
    s: float
    block: bool = False


class Effect(_Operation):
    """One act: append a line to a file, or POST to an address.

    The key is sent as `Idempotency-Key` by a keyed act and as `Reference` by the others: an outside
    that forgets nothing does the first once and the others each time.
    """

    op: Literal["effect"]
    key: str
    kind: EffectKind = EffectKind.KEYED
    unattended: bool = False
    append: str | None = None
    post: str | None = None
    patience_seconds: float = 5
    approve: bool = False
    deadline_seconds: float = 3600
    on_timeout: Literal["deny", "fail"] = "deny"
    refuse: bool = False


class Map(_Operation):
    """Process so many items; `fail` lists indexes that cannot be processed."""

    op: Literal["map"]
    count: int
    skip: list[int] = Field(default_factory=list)
    fail: list[int] = Field(default_factory=list)
    max_failed: int | None = None
    chunk: int = 10
    append: str | None = None


class Write(_Operation):
    """Store an artifact."""

    op: Literal["write"]
    path: str
    text: str


class Set(_Operation):
    """Return values as the step's result."""

    op: Literal["set"]
    values: dict[str, Any]


class Interrupt(_Operation):
    """Ask a question that `provide_input` answers."""

    op: Literal["interrupt"]
    value: str = ""
    answer: dict[str, Any] = Field(default_factory=lambda: {"type": "object"})


class Fail(_Operation):
    """Fail: `times` tries, or always."""

    op: Literal["fail"]
    error: str = "planned"
    message: str = "the script says so"
    times: int | None = None
    append: str | None = None


class Ask(_Operation):
    """Read an address; one that does not answer runs into the step's time-out."""

    op: Literal["ask"]
    url: str


class Die(_Operation):
    """Kill the worker process that runs the step, every time."""

    op: Literal["die"]


Operation = Annotated[
    Say | Sleep | Effect | Map | Write | Set | Interrupt | Fail | Ask | Die,
    Field(discriminator="op"),
]


class ScriptGoal(_Operation):
    """What the script does; `note` is only there to be changed by adjust_goal."""

    script: list[Operation] = Field(max_length=20_000)
    note: str = ""
    refuse_goal: bool = False


class Numbers(BaseModel):
    """The items of a map operation."""

    numbers: ItemList


@workflow(name="scripted", version=1, title="Scripted test workflow", description="For tests only.")
class Scripted(Workflow[ScriptGoal, dict[str, Any]]):
    """One plan step for each operation."""

    @override
    def check(self, goal: ScriptGoal) -> None:
        if goal.refuse_goal:
            raise GoalError("/refuse_goal", "goal_refused", "The script refuses its goal.")

    @override
    def plan(self, goal: ScriptGoal, p: Any) -> Any:
        last: Any = None
        for operation in goal.script:
            match operation:
                case Effect():
                    last = self._plan_effect(operation, p)
                case Map():
                    listed = p.step(self.number, operation.count, operation.skip)
                    on_error = Collect(operation.max_failed) if operation.fail else None
                    done = p.map(
                        self.square,
                        listed.field("numbers"),
                        operation.fail,
                        operation.append,
                        chunk=operation.chunk,
                        on_error=on_error,
                    )
                    last = p.step(self.total, done)
                case Interrupt():
                    last = p.question("interrupt", prompt=operation.value, answer=operation.answer)
                case Sleep() if not operation.block:
                    last = p.sleep(timedelta(seconds=operation.s))
                case Fail():
                    last = p.step(self.fail, operation)
                case Ask():
                    last = p.step(self.ask, operation)
                case Say(impure=True):
                    last = p.step(self.run_impure, operation)
                case _:
                    last = p.step(self.run, operation)
        return last

    def _plan_effect(self, operation: Effect, p: Any) -> Any:
        approval = None
        if operation.approve:
            approval = p.approval(
                f"act_{operation.key}",
                deadline=timedelta(seconds=operation.deadline_seconds),
                on_timeout=operation.on_timeout,
            )
        method = {
            EffectKind.KEYED: self.act,
            EffectKind.QUERYABLE: self.act_queryable,
            EffectKind.OPAQUE: self.act_unattended if operation.unattended else self.act_opaque,
        }[operation.kind]
        return p.effect(method, operation, approval=approval)

    @step(pure=True)
    def run(self, ctx: StepContext, operation: Operation) -> dict[str, Any]:
        """Execute an operation that needs nothing else."""
        return _run(ctx, operation)

    @step()
    def run_impure(self, ctx: StepContext, operation: Operation) -> dict[str, Any]:
        """Execute an operation whose result is committed by itself."""
        return _run(ctx, operation)

    @step(retry=Retry(max=3, first_seconds=0.01, max_seconds=0.02))
    def fail(self, ctx: StepContext, operation: Fail) -> dict[str, Any]:
        """Fail so often, counting the tries in the file."""
        tries = _append(operation.append, ctx.step_key)
        if operation.times is None or tries <= operation.times:
            raise RuntimeError(f"{operation.error}: {operation.message}")
        return {"tries": tries}

    @step(retry=Retry(max=3, first_seconds=0.01, max_seconds=0.02), timeout_seconds=0.5)
    def ask(self, ctx: StepContext, operation: Ask) -> dict[str, Any]:
        """Call a tool that only reads, with no patience limit of the call's own."""
        answer = httpx.get(operation.url, timeout=None, trust_env=False)  # noqa: S113 - the step's
        return {"status": answer.status_code}

    @step(pure=True)
    def number(self, ctx: StepContext, count: int, skip: list[int]) -> Numbers:
        """List the items of a map."""
        left_out = frozenset(skip)
        rows = ({"n": n} for n in range(count) if n not in left_out)
        return Numbers(numbers=ctx.items("numbers", rows))

    @step(pure=True)
    def square(
        self, ctx: StepContext, item: dict[str, int], fail: list[int], append: str | None
    ) -> int:
        """Process one item of a map."""
        if item["n"] in fail:
            raise ItemError("planned", f"item {item['n']} is refused")
        _append(append, str(item["n"]))
        return item["n"] ** 2

    @step(pure=True)
    def total(self, ctx: StepContext, squares: MapResults[int]) -> dict[str, int]:
        """Add up the results of a map."""
        done = [item.result for item in squares if item.result is not None]
        return {"count": len(done), "failed": squares.failed, "total": sum(done)}

    @effect(kind="keyed", retry=_QUICK_RETRY)
    def act(self, ctx: StepContext, operation: Effect) -> dict[str, Any]:
        """Do the act; the other side knows the key."""
        return _act(ctx, operation)

    @effect(kind="queryable", find="find_act", retry=_QUICK_RETRY)
    def act_queryable(self, ctx: StepContext, operation: Effect) -> dict[str, Any]:
        """Do the act; the other side does it every time, and can be asked."""
        return _act(ctx, operation)

    def find_act(self, ctx: StepContext, operation: Effect) -> Found[dict[str, Any]] | None:
        """Ask the file or the other side whether the act has happened."""
        if operation.append and ctx.effect_key in _lines(operation.append):
            return Found({"key": ctx.effect_key})
        if operation.post:
            answer = httpx.get(
                httpx.URL(operation.post).join("/find"),
                params={"key": ctx.effect_key},
                trust_env=False,
            )
            if answer.raise_for_status().json()["acts"]:
                return Found({"key": ctx.effect_key})
        return None

    @effect(kind="opaque", retry=_QUICK_RETRY)
    def act_opaque(self, ctx: StepContext, operation: Effect) -> dict[str, Any]:
        """Do the act behind an approval; the other side does it every time and tells nothing."""
        return _act(ctx, operation)

    @effect(kind="opaque", unattended=True, retry=_QUICK_RETRY)
    def act_unattended(self, ctx: StepContext, operation: Effect) -> dict[str, Any]:
        """Do the act without asking anybody."""
        return _act(ctx, operation)


def _act(ctx: StepContext, operation: Effect) -> dict[str, Any]:
    if operation.refuse:
        raise EffectNotDoneError("refused", "The other side refuses.")
    _append(operation.append, ctx.effect_key)
    if operation.post:
        name = "Idempotency-Key" if operation.kind is EffectKind.KEYED else "Reference"
        answer = httpx.post(
            operation.post,
            headers={name: ctx.effect_key},
            timeout=operation.patience_seconds,
            trust_env=False,
        )
        answer.raise_for_status()
    return {"key": ctx.effect_key}


def _run(ctx: StepContext, operation: Any) -> dict[str, Any]:
    match operation:
        case Say():
            ctx.log(operation.text)
            _append(operation.append, ctx.step_key)
            return {"said": operation.text}
        case Sleep():
            # One call into C that never comes back to Python meanwhile; it lets other threads run.
            ctypes.CDLL(None).usleep(int(operation.s * 1_000_000))
            return {"slept": operation.s}
        case Write():
            stored = ctx.artifact(operation.path, operation.text, "text/plain")
            return {"artifact": stored.model_dump(mode="json")}
        case Set():
            return operation.values
        case Die():
            os.kill(os.getpid(), signal.SIGKILL)
            return {}
        case _:
            return {}


def _append(name: str | None, line: str) -> int:
    """Append a line and return how many lines the file has now; 0 without a file."""
    if name is None:
        return 0
    path = Path(name)
    with path.open("a") as out:
        out.write(line + "\n")
    return len(_lines(name))


def _lines(name: str) -> list[str]:
    path = Path(name)
    return path.read_text().splitlines() if path.exists() else []
