"""One stretch of a function: what it called, stored by name, and what it may call next.

The function itself is a scope and each turn of a loop is one inside it. A scope reads its rows once;
what is there is given back, what is not is run and stored under its name.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import UUID

from pydantic_core import to_jsonable_python

from ledger_app.domain.canonical import cleaned, digest_of
from tasks_app.domain.errors import ConfigurationError
from tasks_app.engine import child_runner, effect_runner, safe_point, step_runner, values, waits
from tasks_app.engine.session import BoundStep
from tasks_app.engine.step_context import RunningStep
from tasks_app.models import Step
from tasks_app.workflows import ApprovalOutcome, ArtifactRef
from tasks_app.workflows.definition import Retry, StepContext, StepDefinition
from tasks_app.workflows.functions import Ask, declared
from tasks_app.workflows.planning import approval_options, child_options, question_options
from tasks_app.workflows.values import NotApprovedError, StepFailedError

if TYPE_CHECKING:
    from tasks_app.engine.function_loop import Loop
    from tasks_app.engine.function_runner import FunctionRun

MAX_ENTRIES = 500
KEY_MAX = 100

_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
_DONE = frozenset({"succeeded", "skipped"})
_DEFAULT_ASK = Ask(deadline=timedelta(hours=4))
_NOW = StepDefinition("now", "step", "Look at the clock", Retry(), timeout_seconds=60, pure=True)


class NotRepeatableError(ConfigurationError):
    """A function that was called again took another way than what is stored of it."""

    code = "not_repeatable"


class ScopeFullError(ConfigurationError):
    """A function or one turn of a loop made more calls than are kept for it (E10)."""

    code = "scope_full"


class Scope:
    """What `workflows.functions.Scope` promises.

    `path` is empty for the function itself and names the turn otherwise, as `turn[12]`. A scope is
    `over` when the loop of its turn was left: it only repeats what is stored.
    """

    def __init__(self, run: "FunctionRun", path: str, *, over: bool = False) -> None:
        self.run = run
        self.path = path
        self.over = over
        self.impure = False
        self.random = Random(f"{run.task.id}:{path}")  # noqa: S311 - repeatable, not secret
        self.rows = {row.key: row for row in run.read_rows(path)}
        self._stored = len(self.rows)
        self._reached: set[str] = set()
        self._names: Counter[str] = Counter()
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
            row = self._reach(name, "effect", act.name, (args, kwargs), options)
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
            row = self._reach(name, "approval", f"approve_{name}", ((show,), {}), options)
            self._await(row, waits.run_approval)
            return ApprovalOutcome.model_validate(self._value(row))

    def question(
        self, name: str, *, prompt: str, answer: Any, deadline: timedelta = timedelta(days=7)
    ) -> Any:
        with self._entered():
            options = question_options(prompt, values.schema_of(answer), deadline)
            row = self._reach(name, "question", name, ((), {}), options)
            self._await(row, waits.run_question)
            return values.typed(answer, self._value(row))

    def sleep(self, duration: timedelta, name: str = "sleep") -> None:
        with self._entered():
            options = {"seconds": duration.total_seconds()}
            row = self._reach(name, "sleep", "sleep", ((), {}), options)
            self._await(row, waits.run_sleep)

    def child(
        self,
        name: str,
        workflow: Any,
        goal: Any,
        *,
        wait: bool = True,
        budget_share: float | None = None,
    ) -> Any:
        with self._entered():
            options = child_options(workflow, wait, budget_share, "fail")
            row = self._reach(name, "child", workflow.workflow_name, ((goal,), {}), options)
            self._await(row, child_runner.run_child)
            value = self._value(row)
            return values.typed(workflow.result_type(), value) if wait else UUID(value)

    def loop(self, name: str, *, limit: int) -> "Loop":
        with self._entered():
            if limit < 1:
                raise ConfigurationError(f"loop {name}: the limit is at least 1")
            row = self._reach(name, "loop", name, ((), {}), {})
            if row.pk is None:
                row.status = "running"
                self.run.session.store(row)
                self.run.session.next_position = row.position + 1
            return self.run.open_loop(self, row, limit)

    # --- things for people ------------------------------------------------------------------------

    def log(self, message: str, **facts: object) -> None:
        if not self._repeats:
            self._outside.log(message, **facts)

    def progress(self, done: int, total: int | None = None, phase: str = "") -> None:
        if not self._repeats:
            with self.run.guarded():
                self._outside.progress(done, total, phase)

    def artifact(
        self, name: str, data: bytes | str | Path, media_type: str, *, presented: bool = True
    ) -> ArtifactRef:
        with self._entered():
            return self._outside.artifact(name, data, media_type, presented=presented)

    def open_artifact(self, reference: ArtifactRef) -> BinaryIO:
        return self._outside.open_artifact(reference)

    @property
    def _repeats(self) -> bool:
        """Tell whether what comes now was done before, so that nobody is told of it twice."""
        return self.over or len(self._reached) < self._stored

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
        row = self._reach(name, "step", step.name, (args, kwargs), options)
        if row.status not in _DONE:
            safe_point.pass_by(self.run.session)
            self.impure |= not step.pure
            self.run.session.bound_steps[row.key] = BoundStep(step, function)
            step_runner.run_step(self.run.session, row)
        return self._result(row, function)

    def _act(self, row: Step, asked: Step | None, bound: BoundStep) -> None:
        """Do the act of an effect, after its approval if it needs one."""
        session = self.run.session
        safe_point.pass_by(session)
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
            safe_point.pass_by(self.run.session)
            self.impure = True
            self.run.session.store(row)
            runner(self.run.session, row)

    def _reach_approval(self, name: str, act: StepDefinition, ask: Ask) -> tuple[Step, str]:
        options = approval_options(act.name, ask.deadline, ask.quorum, ask.on_timeout)
        row = self._reach(
            f"approve_{name}", "approval", f"approve_{act.name}", ((ask.show,), {}), options
        )
        return row, row.key

    def _reach(
        self,
        name: str,
        kind: str,
        method: str,
        arguments: tuple[tuple[Any, ...], dict[str, Any]],
        options: dict[str, Any],
    ) -> Step:
        """Return the row of a call: the stored one, or a new one that has no row yet.

        Raises:
            StepFailedError: it failed for good before.
            NotRepeatableError: another call is stored under its name.
        """
        key = self._key(name)
        encoded = _encoded(key, *arguments)
        signature = digest_of(
            {
                "kind": kind,
                "method": method,
                "arguments": encoded,
                "options": {n: value for n, value in options.items() if n != "external_id"},
            }
        )
        row = self.rows.get(key)
        if row is not None and row.signature != signature:
            row = self._other(row, method)
        if row is None:
            row = self._new(key, kind, method, options, signature)
        row.arguments = encoded
        self._reached.add(key)
        if row.status == "failed":
            raise StepFailedError(key, row.error or {})
        return row

    def _key(self, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ConfigurationError(f"{name!r}: a name has letters, digits, _ and -, at most 60")
        self._names[name] += 1
        number = self._names[name]
        key = f"{self.path}/{name}" if self.path else name
        key = key if number == 1 else f"{key}.{number}"
        if len(key) > KEY_MAX:
            raise ConfigurationError(f"{key} is longer than {KEY_MAX} characters")
        return key

    def _new(
        self, key: str, kind: str, method: str, options: dict[str, Any], signature: str
    ) -> Step:
        task = self.run.task
        versions = {row.plan_version for row in self.rows.values()}
        if self.over and versions == {task.plan_version}:
            raise NotRepeatableError(f"{key} was not called when the loop was left.", step=key)
        if len(self.rows) >= MAX_ENTRIES:
            raise ScopeFullError(
                f"More than {MAX_ENTRIES} calls in {self.path or 'the function'}; use a loop.",
                scope=self.path,
            )
        row = Step(
            tenant_id=task.tenant_id,
            task_id=task.id,
            key=key,
            scope=self.path,
            position=self.run.take_position(),
            kind=kind,
            method=method,
            options=options,
            signature=signature,
            plan_version=task.plan_version,
        )
        self.rows[key] = row
        return row

    def _other(self, row: Step, method: str) -> Step | None:
        """Decide about a stored call that differs from the present one.

        A turn of a loop that was left is kept as it was. Otherwise a goal that was changed since
        explains the difference, and the call is made anew under a row, and a key, of its own.
        """
        if row.plan_version == self.run.task.plan_version:
            raise NotRepeatableError(
                f"{row.key} was stored for {row.method} and now calls {method} with arguments "
                "that differ; code between steps must do the same when it runs again.",
                step=row.key,
                stored=row.method,
                called=method,
            )
        if self.over and row.method == method:
            return row
        self.run.retire([row])
        return None

    def settle(self) -> None:
        """Take back what an earlier goal left open in a scope that now ends.

        Raises: NotRepeatableError when stored calls were not reached though the goal is the same.
        """
        left = [row for key, row in self.rows.items() if key not in self._reached]
        if self.over or not left:
            return
        version = self.run.task.plan_version
        strays = [row.key for row in left if row.plan_version == version]
        if strays:
            raise NotRepeatableError(
                f"{', '.join(strays[:5])} was stored, but the code came to its end without it.",
                step=strays[0],
            )
        self.run.retire(left)

    def forget(self, row: Step) -> None:
        """Drop a row that was retired."""
        self.rows.pop(row.key, None)

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


def _encoded(key: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        return {
            "args": [{"v": cleaned(to_jsonable_python(value))} for value in args],
            "kwargs": {
                name: {"v": cleaned(to_jsonable_python(value))} for name, value in kwargs.items()
            },
        }
    except Exception as error:
        raise ConfigurationError(f"{key}: arguments must be JSON data: {error}") from error


def _database_now(ctx: StepContext) -> datetime:
    return ctx.now
