"""Building a plan: `plan(goal, p)` calls this builder; the outcome is plain data to be stored."""

import copy
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from ledger_app.domain.canonical import check, clean_text, digest_of
from ledger_app.domain.errors import NotCanonicalError
from tasks_app.domain.errors import ConfigurationError, RuntimeFault, WorkflowFailedError
from tasks_app.workflows.definition import STEP_ATTRIBUTE, Collect, StepDefinition, Workflow
from tasks_app.workflows.values import GoalError

logger = logging.getLogger(__name__)

MAX_PLAN_STEPS = 100_000
# With room for the number of a repeated step.
NAME_MAX = 90


@dataclass(frozen=True, slots=True)
class StepRef:
    """The result of a planned step, or one field of it, to be passed to later steps."""

    key: str
    path: tuple[str, ...] = ()

    def field(self, name: str) -> "StepRef":
        """Return a reference to one field of the result."""
        return StepRef(self.key, (*self.path, name))

    @property
    def approved(self) -> "StepRef":
        """Return a reference to an approval's answer."""
        return self.field("approved")


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step of a plan as data.

    Attributes:
        arguments: {"args": [encoded…], "kwargs": {name: encoded}}; encoded is {"v": literal} or
            {"ref": step key, "path": [field…]}.
        signature: digest of what the step does and of what it is given, through its references;
            equal signatures mean that a finished result may be kept.
    """

    key: str
    position: int
    kind: str
    method: str
    arguments: dict[str, Any]
    options: dict[str, Any]
    signature: str

    def references(self) -> set[str]:
        """Return the keys of the steps whose results this one takes or hangs on."""
        named = {self.options["approval"]} if self.options.get("approval") else set[str]()
        return named | set(_references([self.arguments, self.options]))


@dataclass(frozen=True, slots=True)
class Plan:
    """All steps in order, and where the task's result comes from."""

    steps: tuple[PlannedStep, ...]
    result: dict[str, Any]


