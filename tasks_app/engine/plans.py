"""The stored plan: written at admission, read from a position on, replaced when the goal changes.

A step that a later plan does not have keeps its row as history (`retired_in`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Case, F, JSONField, Value, When
from pydantic import BaseModel, ValidationError

from ledger_app.services.statements import fetch_rows
from tasks_app.domain.errors import FieldProblem, InvalidInputError
from tasks_app.engine import values
from tasks_app.models import Step
from tasks_app.workflows.definition import Workflow
from tasks_app.workflows.planning import Plan, PlannedStep, authors_model, build_plan
from tasks_app.workflows.values import Finished

DONE = ("succeeded", "skipped")
# Names of steps that a difference tells of each kind; the counts beside them are exact.
NAMED = 50
WINDOW = 100
_COLUMNS = [field.attname for field in Step._meta.concrete_fields]  # noqa: SLF001 - Django documents it
_JSON_COLUMNS = [
    number
    for number, field in enumerate(Step._meta.concrete_fields)  # noqa: SLF001 - Django documents it
    if isinstance(field, JSONField)
]
# Read by every slice; through the ORM it would cost as much as the claim.
_WINDOW = f"""
SELECT {", ".join(_COLUMNS)} FROM tasks_app_step
WHERE task_id = %(task_id)s AND tenant_id = %(tenant_id)s AND retired_in IS NULL
  AND position >= %(position)s
ORDER BY position LIMIT %(limit)s
"""
_BATCH = 1000


@dataclass(frozen=True, slots=True)
class PlanChange:
    """A new plan against the stored one, in plan order.

    Attributes:
        kept: stored steps that stand in the new plan, too; moved: where those of them go that get
            another place or other references.
        retired: keys of stored steps that do not.
        first_open_position: where the new plan goes on.
    """

    plan: Plan
    kept: list[Step]
    moved: list[tuple[int, PlannedStep]]
    added: list[PlannedStep]
    retired: list[str]
    first_open_position: int

    def difference(self) -> dict[str, Any]:
        """Return it as JSON data: exact counts, the first names of each kind."""
        return {
            "kept": _named([row.key for row in self.kept]),
            "added": _named([step.key for step in self.added]),
            "retired": _named(self.retired),
        }


def _named(keys: Sequence[str]) -> dict[str, Any]:
    return {"count": len(keys), "keys": list(keys[:NAMED])}


def parse_goal(definition: type[Workflow[Any, Any]], goal: Mapping[str, Any]) -> BaseModel:
    """Return the validated goal.

    Raises:
        InvalidInputError: with a pointer under /goal for each problem.
    """
    try:
        with authors_model(definition):
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


def read_window(tenant_id: UUID, task_id: UUID, position: int) -> list[Step]:
    """Return the next steps of the current plan from a position on, at most a window of them."""
    parameters = {"tenant_id": tenant_id, "task_id": task_id, "position": position}
    rows = fetch_rows(_WINDOW, {**parameters, "limit": WINDOW})
    return [Step.from_db("default", _COLUMNS, _decoded(row)) for row in rows]


def _decoded(row: tuple[Any, ...]) -> list[Any]:
    # A plain cursor leaves jsonb as text.
    values = list(row)
    for number in _JSON_COLUMNS:
        if isinstance(values[number], str):
            values[number] = json.loads(values[number])
    return values


def build(
    tenant_id: UUID,
    task_id: UUID,
    *,
    definition: type[Workflow[Any, Any]],
    goal: BaseModel,
    approval_policy: Mapping[str, Any],
    is_new: bool = False,
) -> Plan:
    """Return the plan that the installed code makes for a task's goal; stores nothing.

    Args:
        is_new: make it as for a new task, though it has a plan already.
    """
    return build_plan(
        definition,
        goal,
        list(approval_policy.get("before", ())),
        done=None if is_new else read_finished(tenant_id, task_id),
    )


def read_finished(tenant_id: UUID, task_id: UUID) -> Finished:
    """Return the results of the finished steps of the current plan; each is read when asked for."""
    rows = current(tenant_id, task_id).filter(status__in=DONE).order_by("position")
    arguments = values.Arguments(tenant_id, task_id)
    return Finished(
        rows.values_list("key", flat=True),
        lambda key: arguments.value({"ref": key, "path": []}),
    )


def compare(tenant_id: UUID, task_id: UUID, plan: Plan) -> PlanChange:
    """Return what a new plan would change of the stored one; stores nothing."""
    rows = current(tenant_id, task_id).defer("result", "error", "options")
    standing = {row.key: row for row in rows.order_by("position")}
    kept = {
        step.key: step
        for step in plan.steps
        if step.key in standing and standing[step.key].signature == step.signature
    }
    done = {key for key in kept if standing[key].status in DONE}
    return PlanChange(
        plan=plan,
        kept=[standing[key] for key in kept],
        moved=[
            (standing[key].pk, step) for key, step in kept.items() if _moves(standing[key], step)
        ],
        added=[step for step in plan.steps if step.key not in kept],
        retired=[key for key in standing if key not in kept],
        first_open_position=next(
            (step.position for step in plan.steps if step.key not in done), len(plan.steps)
        ),
    )


def keep_all(tenant_id: UUID, task_id: UUID, next_position: int) -> PlanChange:
    """Return the change of a function's plan: what is stored stays, other calls are made anew."""
    outside_of_loops = current(tenant_id, task_id).filter(scope="").order_by("position")
    return PlanChange(
        plan=Plan((), {"v": None}),
        kept=list(outside_of_loops.defer("result", "error", "options")),
        moved=[],
        added=[],
        retired=[],
        first_open_position=next_position,
    )


def _moves(row: Step, step: PlannedStep) -> bool:
    return row.position != step.position or row.arguments != step.arguments


def replace(tenant_id: UUID, task_id: UUID, change: PlanChange, plan_version: int) -> None:
    """Write a new plan; finished steps with the same signature keep their results.

    Args:
        plan_version: of the new plan.

    Transaction: the caller's, which holds the task row. Locks: the task's step rows.
    """
    rows = current(tenant_id, task_id)
    rows.filter(key__in=change.retired).update(retired_in=plan_version, status=_retired_status())
    for pk, step in change.moved:
        rows.filter(pk=pk).update(position=step.position, arguments=step.arguments)
    _insert(tenant_id, task_id, change.added, plan_version)


def current(tenant_id: UUID, task_id: UUID) -> Any:
    """Return the steps of the current plan."""
    return Step.objects.for_tenant(tenant_id).filter(task_id=task_id, retired_in=None)


def _retired_status() -> Any:
    # Results of finished steps stay readable as what they were.
    return Case(
        When(status__in=("planned", "running", "waiting"), then=Value("superseded")),
        default=F("status"),
    )


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
