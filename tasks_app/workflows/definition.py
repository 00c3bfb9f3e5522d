"""How an author declares a workflow: classes and decorators.

The engine reaches this code only through `registry`; a step sees only `StepContext`. So neither
imports the other.
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import (
    Any,
    ClassVar,
    Generic,
    Literal,
    TypeVar,
    get_args,
)

from pydantic import BaseModel

from ledger_app.domain.effects import EffectKind
from tasks_app.domain.errors import ConfigurationError

GoalT = TypeVar("GoalT", bound=BaseModel)
ResultT = TypeVar("ResultT")
F = TypeVar("F", bound=Callable[..., Any])

STEP_ATTRIBUTE = "__durable_step__"

STEP_TIMEOUT_SECONDS = 600.0
# An atomic step holds a transaction open; it is checked against the lease when the project starts.
ATOMIC_TIMEOUT_SECONDS = 10.0
ON_FAILURE = frozenset({"fail", "skip", "ask"})


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """When a checkpoint is due: after so many steps or so many seconds, whichever comes first."""

    every_steps: int = 10
    max_seconds: float = 60


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a failing step is tried, and how long the pauses grow (with jitter)."""

    max: int = 3
    first_seconds: float = 1
    max_seconds: float = 60


@dataclass(frozen=True, slots=True)
class Budget:
    """What a task may spend; None means the installation's limit."""

    steps: int | None = None
    active_seconds: int | None = None
    tool_calls: int | None = None
    tokens: int | None = None
    money_micros: int | None = None

    def limits(self) -> dict[str, int | None]:
        """Return the limits by kind."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one call of a step may use at most; taken out of the task's budget before the call.

    `model` names the tenant's price by which tokens become money where money is limited.
    """

    tokens: int = 0
    tool_calls: int = 0
    money_micros: int = 0
    model: str = ""

    def amounts(self, calls: int = 1) -> dict[str, int]:
        """Return what so many calls may use, by kind of budget."""
        amounts = {
            "tokens": self.tokens,
            "tool_calls": self.tool_calls,
            "money_micros": self.money_micros,
        }
        return {kind: amount * calls for kind, amount in amounts.items() if amount}


@dataclass(frozen=True, slots=True)
class McpTool:
    """How a workflow looks to MCP clients.

    Attributes:
        listed: whether there is a tool for it at all.
        sync: what a client gets that does not know tasks: `wait` a while for the result and then
            take a handle, take the `handle` at once, or `refuse` the call.
        approval: how its approvals are offered: on a page (`url`), as a `form`, or `never`.
        read_only: the workflow changes nothing outside; a hint for people's clients.
    """

    listed: bool = True
    sync: Literal["wait", "handle", "refuse"] = "wait"
    approval: Literal["url", "form", "never"] = "url"
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked before a task exists; `schema` is one flat object of an answer's fields."""

    message: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Collect:
    """Let a map go on past failed items, up to a number of them (None: any number)."""

    max_failed: int | None = None


@dataclass(frozen=True, slots=True)
class StepDefinition:
    """What the decorators know about a method."""

    name: str
    kind: str
    title: str
    retry: Retry
    timeout_seconds: float
    pure: bool = False
    expensive: bool = False
    atomic: bool = False
    on_failure: str = "fail"
    effect_kind: str = ""
    # The name of a method, or a function; empty for none.
    find: str | Callable[..., Any] = ""
    unattended: bool = False
    # The name of the effect that undoes this one; empty for none.
    compensate: str = ""
    estimate: Estimate | None = None

    def wants_approval(self, approve_before: Collection[str]) -> bool:
        """Tell whether an effect may not happen without an approval, whatever its caller says."""
        blind = self.effect_kind == EffectKind.OPAQUE and not self.unattended
        return blind or self.name in approve_before


