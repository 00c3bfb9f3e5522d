"""The stored plan: written at admission, read from a position on, replaced when the goal changes.

A step that a later plan does not have keeps its row as history (`retired_in`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Case, F, Value, When
from pydantic import BaseModel, ValidationError

from tasks_app.domain.errors import FieldProblem, InvalidInputError
from tasks_app.models import Step, Task
from tasks_app.workflows.definition import Workflow
from tasks_app.workflows.functions import FunctionWorkflow
from tasks_app.workflows.planning import Plan, PlannedStep, build_plan

_WINDOW = 100
_BATCH = 1000


@dataclass(frozen=True, slots=True)
class PlanDifference:
    """What a new plan changes: keys of steps, in plan order."""

    kept: tuple[str, ...]
    added: tuple[str, ...]
    retired: tuple[str, ...]
    first_open_position: int


def parse_goal(definition: type[Workflow[Any, Any]], goal: Mapping[str, Any]) -> BaseModel:
    """Return the validated goal.

    Raises:
        InvalidInputError: with a pointer under /goal for each problem.
    """
    try:
        return definition.goal_type().model_validate(goal)
    except ValidationError as error:
        problems = [
            FieldProblem(
                pointer="/goal" + "".join(f"/{part}" for part in problem["loc"]),
                code="unknown_field" if problem["type"] == "extra_forbidden" else problem["type"],
                detail=problem["msg"],
            )
            for problem in error.errors(include_url=False, include_input=False)
        ]
        raise InvalidInputError("The goal does not fit the workflow.", problems) from error


def store_plan(tenant_id: UUID, task_id: UUID, plan: Plan, plan_version: int = 1) -> None:
    """Write a task's first plan. Transaction: the caller's."""
    _insert(tenant_id, task_id, plan.steps, plan_version)


def read_window(tenant_id: UUID, task_id: UUID, position: int) -> list[Step]:
    """Return the next steps of the current plan from a position on, at most a window of them."""
    rows = Step.objects.for_tenant(tenant_id).filter(task_id=task_id, retired_in=None)
    return list(rows.filter(position__gte=position).order_by("position")[:_WINDOW])


def replan(
    *,
    tenant_id: UUID,
    task_id: UUID,
    definition: type[Workflow[Any, Any]],
    goal: BaseModel,
    approval_policy: Mapping[str, Any],
    plan_version: int,
) -> tuple[Plan, PlanDifference]:
    """Replace the plan; finished steps with the same signature keep their results.

    Args:
        plan_version: of the new plan.

    Transaction: the caller's, which holds the task row. Locks: the task's step rows.
    """
    if issubclass(definition, FunctionWorkflow):
        return _keep_all(tenant_id, task_id)
    plan = build_plan(definition, goal, list(approval_policy.get("before", ())))
    rows = Step.objects.for_tenant(tenant_id).filter(task_id=task_id, retired_in=None)
    standing = {row.key: row for row in rows}
    kept = [step for step in plan.steps if _same(standing.get(step.key), step)]
    kept_keys = {step.key for step in kept}
    retired = [key for key in standing if key not in kept_keys]
    added = [step for step in plan.steps if step.key not in kept_keys]
    rows.filter(key__in=retired).update(retired_in=plan_version, status=_retired_status())
    for step in kept:
        row = standing[step.key]
        if row.position != step.position or row.arguments != step.arguments:
            rows.filter(pk=row.pk).update(position=step.position, arguments=step.arguments)
    _insert(tenant_id, task_id, added, plan_version)
    difference = PlanDifference(
        kept=tuple(step.key for step in kept),
        added=tuple(step.key for step in added),
        retired=tuple(retired),
        first_open_position=_first_open(plan, kept_keys, standing),
    )
    return plan, difference


def _keep_all(tenant_id: UUID, task_id: UUID) -> tuple[Plan, PlanDifference]:
    """Keep what a function has stored; calls that the new goal changes are made anew."""
    rows = Step.objects.for_tenant(tenant_id).filter(task_id=task_id, retired_in=None)
    outside_of_loops = rows.filter(scope="").order_by("position").values_list("key", flat=True)
    position = Task.objects.for_tenant(tenant_id).values_list("next_position", flat=True)
    return Plan((), {"v": None}), PlanDifference(
        kept=tuple(outside_of_loops),
        added=(),
        retired=(),
        first_open_position=position.get(pk=task_id),
    )


def _same(row: Step | None, step: PlannedStep) -> bool:
    return row is not None and row.signature == step.signature


def _retired_status() -> Any:
    # Results of finished steps stay readable as what they were.
    return Case(
        When(status__in=("planned", "running", "waiting"), then=Value("superseded")),
        default=F("status"),
    )


def _first_open(plan: Plan, kept: set[str], standing: Mapping[str, Step]) -> int:
    for step in plan.steps:
        if step.key not in kept or standing[step.key].status not in {"succeeded", "skipped"}:
            return step.position
    return len(plan.steps)


def _insert(
    tenant_id: UUID, task_id: UUID, steps: Sequence[PlannedStep], plan_version: int
) -> None:
    Step.objects.for_tenant(tenant_id).bulk_create(
        (
            Step(
                tenant_id=tenant_id,
                task_id=task_id,
                key=step.key,
                position=step.position,
                kind=step.kind,
                method=step.method,
                arguments=step.arguments,
                options=step.options,
                signature=step.signature,
                plan_version=plan_version,
            )
            for step in steps
        ),
        batch_size=_BATCH,
    )
