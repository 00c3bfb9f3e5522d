"""Runs the function form: calls the author's function, again in every slice, until it returns.

Nothing is replayed that grows: what lies outside of loops is given back from its rows, a loop starts
at its open turn. See docs/decisions/no-replay.md.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from django.db.models import Case, F, Max, Value, When

from tasks_app import syncpoints
from tasks_app.domain.checkpoint import compress
from tasks_app.domain.errors import ConfigurationError, EngineSignal
from tasks_app.engine import delivery, plans, steering, step_runner, values
from tasks_app.engine.function_loop import Loop
from tasks_app.engine.function_scope import Scope, Turn
from tasks_app.engine.function_states import States
from tasks_app.engine.session import SafePointNeeded, SliceSession
from tasks_app.models import Step
from tasks_app.workflows.definition import StepDefinition
from tasks_app.workflows.values import StepFailedError

_DONE = frozenset({"succeeded", "skipped"})


class CallAgain(EngineSignal):
    """What is stored has changed under the function: call it again from its beginning."""


class EngineBroke(EngineSignal):
    """An error of the engine on its way out through the author's code, which must not catch it."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def run(session: SliceSession) -> None:
    """Work on a task of the function form until the slice ends, or until its acts are to be undone.

    Raises: SliceDone, LeaseLost; ConfigurationError and its kin when a person must look.
    """
    session.raises_failures = True
    while not session.task.closing_as:
        try:
            function = FunctionRun(session)
            if session.look_for_commands():
                raise SafePointNeeded
            syncpoints.reach("build.before", session.task.id, session.task.fence)
            result = function.call()
            delivery.complete_task(session, result)
        except SafePointNeeded:
            steering.apply_pending(session)
        except CallAgain:
            session.commit()
        except EngineBroke as broke:
            raise broke.cause from None
        else:
            return


