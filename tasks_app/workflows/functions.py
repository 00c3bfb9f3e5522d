"""The function form: a workflow whose shape is known only while it runs, such as an agent's loop.

`durable_function` turns a plain function into a workflow like any other. The engine calls the
function again in every slice; what it reached is stored by name and never run twice.
"""

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, BinaryIO, ClassVar, Protocol, TypeVar, cast
from uuid import UUID

from pydantic import BaseModel
from typing_extensions import override

from tasks_app.domain.errors import ConfigurationError
from tasks_app.workflows import function_checks, registry
from tasks_app.workflows.definition import (
    STEP_ATTRIBUTE,
    Budget,
    CheckpointPolicy,
    McpTool,
    Question,
    Retry,
    StepDefinition,
    Workflow,
)
from tasks_app.workflows.inline import Preflight
from tasks_app.workflows.values import ApprovalOutcome, ArtifactRef

R = TypeVar("R")
T = TypeVar("T")


_STEP_TIMEOUT_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Ask:
    """The approval that one act needs; it lets through exactly the arguments that were shown.

    Attributes:
        deadline: how long the question stays open, at most seven days.
        show: what people see beside the arguments.
        quorum: how many different people must approve.
        on_timeout: "deny" or "fail".
    """

    deadline: timedelta
    show: Any = None
    quorum: int = 1
    on_timeout: str = "deny"


class Scope(Protocol):
    """What a function may call outside of loops, and each turn of a loop inside it.

    A result is stored under the name of its call; a second call of one name in one scope is
    stored as `name.2`. The code between the calls runs again when the task goes on elsewhere, so
    it does nothing that could not be repeated.
    """

    @property
    def task_id(self) -> UUID:
        """Return the task's id."""

    @property
    def deadline(self) -> datetime | None:
        """Return when the task must have ended."""

    @property
    def now(self) -> datetime:
        """Return the database's time, stored, so that it is the same when the code runs again."""

    @property
    def random(self) -> Random:
        """Return a source of numbers that are the same when the code runs again."""

    @property
    def cancelled(self) -> bool:
        """Tell whether someone asked to cancel the task."""

    def uuid(self, label: str) -> UUID:
        """Return an id that is the same whenever the code runs again."""

    def step(
        self,
        name: str,
        function: Callable[..., R],
        *args: Any,
        external_id: str = "",
        **kwargs: Any,
    ) -> R:
        """Run `function(ctx, *args, **kwargs)` once and return its stored result.

        Args:
            external_id: an id from outside, such as a model's tool call, kept to correlate.

        Raises: StepFailedError after the last try; uncaught it fails the task.
        """

    def effect(
        self,
        name: str,
        function: Callable[..., R],
        *args: Any,
        approval: Ask | None = None,
        external_id: str = "",
        **kwargs: Any,
    ) -> R:
        """Do one act on the outside world, entered in the ledger before the call.

        Raises: StepFailedError; NotApprovedError when people did not let it through.
        """

    def approval(
        self,
        name: str,
        *,
        deadline: timedelta,
        show: Any = None,
        quorum: int = 1,
        on_timeout: str = "deny",
    ) -> ApprovalOutcome:
        """Ask people to decide about what is shown; to bind one act, give it `approval` instead."""

    def question(
        self, name: str, *, prompt: str, answer: type[T], deadline: timedelta = timedelta(days=7)
    ) -> T:
        """Ask a question that `provide_input` answers."""

    def sleep(self, duration: timedelta, name: str = "sleep") -> None:
        """Wait by the database's clock; no process is held meanwhile."""

    def child(
        self,
        name: str,
        workflow: type[Workflow[Any, Any]],
        goal: Any,
        *,
        wait: bool = True,
        budget_share: float | None = None,
        timeout_seconds: float | None = None,
        external_id: str = "",
    ) -> Any:
        """Start a task of its own, once, and return its result, or its id without waiting.

        Args:
            wait: no process is held meanwhile.
            budget_share: how much of this task's budget the child may spend, above 0 to 1.
            timeout_seconds: the child fails when it takes longer from its start on.
            external_id: an id from outside; see `PlanBuilder.child`.

        Raises: StepFailedError when the child fails or is cancelled; its facts name the child.
        """

    def loop(self, name: str, *, limit: int) -> "Loop":
        """Return turns to iterate over, at most so many; finished ones are never run again."""

    def log(self, message: str, **facts: object) -> None:
        """Write a line to the task's journal; facts are redacted."""

    def progress(self, done: int, total: int | None = None, phase: str = "") -> None:
        """Tell people how far the work is."""

    def artifact(
        self, name: str, data: bytes | str | Path, media_type: str, *, presented: bool = True
    ) -> ArtifactRef:
        """Store an output; the same content under the same name is stored once."""

    def present(self, *paths: str) -> list[ArtifactRef]:
        """Hand over files of the workspace; see `StepContext.present`."""

    def open_artifact(self, reference: ArtifactRef) -> BinaryIO:
        """Open a stored output for reading; the caller closes it."""


