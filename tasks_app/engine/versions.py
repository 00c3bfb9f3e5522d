"""Whether installed code may go on with a live task: yes, upgraded, migrated, or held (E80).

A task keeps its plan and the version of the code that made it. Equal versions cost nothing here;
otherwise what the new code plans is compared with what is left to do. Nothing fails: a task that
the code does not fit is paused with the reason, and resuming it asks again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

from pydantic import BaseModel

from tasks_app.domain.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    InvalidInputError,
    VersionHoldError,
    WorkflowFailedError,
)
from tasks_app.domain.states import TERMINAL
from tasks_app.engine import checkpoints, plans
from tasks_app.models import Task
from tasks_app.workflows import registry
from tasks_app.workflows.definition import Workflow
from tasks_app.workflows.functions import FunctionWorkflow
from tasks_app.workflows.migrating import Migrated, OldPlan, find_route, migrate
from tasks_app.workflows.planning import Plan, PlannedStep

_PAGE = 200
# What a step of the plan needs its method to be declared as.
_DECLARED = {"step": "step", "map": "step", "effect": "effect"}


class Verdict(StrEnum):
    """What becomes of a live task under the installed code."""

    GO = "go"
    UPGRADE = "go_upgraded"
    MIGRATE = "migrate"
    HOLD = "hold"


class Versioned(Protocol):
    """What a judgement needs to know of a task."""

    id: UUID
    tenant_id: UUID
    workflow: str
    workflow_version: int
    goal: dict[str, Any]
    plan_version: int
    plan_result: Any
    approval_policy: dict[str, Any]
    closing_as: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict; a hold names its `reason`, a migration holds the new plan and goal."""

    verdict: Verdict
    installed: int | None
    reason: str = ""
    message: str = ""
    details: Mapping[str, object] = field(default_factory=dict)
    migrated: Migrated | None = None

    def raise_hold(self, stored: int) -> None:
        """Raise VersionHoldError when the task is to be held."""
        if self.verdict is Verdict.HOLD:
            raise VersionHoldError(
                self.message,
                reason=self.reason,
                installed=self.installed,
                stored=stored,
                **self.details,
            )


def judge(task: Versioned, variables: Mapping[str, Any] | None = None) -> Judgement:
    """Return what the installed code would do with a task; changes nothing.

    Args:
        variables: facts of the newest checkpoint's cursor, for migrations.
    """
    definition = registry.find_definition(task.workflow)
    if definition is None:
        return _missing(task.workflow)
    if definition.version == task.workflow_version:
        return _judge_steps(task, definition, Verdict.GO)
    if task.workflow_version in definition.compatible_with or task.closing_as:
        # What undoes the acts of a task is in no plan of its code: only the methods matter.
        return _judge_steps(task, definition, Verdict.UPGRADE)
    if issubclass(definition, FunctionWorkflow):
        return _held(
            definition.version,
            "not_compatible",
            f"Version {definition.version} of {task.workflow} is a function and does not say that"
            f" it goes on with what version {task.workflow_version} has stored.",
        )
    judged = _judge_plan(task, definition)
    route = find_route(task.workflow, task.workflow_version, definition.version)
    if judged.verdict is Verdict.UPGRADE or not route:
        return judged
    old = _old_plan(task, variables or {})
    try:
        migrated = migrate(definition, route, old, _before(task))
        plans.parse_goal(definition, migrated.goal)
    except Exception as error:  # noqa: BLE001 - the author's code may raise anything
        return _held(definition.version, "migration_failed", f"The migration failed: {error}")
    wrong = _wrong_steps(definition, _remaining_of(migrated.plan, old))
    if wrong:
        return _steps_missing(definition, wrong)
    return Judgement(Verdict.MIGRATE, definition.version, migrated=migrated)


def installed(task: Versioned) -> type[Workflow[Any, Any]]:
    """Return the code of a task's workflow, in whatever version. Raises: VersionHoldError."""
    definition = registry.find_definition(task.workflow)
    if definition is None:
        _missing(task.workflow).raise_hold(task.workflow_version)
        raise AssertionError("a hold always raises")
    return definition


def require_step(definition: type[Workflow[Any, Any]], kind: str, method: str) -> None:
    """Hold a task whose next step the code does not have any more.

    Raises: VersionHoldError.
    """
    if _is_wrong(definition, kind, method):
        _steps_missing(definition, [method]).raise_hold(definition.version)


def judge_live(tenant_id: UUID | None) -> Iterator[tuple[Task, Judgement]]:
    """Yield every task that has not ended with its judgement, by id; None: of all tenants.

    Reads in pages, so that any number of tasks takes no more memory than one page and one plan.
    """
    rows = (
        Task.objects.all_tenants("plan_check serves whoever deploys code")
        if tenant_id is None
        else Task.objects.for_tenant(tenant_id)
    )
    live = rows.exclude(status__in=TERMINAL).select_related("tenant").order_by("id")
    page = list(live[:_PAGE])
    while page:
        for task in page:
            yield task, judge(task, _variables(task))
        page = list(live.filter(id__gt=page[-1].id)[:_PAGE])