class Workflow(Generic[GoalT, ResultT]):
    """Base of class-form workflows. Instances hold no state: a slice makes a new one."""

    workflow_name: ClassVar[str]
    version: ClassVar[int]
    title: ClassVar[str]
    description: ClassVar[str]
    acts: ClassVar[tuple[str, ...]]
    checkpoint: ClassVar[CheckpointPolicy] = CheckpointPolicy()
    budget: ClassVar[Budget] = Budget()
    approve_before: ClassVar[tuple[str, ...]] = ()
    # Older or newer versions whose tasks may go on under this code with the plan they have.
    compatible_with: ClassVar[tuple[int, ...]] = ()
    mcp: ClassVar[McpTool] = McpTool()

    def preflight(
        self, goal: Mapping[str, Any], answers: Mapping[str, Mapping[str, Any]]
    ) -> Mapping[str, Question]:
        """Return what an MCP client is to be asked before the task exists, by name; none by default.

        Args:
            goal: what the caller sent; it may not fit the goal's model yet.
            answers: those given so far, each fitting its question's schema. Names of the goal's
                fields in an answer are put into the goal once nothing is left to ask.
        """
        return {}

    def check(self, goal: GoalT) -> None:
        """Refuse a goal that cannot be worked on, before anything is stored.

        Raises:
            GoalError: names the field by JSON pointer.
        """

    def plan(self, goal: GoalT, p: Any) -> Any:
        """Build the plan: pure data, run once for each plan version, never on resume."""
        raise ConfigurationError(f"{type(self).__name__} has no plan")

    def replan(self, goal: GoalT, done: Mapping[str, Any], p: Any) -> Any:
        """Build the plan for a changed goal; by default as for a new task.

        Finished steps that the new plan has with the same signature keep their results.

        Args:
            done: results of the finished steps of the present plan by key, read when asked for.
        """
        return self.plan(goal, p)

    @classmethod
    def goal_type(cls) -> type[BaseModel]:
        """Return the goal's model, read from the class's type arguments."""
        for base in getattr(cls, "__orig_bases__", ()):
            arguments = get_args(base)
            goal = arguments[0] if arguments else None
            if inspect.isclass(goal) and issubclass(goal, BaseModel):
                return goal
        raise ConfigurationError(
            f"{cls.__name__} must name its goal, a pydantic model: Workflow[Goal, Result]"
        )

    @classmethod
    def result_type(cls) -> Any:
        """Return the type of the result, read from the class's type arguments; Any if unnamed."""
        for base in getattr(cls, "__orig_bases__", ()):
            arguments = get_args(base)
            if len(arguments) == 2:
                return arguments[1]
        return Any

    @classmethod
    def declared_steps(cls) -> list[StepDefinition]:
        """Return what the decorators declare, in order of name."""
        found = (getattr(getattr(cls, name, None), STEP_ATTRIBUTE, None) for name in dir(cls))
        return [step for step in found if isinstance(step, StepDefinition)]

    def callable_of(self, method: str) -> Callable[..., Any]:
        """Return what runs a declared step: to be called with (ctx, …)."""
        found: Callable[..., Any] = getattr(self, method)
        return found

    @classmethod
    def step_definition(cls, method: str) -> StepDefinition:
        """Return what is declared about a method.

        Raises:
            ConfigurationError: the class has no such step; the code changed under the task.
        """
        found = getattr(getattr(cls, method, None), STEP_ATTRIBUTE, None)
        if not isinstance(found, StepDefinition):
            raise ConfigurationError(f"{cls.__name__} has no step {method}")
        return found


@dataclass(frozen=True, slots=True)
class WorkflowInfo:
    """A registered workflow, for lists and forms.

    `acts` are its author's words about what it does outside, `effects` the declared names.
    """

    name: str
    version: int
    title: str
    description: str
    acts: tuple[str, ...]
    effects: tuple[str, ...]
    approve_before: tuple[str, ...]
    definition: type[Workflow[Any, Any]]
    schema: dict[str, Any] = field(default_factory=dict)


