"""The `scripted` workflow: runs a list of operations, without network or model, for tests.

Offered only with RUNTIME_TEST_ASSISTANT=1. Real acts of a script are lines appended to a file or
POSTs to a local address, so that a process outside can count what really happened.
"""

import ctypes
import os
import re
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from django.apps import apps
from pydantic import BaseModel, TypeAdapter
from typing_extensions import override

from ledger_app.domain.effects import EffectKind
from tasks_app.domain.workspace import is_output
from tasks_app.workflows.definition import (
    Collect,
    Retry,
    Workflow,
    effect,
    step,
)
from tasks_app.workflows.registry import workflow
from tasks_app.workflows.script import (
    Ask,
    Atomic,
    Child,
    Die,
    Effect,
    Fail,
    Interrupt,
    Map,
    ModelFailure,
    Operation,
    Present,
    Say,
    ScriptGoal,
    Set,
    Sleep,
    ToolCall,
    Write,
)
from tasks_app.workflows.step_context import StepContext
from tasks_app.workflows.values import (
    EffectNotDoneError,
    Found,
    GoalError,
    ItemError,
    ItemList,
    MapResults,
)

OPERATIONS: TypeAdapter[Operation] = TypeAdapter(Operation)
_THREE_TRIES = Retry(max=3, first_seconds=0.01, max_seconds=0.02)
_QUICK_RETRY = Retry(max=2, first_seconds=0.01, max_seconds=0.02)


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
        planned: list[Any] = []
        for operation in goal.script:
            planned.append(self._plan_one(operation, _under(operation, planned, p)))
        return planned[-1] if planned else None

    def _plan_one(self, operation: Operation, p: Any) -> Any:
        match operation:
            case Effect():
                return self._plan_effect(operation, p)
            case Map():
                return self._plan_map(operation, p)
            case Interrupt():
                return p.question("interrupt", prompt=operation.value, answer=operation.answer)
            case Sleep() if not operation.block:
                return p.sleep(timedelta(seconds=operation.s))
            case Fail():
                methods = {"fail": self.fail, "skip": self.fail_skipped, "ask": self.fail_asking}
                return p.step(methods[operation.on_failure], operation)
            case Ask() | Atomic() | ModelFailure():
                steps: dict[str, Any] = {"ask": self.ask, "atomic": self.add_row}
                return p.step(steps.get(operation.op, self.give_up), operation)
            case Child():
                script = {"script": operation.script}
                wait, on_failure = operation.wait, operation.on_failure
                return p.child(
                    Scripted,
                    script,
                    name="task",
                    wait=wait,
                    on_failure=on_failure,
                    timeout_seconds=operation.timeout_s,
                    external_id=operation.external_id,
                )
            case ToolCall():
                p.step(self.call_tool, operation)
                for inner in operation.then:
                    self._plan_one(OPERATIONS.validate_python(inner), p)
                return p.step(self.answer_call, operation)
            case Say(impure=True):
                return p.step(self.run_impure, operation)
            case _:
                return p.step(self.run, operation)

    def _plan_map(self, operation: Map, p: Any) -> Any:
        listed = p.step(self.number, operation.count, operation.skip)
        done = p.map(
            self.square,
            listed.field("numbers"),
            operation.fail,
            operation.append,
            chunk=operation.chunk,
            on_error=Collect(operation.max_failed) if operation.fail else None,
        )
        return p.step(self.total, done)

    def _plan_effect(self, operation: Effect, p: Any) -> Any:
        approval = None
        if operation.approve:
            approval = p.approval(
                f"act_{operation.key}",
                deadline=timedelta(seconds=operation.deadline_seconds),
                on_timeout=operation.on_timeout,
            )
        method = {
            EffectKind.KEYED: self.act_undoable if operation.undo else self.act,
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

    @step(retry=_THREE_TRIES)
    def fail(self, ctx: StepContext, operation: Fail) -> dict[str, Any]:
        """Fail so often, counting the tries in the file."""
        return _fail(ctx, operation)

    @step()
    def call_tool(self, ctx: StepContext, operation: ToolCall) -> None:
        """Say that a model calls a tool."""
        ctx.message("", tool_calls=[{"id": operation.id, "name": operation.name, "args": {}}])

    @step()
    def answer_call(self, ctx: StepContext, operation: ToolCall) -> None:
        """Say what the tool has answered."""
        ctx.message("done", type="tool", name=operation.name, tool_call_id=operation.id)

    @step(retry=_QUICK_RETRY)
    def give_up(self, ctx: StepContext, operation: ModelFailure) -> None:
        """Let the model give up, each time it is asked."""
        ctx.model_failed(operation.text, model="scripted")

    @step(retry=_THREE_TRIES, on_failure="skip")
    def fail_skipped(self, ctx: StepContext, operation: Fail) -> dict[str, Any]:
        """Fail so often; the script goes on without it."""
        return _fail(ctx, operation)

    @step(retry=_THREE_TRIES, on_failure="ask")
    def fail_asking(self, ctx: StepContext, operation: Fail) -> dict[str, Any]:
        """Fail so often; a person decides how the script goes on."""
        return _fail(ctx, operation)

    @step(atomic=True, retry=_THREE_TRIES, timeout_seconds=2)
    def add_row(self, ctx: StepContext, operation: Atomic) -> dict[str, Any]:
        """Add a row, tell of it, and fail or not."""
        name = f"{ctx.task_id}:{ctx.step_key}:{uuid4().hex}"
        apps.get_model("auth", "Group").objects.create(name=name)
        ctx.log("a row was added")
        ctx.progress(1, 2, "Adding")
        if operation.write:
            ctx.artifact(operation.write, name, "text/plain")
        tries = append_line(operation.append, ctx.step_key)
        if operation.fail and tries <= operation.fail:
            raise RuntimeError("the script says so")
        return {"row": name}

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
        append_line(append, str(item["n"]))
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

    @effect(kind="keyed", compensate="undo_act", retry=_QUICK_RETRY)
    def act_undoable(self, ctx: StepContext, operation: Effect) -> dict[str, Any]:
        """Do the act; it can be undone."""
        return _act(ctx, operation)

    @effect(kind="keyed", retry=_QUICK_RETRY)
    def undo_act(self, ctx: StepContext, done: dict[str, Any], operation: Effect) -> dict[str, Any]:
        """Undo the act: another act, of which the other side knows the key as well."""
        if operation.refuse_undo and Path(operation.refuse_undo).exists():
            raise EffectNotDoneError("refused", "The other side refuses.")
        return {"undone": done["key"], **_act(ctx, operation)}

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
    append_line(operation.append, ctx.effect_key)
    while operation.after and not Path(operation.after).exists():
        time.sleep(0.005)
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


def _under(operation: Operation, planned: list[Any], p: Any) -> Any:
    """Return the builder under the operation's condition."""
    if not operation.when:
        return p
    index, _, name = operation.when.partition(".")
    earlier = planned[int(index)]
    return p.when(earlier.field(name) if name else earlier)


def _fail(ctx: StepContext, operation: Fail) -> dict[str, Any]:
    tries = append_line(operation.append, ctx.step_key)
    if operation.times is None or tries <= operation.times:
        raise type(operation.error, (RuntimeError,), {})(operation.message)
    return {"tries": tries}


def _run(ctx: StepContext, operation: Any) -> dict[str, Any]:
    match operation:
        case Say():
            _say(ctx, operation)
            append_line(operation.append, ctx.step_key)
            return {"said": operation.text}
        case Sleep():
            # One call into C that never comes back to Python meanwhile; it lets other threads run.
            ctypes.CDLL(None).usleep(int(operation.s * 1_000_000))
            return {"slept": operation.s}
        case Write():
            text, shown = operation.text, not is_output(operation.path)
            stored = ctx.artifact(operation.path, text, "text/plain", presented=shown)
            return {"artifact": stored.model_dump(mode="json")}
        case Present():
            return {"presented": [ref.name for ref in ctx.present(*operation.paths)]}
        case Set():
            ctx.set_values(**operation.values)
            return operation.values
        case Die():
            os.kill(os.getpid(), signal.SIGKILL)
            return {}
        case _:
            return {}


def _say(ctx: StepContext, operation: Say) -> None:
    for piece in re.findall(r"\s*\S+|\s+$", operation.text):
        ctx.stream(piece)
    ctx.message(operation.text)
    if operation.tokens and operation.call_id:
        spent, made = operation.tokens
        ctx.usage(operation.call_id, model=operation.model, input_tokens=spent, output_tokens=made)


def append_line(name: str | None, line: str) -> int:
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