class FunctionRun:
    """One call of the function."""

    def __init__(self, session: SliceSession) -> None:
        self.session = session
        self.task = session.task
        self.states = States()
        self.approve_before = frozenset(
            (*session.definition.approve_before, *self.task.approval_policy.get("before", ()))
        )
        # The function first, then each open turn inside the one before it, with its loop.
        self._scopes: list[tuple[Scope, Loop | None]] = []
        self._acts = frozenset(step.name for step in session.definition.declared_steps())
        self._left: EngineSignal | None = None
        self._position = self._first_free()
        session.arguments.forget_all()
        session.bound_steps.clear()
        session.completed_steps = self._completed
        session.key_at = lambda _position: self._scopes[-1][0].path if self._scopes else ""

    def call(self) -> Any:
        """Call the function and return its result as JSON data.

        Raises: whatever ends the slice.
        """
        definition: Any = self.session.definition
        goal = plans.parse_goal(definition, self.task.goal)
        with self.guarded():
            context = Context(self, "")
            self._scopes.append((context, None))
        try:
            returned = definition.function(context, goal)
        except Exception as error:  # noqa: BLE001 - the author's code may raise anything
            self._raise_left()
            self._fail(error)
        self._raise_left()
        with self.guarded():
            self.require_innermost(context)
            context.memo.settle()
            return values.to_json(definition.function, returned)[0]

    # --- what the author's code may not swallow ---------------------------------------------------

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Let out what ends the slice so that no `except` of the author's code keeps it.

        Code that catches it all the same finds the next call, or its end, raising it again.
        """
        self._raise_left()
        try:
            yield
        except StepFailedError:
            raise
        except EngineSignal as signal:
            self._left = signal
            raise
        except Exception as error:
            self._left = EngineBroke(error)
            raise self._left from error

    def _raise_left(self) -> None:
        if self._left is not None:
            raise self._left

    def call_again(self) -> None:
        """Start over, after what is stored was changed. Raises: CallAgain."""
        raise CallAgain

    def _fail(self, error: Exception) -> NoReturn:
        """Fail the task with what its code raised. Raises: SliceDone."""
        session = self.session
        if isinstance(error, StepFailedError):
            facts: dict[str, Any] = {"step": error.step, **error.facts}
            stop_reason = "step_failed"
        else:
            facts, stop_reason = step_runner.describe(error), "function_failed"
        with session.owned():
            session.commit(checkpoint="failure")
            ending = delivery.fail_task(session, facts, stop_reason=stop_reason)
        raise ending

    # --- where the function stands ----------------------------------------------------------------

    def enter(self, turn: Turn, loop: Loop) -> None:
        """Open a turn inside the present scope."""
        self._scopes.append((turn, loop))

    def exit(self, turn: Turn) -> None:
        """Close the innermost turn."""
        closed, _ = self._scopes.pop()
        if closed is not turn:
            raise ConfigurationError(f"{turn.path} ended before {closed.path} inside it")

    def require_innermost(self, scope: Scope) -> None:
        """Refuse a call on any scope but the innermost; close loops that were left by `break`."""
        if not any(known is scope for known, _ in self._scopes):
            raise ConfigurationError(f"{scope.path} has ended; call the present turn or ctx")
        while self._scopes[-1][0] is not scope:
            turn, loop = self._scopes[-1]
            if loop is None or (isinstance(turn, Turn) and turn.is_iterated()):
                raise ConfigurationError(
                    f"inside of {turn.path} call the turn's own step(), effect() and so on"
                )
            loop.leave()

    def open_loop(self, scope: Scope, row: Step, limit: int) -> Loop:
        """Return the turns of a loop whose row is stored."""
        return Loop(self, scope, row, limit)

    def require_known(self, act: StepDefinition) -> None:
        """Refuse an act that nobody could have asked to approve: the module does not know it."""
        if act.name not in self._acts:
            raise ConfigurationError(
                f"effect {act.name} must be a name of the module of the durable function"
            )

    # --- rows -------------------------------------------------------------------------------------

    def read_rows(self, path: str) -> list[Step]:
        """Return what is stored of one scope, in the order of the plan."""
        rows = Step.objects.for_tenant(self.task.tenant_id)
        of_scope = rows.filter(task_id=self.task.id, scope=path, retired_in=None)
        return list(of_scope.order_by("position"))

    def take_position(self) -> int:
        """Return the next free position of the plan."""
        self._position += 1
        return self._position - 1

    def retire(self, rows: Iterable[Step]) -> None:
        """Keep rows of an earlier goal as history. Transaction: its own."""
        retired = list(rows)
        ids = [row.pk for row in retired]
        with self.session.owned(undisturbed=True):
            self.session.commit()
            Step.objects.for_tenant(self.task.tenant_id).filter(pk__in=ids).update(
                retired_in=self.task.plan_version,
                status=Case(
                    When(status__in=("planned", "running", "waiting"), then=Value("superseded")),
                    default=F("status"),
                ),
            )
        for row in retired:
            for scope, _ in self._scopes:
                scope.memo.forget(row)

    def _first_free(self) -> int:
        rows = Step.objects.for_tenant(self.task.tenant_id).filter(task_id=self.task.id)
        last: int | None = rows.aggregate(last=Max("position"))["last"]
        return 0 if last is None else last + 1

    def _completed(self) -> list[str]:
        """Return what is done, for a checkpoint: positions, and the finished turns of loops."""
        rows = [row for scope, _ in self._scopes for row in scope.memo.rows.values()]
        turns = [
            f"{row.key}[0..{row.next_item - 1}]"
            for row in rows
            if row.kind == "loop" and row.next_item
        ]
        return [*compress(row.position for row in rows if row.status in _DONE), *turns]


class Context(Scope):
    """The `ctx` of a durable function."""

    def state(self, name: str, type_: Any, initial: Any = None) -> Any:
        """Return a value that is carried from turn to turn."""
        with self._entered():
            return self.run.states.declare(name, type_, initial)