def step(
    *,
    title: str = "",
    retry: Retry | None = None,
    timeout_seconds: float | None = None,
    pure: bool = False,
    expensive: bool = False,
    atomic: bool = False,
    on_failure: str = "fail",
    estimate: Estimate | None = None,
) -> Callable[[F], F]:
    """Declare a method as a step: its result is stored once and never computed again.

    Args:
        title: what people see as the phase; default the method's name.
        retry: default three tries.
        timeout_seconds: limit of one try; default ten minutes, ten seconds for an atomic step.
        pure: running it again does no harm, so results may be committed in groups.
        expensive: a checkpoint follows it at once.
        atomic: what the body writes with the ORM, its result and the cursor are one commit.
        on_failure: after the last try "fail" fails the task, "skip" goes on with None as the
            result, "ask" holds the task for a person.
        estimate: what one call may use at most; reserved out of the task's budget before it.
    """
    if atomic and estimate is not None:
        raise ConfigurationError("an atomic step calls nothing outside: it has no estimate")
    if atomic and pure:
        raise ConfigurationError("an atomic step is committed by itself: it cannot be pure")
    if on_failure not in ON_FAILURE:
        raise ConfigurationError(f"on_failure must be one of {sorted(ON_FAILURE)}")
    if timeout_seconds is None:
        timeout_seconds = ATOMIC_TIMEOUT_SECONDS if atomic else STEP_TIMEOUT_SECONDS
    return _declare(
        kind="step",
        title=title,
        retry=retry,
        timeout_seconds=timeout_seconds,
        pure=pure,
        expensive=expensive,
        atomic=atomic,
        on_failure=on_failure,
        estimate=estimate,
    )


def effect(
    *,
    kind: str,
    find: str | Callable[..., Any] = "",
    unattended: bool = False,
    compensate: str = "",
    title: str = "",
    retry: Retry | None = None,
    timeout_seconds: float = 60,
    estimate: Estimate | None = None,
) -> Callable[[F], F]:
    """Declare a method as an act on the outside world, done once and entered in the ledger.

    Args:
        kind: what can be done when nobody knows whether a call has happened.
            "keyed": the other side ignores a second call with the same `ctx.effect_key`, so it is
            called again. "queryable": `find` asks it first. "opaque": neither, so it is never
            called again and a person decides.
        find: of a queryable effect, the name of the method (or the function) that takes (ctx,
            *same arguments) and returns `Found(result)`, or None when the act has certainly not happened. When it
            cannot be certain it raises.
        unattended: of an opaque effect, that it may happen without an approval.
        compensate: the name of the effect that undoes this one when the task is cancelled or fails
            afterwards; it takes (ctx, this one's result, *same arguments).
        title: what people see as the phase; default the method's name.
        retry: default three tries; an opaque effect has one.
        timeout_seconds: limit of one call.
        estimate: what the call may use at most besides the one tool call that it is.
    """
    return _declare(
        kind="effect",
        title=title,
        retry=retry,
        timeout_seconds=timeout_seconds,
        effect_kind=kind,
        find=find,
        unattended=unattended,
        compensate=compensate,
        expensive=True,
        estimate=replace(estimate or Estimate(), tool_calls=1),
    )


def _declare(
    *, title: str, retry: Retry | None, kind: str, timeout_seconds: float, **rest: Any
) -> Callable[[F], F]:
    def mark(method: F) -> F:
        if inspect.iscoroutinefunction(method):
            raise ConfigurationError(f"{method.__qualname__}: steps are plain functions")
        definition = StepDefinition(
            name=method.__name__,
            kind=kind,
            title=title or method.__name__.replace("_", " ").capitalize(),
            retry=retry or Retry(),
            timeout_seconds=timeout_seconds,
            **rest,
        )
        setattr(method, STEP_ATTRIBUTE, definition)
        return method

    return mark