class Turn(Scope, Protocol):
    """One turn of a loop: the scope of everything that happens in it."""

    @property
    def index(self) -> int:
        """Return the turn's number, from 0."""

    def stop(self) -> None:
        """Make this turn the loop's last; `break` does the same at once."""


class Loop(Protocol):
    """The turns of a loop that are still to be run."""

    def __iter__(self) -> Iterator[Turn]:
        """Yield the open turn, then the next ones."""


class FunctionContext(Scope, Protocol):
    """The `ctx` of a durable function."""

    def state(self, name: str, type_: type[T], initial: T | None = None) -> T:
        """Return a value that lives on from turn to turn; nothing else does.

        Args:
            name: unique in the function.
            type_: a pydantic model, a dataclass, or a list or dict type; changed in place.
            initial: the value before the first turn; by default an empty one.
        """


class FunctionWorkflow(Workflow[Any, Any]):
    """What `durable_function` makes of a function; its plan is written while it runs."""

    function: ClassVar[Callable[[Any, Any], Any]]
    goal_model: ClassVar[type[BaseModel]]
    goal_check: ClassVar[Callable[[Any], None] | None]
    goal_preflight: ClassVar[Preflight | None]

    @override
    def preflight(
        self, goal: Mapping[str, Any], answers: Mapping[str, Mapping[str, Any]]
    ) -> Mapping[str, Question]:
        ask = type(self).goal_preflight
        return {} if ask is None else ask(goal, answers)

    @override
    def check(self, goal: Any) -> None:
        check = type(self).goal_check
        if check is not None:
            check(goal)

    @override
    def plan(self, goal: Any, p: Any) -> Any:
        """Plan nothing: steps are appended when they are reached."""
        return None

    @override
    @classmethod
    def goal_type(cls) -> type[BaseModel]:
        return cls.goal_model

    @override
    @classmethod
    def result_type(cls) -> Any:
        return typing.get_type_hints(cls.function)["return"]

    @override
    @classmethod
    def declared_steps(cls) -> list[StepDefinition]:
        """Return the acts that the function's module knows; the function may call no other."""
        return [step for step, _ in cls._declared()]

    @override
    @classmethod
    def step_definition(cls, method: str) -> StepDefinition:
        for step, _ in cls._declared():
            if step.name == method:
                return step
        raise ConfigurationError(f"{cls.__name__} knows no step {method}")

    @override
    def callable_of(self, method: str) -> Callable[..., Any]:
        return next(code for step, code in self._declared() if step.name == method)

    @classmethod
    def _declared(cls) -> list[tuple[StepDefinition, Callable[..., Any]]]:
        closed = inspect.getclosurevars(cls.function).nonlocals
        known = {**cls.function.__globals__, **closed}.values()
        found = ((getattr(code, STEP_ATTRIBUTE, None), code) for code in known)
        return [(step, code) for step, code in found if isinstance(step, StepDefinition)]