def _variables(task: Task) -> Mapping[str, Any]:
    try:
        document = checkpoints.load_newest(task.tenant_id, task.id, task.checkpoint_seq)
    except CorruptCheckpointError:
        return {}
    return document.variables if document else {}


# --- judging -------------------------------------------------------------------------------------
def _judge_steps(
    task: Versioned, definition: type[Workflow[Any, Any]], verdict: Verdict
) -> Judgement:
    """The stored plan goes on as it is: each method that it still needs must be there."""
    if issubclass(definition, FunctionWorkflow):
        return Judgement(verdict, definition.version)
    rows = plans.current(task.tenant_id, task.id).exclude(status__in=plans.DONE)
    wrong = _wrong_steps(definition, rows.order_by().values_list("kind", "method").distinct())
    return _steps_missing(definition, wrong) if wrong else Judgement(verdict, definition.version)


def _judge_plan(task: Versioned, definition: type[Workflow[Any, Any]]) -> Judgement:
    """Compare what the installed code would plan with what is left to do."""
    try:
        goal: BaseModel = plans.parse_goal(definition, task.goal)
        plan = plans.build(
            task.tenant_id,
            task.id,
            definition=definition,
            goal=goal,
            approval_policy=task.approval_policy,
            is_new=task.plan_version == 1,
        )
    except InvalidInputError as error:
        return _held(
            definition.version,
            "goal_differs",
            f"Version {definition.version} of {task.workflow} does not take this goal.",
            problems=[f"{problem.pointer}: {problem.detail}" for problem in error.errors][:20],
        )
    except Exception as error:  # noqa: BLE001 - the author's code may raise anything
        said = error.__cause__ if isinstance(error, WorkflowFailedError) else error
        return _held(definition.version, "plan_failed", f"The plan cannot be built: {said}")
    differences = _differences(task, plan)
    if not differences:
        return Judgement(Verdict.UPGRADE, definition.version)
    return _held(
        definition.version,
        "plan_differs",
        f"Version {definition.version} of {task.workflow} plans other steps"
        f" than version {task.workflow_version} did.",
        **differences,
    )


def _differences(task: Versioned, plan: Plan) -> dict[str, object]:
    """Return how a new plan differs in what is left to do; empty when it does not."""
    rows = plans.current(task.tenant_id, task.id).order_by("position")
    finished: set[str] = set()
    left: dict[str, str] = {}
    for key, signature, status in rows.values_list("key", "signature", "status").iterator():
        if status in plans.DONE:
            finished.add(key)
        else:
            left[key] = signature
    new = {step.key: step.signature for step in plan.steps if step.key not in finished}
    found: dict[str, object] = {
        "changed": [key for key in left if key in new and new[key] != left[key]],
        "missing": [key for key in left if key not in new],
        "added": [key for key in new if key not in left],
    }
    if not any(found.values()):
        found |= {
            "order": list(new) != list(left) and "other",
            "result": plan.result != task.plan_result and "other",
        }
    return {
        name: keys[: plans.NAMED] if isinstance(keys, list) else keys
        for name, keys in found.items()
        if keys
    }


def _old_plan(task: Versioned, variables: Mapping[str, Any]) -> OldPlan:
    rows = plans.current(task.tenant_id, task.id).order_by("position").defer("result", "error")
    return OldPlan(
        version=task.workflow_version,
        goal=dict(task.goal),
        steps=tuple(
            PlannedStep(
                key=row.key,
                position=row.position,
                kind=row.kind,
                method=row.method,
                arguments=row.arguments,
                options=row.options,
                signature=row.signature,
            )
            for row in rows.iterator(chunk_size=1000)
        ),
        done=plans.read_finished(task.tenant_id, task.id),
        variables=dict(variables),
    )


def _remaining_of(plan: Plan, old: OldPlan) -> set[tuple[str, str]]:
    finished = {step.key: step.signature for step in old.steps if step.key in old.done}
    return {
        (step.kind, step.method) for step in plan.steps if finished.get(step.key) != step.signature
    }


def _wrong_steps(definition: type[Workflow[Any, Any]], steps: Any) -> list[str]:
    return sorted(method for kind, method in steps if _is_wrong(definition, kind, method))


def _is_wrong(definition: type[Workflow[Any, Any]], kind: str, method: str) -> bool:
    needed = _DECLARED.get(kind)
    if needed is None:
        return False
    try:
        return definition.step_definition(method).kind != needed
    except ConfigurationError:
        return True


def _steps_missing(definition: type[Workflow[Any, Any]], methods: list[str]) -> Judgement:
    return _held(
        definition.version,
        "step_missing",
        f"Version {definition.version} of {definition.workflow_name} has no such step any more:"
        f" {', '.join(methods[:5])}.",
        methods=methods[: plans.NAMED],
    )


def _missing(workflow: str) -> Judgement:
    return _held(None, "workflow_missing", f"No workflow {workflow} is installed here.")


def _held(installed: int | None, reason: str, message: str, **details: object) -> Judgement:
    return Judgement(Verdict.HOLD, installed, reason, message[:500], details)


def _before(task: Versioned) -> list[str]:
    return list(task.approval_policy.get("before", ()))