class PlanBuilder:
    """The `p` of `plan(goal, p)`."""

    def __init__(self, workflow: str, approve_before: frozenset[str]) -> None:
        self._workflow = workflow
        self._approve_before = approve_before
        self._steps: dict[str, PlannedStep] = {}
        self._uses: Counter[str] = Counter()
        # Every step planned here carries them; see `when`.
        self.conditions: tuple[dict[str, Any], ...] = ()

    def when(self, reference: StepRef) -> "PlanBuilder":
        """Return a view of this builder: what it plans is done only if the result is true then.

        False, None, zero and what is empty are not; a reference to an approval means its yes. A
        step that is left out has status `skipped` and None as its result. Views of views need all
        their conditions.
        """
        if not isinstance(reference, StepRef):
            raise ConfigurationError("when takes the result of a step; plan() can use if itself")
        encoded = self._encode(reference)
        if not reference.path and self._steps[reference.key].kind == "approval":
            encoded = self._encode(reference.approved)
        view = copy.copy(self)
        view.conditions = (*self.conditions, encoded)
        return view

    def step(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> StepRef:
        """Plan one call of a step method; arguments are literals or references."""
        definition = _definition(method, "step")
        return self._add("step", definition.name, args, kwargs)

    def map(
        self,
        method: Callable[..., Any],
        items: Any,
        *args: Any,
        chunk: int = 50,
        on_error: Collect | None = None,
    ) -> StepRef:
        """Plan one call of a step method for every item of a list.

        Args:
            method: takes (ctx, item, *args).
            items: a reference to an `ItemList` or a list, or a literal list.
            args: further arguments, the same for every item.
            chunk: results are committed at latest after so many items.
            on_error: default: the first failed item fails the step.
        """
        definition = _definition(method, "step")
        if definition.atomic:
            raise ConfigurationError(f"{definition.name} is atomic: plan it as a step, not a map")
        if chunk < 1 or chunk > 1000:
            raise ConfigurationError("chunk must be between 1 and 1000")
        options: dict[str, Any] = {"chunk": chunk}
        if on_error is not None:
            options |= {"collect": True, "max_failed": on_error.max_failed}
        return self._add("map", definition.name, (items, *args), {}, options)

    def approval(
        self,
        name: str,
        *,
        show: Any = None,
        deadline: timedelta,
        quorum: int = 1,
        on_timeout: str = "deny",
    ) -> StepRef:
        """Plan a question to people; it lets through exactly the effect that names it.

        Args:
            name: the act's name as people see it, usually the effect's method name.
            show: literal or reference shown with the question.
            deadline: how long the question stays open, at most seven days (S61).
            quorum: how many different people must approve.
            on_timeout: "deny" (go on without the act) or "fail".
        """
        options = approval_options(name, deadline, quorum, on_timeout)
        return self._add("approval", f"approve_{name}", (show,), {}, options)

    def question(
        self,
        name: str,
        *,
        prompt: str,
        answer: type[BaseModel] | dict[str, Any],
        deadline: timedelta = timedelta(days=7),
    ) -> StepRef:
        """Plan a question that no act hangs on; `provide_input` answers it."""
        schema = answer if isinstance(answer, dict) else answer.model_json_schema()
        options = question_options(prompt, schema, deadline)
        return self._add("question", name, (), {}, options)

    def effect(
        self, method: Callable[..., Any], *args: Any, approval: StepRef | None = None, **kwargs: Any
    ) -> StepRef:
        """Plan one act on the outside world; without the approval's yes it is skipped.

        An effect that the workflow or the task wants approved gets an approval of its own when
        the plan names none, and so does an opaque effect that is not declared `unattended`.
        """
        definition = _definition(method, "effect")
        if approval is None and definition.wants_approval(self._approve_before):
            approval = self.approval(definition.name, deadline=timedelta(hours=4))
        options: dict[str, Any] = {}
        if approval is not None:
            self._expect(approval.key, "approval")
            options["approval"] = approval.key
        return self._add("effect", definition.name, args, kwargs, options)

    def sleep(self, duration: timedelta) -> StepRef:
        """Plan a wait by the database's clock; no process is held meanwhile."""
        return self._add("sleep", "sleep", (), {}, {"seconds": duration.total_seconds()})

    def child(
        self,
        workflow: type[Workflow[Any, Any]],
        goal: Any,
        *,
        name: str = "",
        wait: bool = True,
        budget_share: float | None = None,
        on_failure: str = "fail",
        timeout_seconds: float | None = None,
        external_id: str = "",
    ) -> StepRef:
        """Plan a task of its own, started once; its result is the step's.

        Args:
            workflow: what the child runs.
            goal: its goal: a model, a reference, or a dict whose values may be references.
            name: the step's name; default the workflow's.
            wait: False goes on at once with the child's id as the result.
            budget_share: how much of this task's budget the child may spend, above 0 to 1.
            on_failure: of a child that fails or is cancelled: "fail" the task or "skip" the step.
            timeout_seconds: the child fails when it takes longer from its start on.
            external_id: an id from outside, such as a model's tool call, told with the child's
                events and answered by a message with its result.
        """
        options = child_options(
            workflow, wait, budget_share, on_failure, timeout_seconds, external_id
        )
        fields = goal if isinstance(goal, dict) else {}
        return self._add(
            "child", name or workflow.workflow_name, () if fields else (goal,), fields, options
        )

    def build(self, result: Any) -> Plan:
        """Return the plan; `result` is what `plan()` returned."""
        return Plan(steps=tuple(self._steps.values()), result=self._encode(result))

    def _add(
        self,
        kind: str,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: dict[str, Any] | None = None,
    ) -> StepRef:
        if len(self._steps) >= MAX_PLAN_STEPS:
            raise ConfigurationError(f"a plan holds at most {MAX_PLAN_STEPS} steps; use map")
        if not 0 < len(name) <= NAME_MAX or clean_text(name) != name:
            raise ConfigurationError(f"a step's name is text of at most {NAME_MAX} characters")
        key = self._free_key(name)
        options = dict(options or {})
        if self.conditions:
            options["when"] = list(self.conditions)
        arguments = {
            "args": [self._encode(argument) for argument in args],
            "kwargs": {key: self._encode(argument) for key, argument in kwargs.items()},
        }
        self._take(
            PlannedStep(
                key=key,
                position=len(self._steps),
                kind=kind,
                method=name,
                arguments=arguments,
                options=options,
                signature=self._signature(kind, name, arguments, options),
            )
        )
        return StepRef(key)

    def _take(self, step: PlannedStep) -> None:
        if step.key in self._steps:
            raise ConfigurationError(f"the plan has a step {step.key} already")
        self._steps[step.key] = step
        self._uses[step.method] += 1

    def _free_key(self, name: str) -> str:
        if name not in self._steps:
            return name
        number = self._uses[name] + 1
        while f"{name}.{number}" in self._steps:
            number += 1
        return f"{name}.{number}"

    def _expect(self, key: str, kind: str) -> None:
        if key not in self._steps or self._steps[key].kind != kind:
            raise ConfigurationError(f"{key} is no {kind} of this plan")

    def _encode(self, value: Any) -> dict[str, Any]:
        if isinstance(value, StepRef):
            if value.key not in self._steps:
                raise ConfigurationError(f"{value.key} is not a step of this plan")
            return {"ref": value.key, "path": list(value.path)}
        plain = to_jsonable_python(value, inf_nan_mode="constants")
        try:
            check(plain, allow_nul=False)
        except NotCanonicalError as error:
            raise ConfigurationError(f"a plan cannot store an argument: {error.message}") from error
        return {"v": plain}

    def _signature(
        self, kind: str, method: str, arguments: dict[str, Any], options: dict[str, Any]
    ) -> str:
        def resolved(encoded: dict[str, Any]) -> dict[str, Any]:
            if "ref" not in encoded:
                return encoded
            return {"sig": self._steps[encoded["ref"]].signature, "path": encoded["path"]}

        if "when" in options:
            options = {**options, "when": [resolved(condition) for condition in options["when"]]}
        return digest_of(
            {
                "workflow": self._workflow,
                "kind": kind,
                "method": method,
                "args": [resolved(argument) for argument in arguments["args"]],
                "kwargs": {name: resolved(a) for name, a in arguments["kwargs"].items()},
                "options": options,
            }
        )


def approval_options(
    name: str, deadline: timedelta, quorum: int, on_timeout: str
) -> dict[str, Any]:
    """Return what an approval step stores.

    Raises:
        ConfigurationError: a value is outside of what S61 allows.
    """
    if not timedelta(seconds=1) <= deadline <= timedelta(days=7):
        raise ConfigurationError(f"approval {name}: deadline must be 1 second to 7 days")
    if on_timeout not in {"deny", "fail"} or quorum < 1:
        raise ConfigurationError(f"approval {name}: wrong on_timeout or quorum")
    return {
        "name": name,
        "deadline_seconds": deadline.total_seconds(),
        "quorum": quorum,
        "on_timeout": on_timeout,
    }


def child_options(
    workflow: Any,
    wait: bool,
    budget_share: float | None,
    on_failure: str,
    timeout_seconds: float | None = None,
    external_id: str = "",
) -> dict[str, Any]:
    """Return what a step stores that starts a child.

    Raises:
        ConfigurationError: no workflow, or a value that is not allowed.
    """
    if not (isinstance(workflow, type) and issubclass(workflow, Workflow)):
        raise ConfigurationError(
            "a child is given by its workflow's class, or by what durable_function returns, not by "
            f"its name: {workflow!r}"
        )
    if getattr(workflow, "workflow_name", None) is None:
        raise ConfigurationError(f"{workflow.__name__} is not registered with @workflow")
    if budget_share is not None and not 0 < budget_share <= 1:
        raise ConfigurationError("budget_share must be above 0 and at most 1")
    if on_failure not in {"fail", "skip"}:
        raise ConfigurationError("on_failure of a child must be fail or skip")
    if timeout_seconds is not None and timeout_seconds <= 0:
        raise ConfigurationError("timeout_seconds of a child must be above 0")
    options: dict[str, Any] = {"workflow": workflow.workflow_name, "wait": wait}
    if budget_share is not None:
        options["budget_share"] = budget_share
    if timeout_seconds is not None:
        options["timeout_seconds"] = timeout_seconds
    if external_id:
        options["external_id"] = external_id
    return {**options, "on_failure": on_failure}


def question_options(prompt: str, schema: dict[str, Any], deadline: timedelta) -> dict[str, Any]:
    """Return what a question step stores."""
    return {"prompt": prompt, "schema": schema, "deadline_seconds": deadline.total_seconds()}


def build_plan(
    definition: type[Workflow[Any, Any]],
    goal: BaseModel,
    before: list[str],
    done: Mapping[str, Any] | None = None,
) -> Plan:
    """Run the author's `plan` for a validated goal, or `replan` when there is a plan already.

    Args:
        definition: the workflow.
        goal: an instance of its goal model.
        before: names of effects that this task wants approved, besides the workflow's own.
        done: results of the finished steps of the present plan; None for a new task.
    """
    builder = PlanBuilder(definition.workflow_name, gated_effects(definition, before))
    workflow = definition()
    with _authors_code(definition, "plan" if done is None else "replan"):
        if done is None:
            return builder.build(workflow.plan(goal, builder))
        return builder.build(workflow.replan(goal, done, builder))


def check_goal(definition: type[Workflow[Any, Any]], goal: BaseModel) -> None:
    """Let the workflow check a goal.

    Raises:
        GoalError: it cannot be worked on.
        WorkflowFailedError: the check itself failed.
    """
    with _authors_code(definition, "check", GoalError):
        definition().check(goal)


@contextmanager
def authors_model(definition: type[Workflow[Any, Any]]) -> Iterator[None]:
    """Let the goal's model read a goal. Raises: WorkflowFailedError when a validator fails."""
    with _authors_code(definition, "goal", ValidationError):
        yield


@contextmanager
def _authors_code(
    definition: type[Workflow[Any, Any]], part: str, *refusals: type[Exception]
) -> Iterator[None]:
    """Name the workflow in whatever its code raises that is no refusal."""
    name = definition.workflow_name
    try:
        yield
    except refusals:
        raise
    except RuntimeFault as error:
        if type(error) is not ConfigurationError:
            raise
        raise ConfigurationError(f"{name}: {error.message}", workflow=name) from error
    except Exception as error:
        logger.exception("workflow.failed", extra={"workflow": name, "part": part})
        raise WorkflowFailedError(
            f"The workflow {name} failed in its own code, in {part} ({type(error).__name__}). "
            "Nothing was stored.",
            workflow=name,
        ) from error


def gated_effects(definition: type[Workflow[Any, Any]], before: list[str]) -> frozenset[str]:
    """Return the names of the effects that get an approval of their own."""
    return frozenset(before) | frozenset(definition.approve_before)


def _references(value: Any) -> Iterator[str]:
    """Yield the steps that encoded arguments and options name; literals name none."""
    match value:
        case {"ref": str(key), "path": list()}:
            yield key
        case {"v": _}:
            return
        case dict():
            for inner in value.values():
                yield from _references(inner)
        case list():
            for inner in value:
                yield from _references(inner)
        case _:
            return


def _definition(method: Callable[..., Any], kind: str) -> StepDefinition:
    found = getattr(method, STEP_ATTRIBUTE, None)
    if not isinstance(found, StepDefinition) or found.kind != kind:
        raise ConfigurationError(f"{getattr(method, '__qualname__', method)} is no @{kind}")
    return found