def durable_function(
    *,
    name: str,
    version: int,
    title: str = "",
    description: str = "",
    acts: tuple[str, ...] = (),
    budget: Budget | None = None,
    checkpoint: CheckpointPolicy | None = None,
    approve_before: tuple[str, ...] = (),
    check: Callable[[Any], None] | None = None,
    compatible_with: tuple[int, ...] = (),
    mcp: McpTool | None = None,
    preflight: Preflight | None = None,
) -> Callable[[Callable[[Any, Any], Any]], type[FunctionWorkflow]]:
    """Register `function(ctx, goal)` as a workflow; goal and result are read from its annotations.

    The name then stands for the workflow: `submit(name, goal, by=…)`, `p.child(name, goal)`.

    Args:
        acts: what it does outside, for people.
        approve_before: names of its effects that always need an approval.
        check: refuses goals as `Workflow.check` does.
        compatible_with: other versions whose live tasks may go on under this code; without it
            they are held.
        mcp: how MCP clients see it.
        preflight: what to ask them before the task exists, as `Workflow.preflight` does.

    Raises:
        ConfigurationError: the declaration breaks a rule (E12); the project does not start.
    """

    def register(function: Callable[[Any, Any], Any]) -> type[FunctionWorkflow]:
        members: dict[str, Any] = {
            "__doc__": function.__doc__,
            "__module__": function.__module__,
            "__qualname__": function.__qualname__,
            "function": staticmethod(function),
            "goal_model": _goal_model(function),
            "goal_check": staticmethod(check) if check else None,
            "goal_preflight": staticmethod(preflight) if preflight else None,
            "workflow_name": name,
            "version": version,
            "title": title or name,
            "description": description,
            "acts": acts,
            "budget": budget or Budget(),
            "checkpoint": checkpoint or CheckpointPolicy(),
            "approve_before": approve_before,
            "compatible_with": compatible_with,
            "mcp": mcp or McpTool(),
        }
        function_checks.check(function)
        definition = cast(
            "type[FunctionWorkflow]", type(function.__name__, (FunctionWorkflow,), members)
        )
        registry.add(definition)
        return definition

    return register


def declared(function: Callable[..., Any], kind: str) -> StepDefinition:
    """Return what is declared about a function; an undecorated one is a plain step.

    Raises:
        ConfigurationError: it is not of that kind or has no name to be known by.
    """
    found = getattr(function, STEP_ATTRIBUTE, None)
    name = getattr(function, "__name__", "<lambda>")
    if found is None and kind == "step" and inspect.isfunction(function) and name != "<lambda>":
        if inspect.iscoroutinefunction(function):
            raise ConfigurationError(f"{function.__qualname__}: steps are plain functions")
        return StepDefinition(
            name=name,
            kind="step",
            title=name.replace("_", " ").capitalize(),
            retry=Retry(),
            timeout_seconds=_STEP_TIMEOUT_SECONDS,
        )
    if not isinstance(found, StepDefinition) or found.kind != kind:
        raise ConfigurationError(f"{getattr(function, '__qualname__', function)} is no @{kind}")
    return found


def _goal_model(function: Callable[..., Any]) -> type[BaseModel]:
    shown = getattr(function, "__qualname__", function)
    if not inspect.isfunction(function) or inspect.iscoroutinefunction(function):
        raise ConfigurationError(f"{shown}: a durable function is a plain function")
    if inspect.isgeneratorfunction(function):
        raise ConfigurationError(f"{shown}: a durable function returns its result, it never yields")
    parameters = list(inspect.signature(function).parameters)
    hints = typing.get_type_hints(function)
    goal = hints.get(parameters[1]) if len(parameters) == 2 else None
    if not (inspect.isclass(goal) and issubclass(goal, BaseModel)):
        raise ConfigurationError(f"{shown} must be written as (ctx, goal: Model) -> Result")
    if "return" not in hints:
        raise ConfigurationError(f"{shown} must name the type of its result")
    return goal
