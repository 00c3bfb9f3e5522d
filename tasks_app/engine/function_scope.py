"""One stretch of a function: what it called, stored by name, and what it may call next.

The function itself is a scope and each turn of a loop is one inside it. A scope reads its rows once;
what is there is given back, what is not is run and stored under its name.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import UUID

from tasks_app.domain.errors import ConfigurationError
from tasks_app.engine import (
    child_runner,
    effect_runner,
    limits,
    safe_point,
    step_runner,
    values,
    waits,
)
from tasks_app.engine.function_memo import Memo
from tasks_app.engine.session import BoundStep
from tasks_app.engine.step_context import RunningStep
from tasks_app.models import Step
from tasks_app.workflows import ApprovalOutcome, ArtifactRef
from tasks_app.workflows.definition import Retry, StepDefinition
from tasks_app.workflows.functions import Ask, declared
from tasks_app.workflows.planning import approval_options, child_options, question_options
from tasks_app.workflows.step_context import StepContext
from tasks_app.workflows.values import NotApprovedError

if TYPE_CHECKING:
    from tasks_app.engine.function_loop import Loop
    from tasks_app.engine.function_runner import FunctionRun

_DONE = frozenset({"succeeded", "skipped"})
_DEFAULT_ASK = Ask(deadline=timedelta(hours=4))
_NOW = StepDefinition("now", "step", "Look at the clock", Retry(), timeout_seconds=60, pure=True)


class Scope:
    """What `workflows.functions.Scope` promises.

    `path` is empty for the function itself and names the turn otherwise, as `turn[12]`. A scope is
    `over` when the loop of its turn was left: it only repeats what is stored.
    """

    def __init__(self, run: "FunctionRun", path: str, *, over: bool = False) -> None:
        self.run = run
        self.path = path
        self.memo = Memo(run, path, over=over)
        self.impure = False
        self.random = Random(f"{run.task.id}:{path}")  # noqa: S311 - repeatable, not secret
        place = Step(task_id=run.task.id, key=path or "function", plan_version=1)
        self._outside = RunningStep(run.session, place)

    # --- facts ----------------------------------------------------------------------------------

    @property
    def task_id(self) -> UUID:
        return self.run.task.id

    @property
    def deadline(self) -> datetime | None:
        return self._outside.deadline

    @property
    def now(self) -> datetime:
        with self._entered():
            found: datetime = self._step("now", _database_now, _NOW, (), {}, "")
            return found

    @property
    def cancelled(self) -> bool:
        return self._outside.cancelled

    def uuid(self, label: str) -> UUID:
        return self._outside.uuid(label)

    # --- calls whose outcome is stored ------------------------------------------------------------

    def step(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        external_id: str = "",
        **kwargs: Any,
    ) -> Any:
        with self._entered():
            return self._step(name, function, declared(function, "step"), args, kwargs, external_id)

    def effect(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        approval: Ask | None = None,
        external_id: str = "",
        **kwargs: Any,
    ) -> Any:
        with self._entered():
            act = declared(function, "effect")
            self.run.require_known(act)
            if approval is None and act.wants_approval(self.run.approve_before):
                approval = _DEFAULT_ASK
            options = {"external_id": external_id} if external_id else {}
            asked = None
            if approval is not None:
                asked, options["approval"] = self._reach_approval(name, act, approval)
            row = self.memo.reach(name, "effect", act.name, (args, kwargs), options)
            if row.status not in _DONE:
                self._act(row, asked, BoundStep(act, function))
            if row.status == "skipped" and row.error is None:
                raise NotApprovedError(
                    row.key, {"code": "not_approved", "message": f"{act.name} was not approved."}
                )
            return self._result(row, function)

    def approval(
        self,
        name: str,
        *,
        deadline: timedelta,
        show: Any = None,
        quorum: int = 1,
        on_timeout: str = "deny",
    ) -> ApprovalOutcome:
        with self._entered():
            options = approval_options(name, deadline, quorum, on_timeout)
            row = self.memo.reach(name, "approval", f"approve_{name}", ((show,), {}), options)
            self._await(row, waits.run_approval)
            return ApprovalOutcome.model_validate(self._value(row))

    def question(
        self, name: str, *, prompt: str, answer: Any, deadline: timedelta = timedelta(days=7)
    ) -> Any:
        with self._entered():
            options = question_options(prompt, values.schema_of(answer), deadline)
            row = self.memo.reach(name, "question", name, ((), {}), options)
            self._await(row, waits.run_question)
            return values.typed(answer, self._value(row))

    def sleep(self, duration: timedelta, name: str = "sleep") -> None:
        with self._entered():
            options = {"seconds": duration.total_seconds()}
            row = self.memo.reach(name, "sleep", "sleep", ((), {}), options)
            self._await(row, waits.run_sleep)

    def child(
        self,
        name: str,
        workflow: Any,
        goal: Any,
        *,
        wait: bool = True,
        budget_share: float | None = None,
        timeout_seconds: float | None = None,
        external_id: str = "",
    ) -> Any:
        with self._entered():
            options = child_options(
                workflow, wait, budget_share, "fail", timeout_seconds, external_id
            )
            row = self.memo.reach(name, "child", workflow.workflow_name, ((goal,), {}), options)
            self._await(row, child_runner.run_child)
            value = self._value(row)
            return values.typed(workflow.result_type(), value) if wait else UUID(value)

    def loop(self, name: str, *, limit: int) -> "Loop":
        with self._entered():
            if limit < 1:
                raise ConfigurationError(f"loop {name}: the limit is at least 1")
            row = self.memo.reach(name, "loop", name, ((), {}), {})
            if row.pk is None:
                row.status = "running"
                self.run.session.store(row)
                self.run.session.next_position = row.position + 1
            return self.run.open_loop(self, row, limit)

    # --- things for people ------------------------------------------------------------------------

    def log(self, message: str, **facts: object) -> None:
        if not self.memo.repeats:
            self._outside.log(message, **facts)

    def progress(self, done: int, total: int | None = None, phase: str = "") -> None:
        if not self.memo.repeats:
            with self.run.guarded():
                self._outside.progress(done, total, phase)

    def artifact(
        self, name: str, data: bytes | str | Path, media_type: str, *, presented: bool = True
    ) -> ArtifactRef:
        with self._entered():
            return self._outside.artifact(name, data, media_type, presented=presented)

    def present(self, *paths: str) -> list[ArtifactRef]:
        with self._entered():
            return self._outside.present(*paths)

    def open_artifact(self, reference: ArtifactRef) -> BinaryIO:
        return self._outside.open_artifact(reference)

    # --- how -------------------------------------------------------------------------------------

    @contextmanager
    def _entered(self) -> Iterator[None]:
        with self.run.guarded():
            self.run.require_innermost(self)
            yield

    def _step(
        self,
        name: str,
        function: Callable[..., Any],
        step: StepDefinition,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        external_id: str,
    ) -> Any:
        options = {"external_id": external_id} if external_id else {}
        row = self.memo.reach(name, "step", step.name, (args, kwargs), options)
        if row.status not in _DONE:
            self._pass_by(row)
            self.impure |= not step.pure
            self.run.session.bound_steps[row.key] = BoundStep(step, function)
            step_runner.run_step(self.run.session, row)
        return self._result(row, function)

    def _act(self, row: Step, asked: Step | None, bound: BoundStep) -> None:
        """Do the act of an effect, after its approval if it needs one."""
        session = self.run.session
        self._pass_by(row)
        self.impure = True
        session.store(*([asked, row] if asked else [row]))
        session.bound_steps[row.key] = bound
        if asked is not None and asked.status not in _DONE:
            waits.run_approval(session, asked)
        effect_runner.run_effect(session, row)
        if row.status not in _DONE:
            # Its approval does not count any more and is asked for again.
            self.run.call_again()

    def _await(self, row: Step, runner: Callable[[Any, Step], None]) -> None:
        if row.status not in _DONE:
            self._pass_by(row)
            self.impure = True
            self.run.session.store(row)
            runner(self.run.session, row)

    def _pass_by(self, row: Step) -> None:
        """Go on to a call whose outcome is not stored, if nothing stands before it."""
        safe_point.pass_by(self.run.session)
        limits.check(self.run.session, row)

    def _reach_approval(self, name: str, act: StepDefinition, ask: Ask) -> tuple[Step, str]:
        options = approval_options(act.name, ask.deadline, ask.quorum, ask.on_timeout)
        row = self.memo.reach(
            f"approve_{name}", "approval", f"approve_{act.name}", ((ask.show,), {}), options
        )
        return row, row.key

    def _result(self, row: Step, function: Callable[..., Any]) -> Any:
        """Return a call's result; None when it asked to be left out after its last try."""
        if row.status == "skipped":
            return None
        return values.result_of(function, self._value(row))

    def _value(self, row: Step) -> Any:
        session = self.run.session
        if row.result is not None:
            return values.unpack(session.task.tenant_id, row.result)
        return session.arguments.value({"ref": row.key, "path": []})


class Turn(Scope):
    """One turn of a loop."""

    def __init__(
        self,
        run: "FunctionRun",
        path: str,
        index: int,
        is_iterated: Callable[[], bool],
        **rest: Any,
    ) -> None:
        super().__init__(run, path, **rest)
        self.index = index
        self.is_iterated = is_iterated
        self.is_stopped = False

    def stop(self) -> None:
        """Make this turn the loop's last."""
        self.is_stopped = True


def _database_now(ctx: StepContext) -> datetime:
    return ctx.now
