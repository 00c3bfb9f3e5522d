"""Giving a live task another plan: after a changed goal, a migration or a repair.

What is finished stays finished where its signature is the same; the difference is stored with the
plan and can be looked at before (E72).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Count, F, Q, Sum
from pydantic import BaseModel

from ledger_app.services import audit
from tasks_app.domain.errors import FieldProblem, InvalidInputError, WorkflowFailedError
from tasks_app.engine import approvals, plans, values
from tasks_app.engine.plans import PlanChange
from tasks_app.models import PlanVersion, Step, StepRange, Task
from tasks_app.workflows import registry
from tasks_app.workflows.functions import FunctionWorkflow
from tasks_app.workflows.planning import PlannedStep

# A preview counts the items that a map would take over only while that is quick.
_COUNTED_ITEMS = 5_000


@dataclass(frozen=True, slots=True)
class MapForecast:
    """How many items of a map would not be run again; None where only running it can tell."""

    step: str
    items: int | None
    kept: int | None


@dataclass(frozen=True, slots=True)
class PlanPreview:
    """What a changed goal would do to the plan; nothing was changed."""

    goal: dict[str, Any]
    plan_version: int
    workflow_version: int
    difference: dict[str, Any]
    maps: tuple[MapForecast, ...]


def change_for(task: Task, goal: BaseModel) -> PlanChange:
    """Return what the installed code plans for a goal, against the task's present plan.

    Raises:
        UnknownWorkflowError; InvalidInputError when the code cannot plan for it.
    """
    definition = registry.get_definition(task.workflow)
    if issubclass(definition, FunctionWorkflow):
        return plans.keep_all(task.tenant_id, task.id, task.next_position)
    try:
        plan = plans.build(
            task.tenant_id,
            task.id,
            definition=definition,
            goal=goal,
            approval_policy=task.approval_policy,
        )
    except Exception as error:
        # A fault of the author's code for this goal: the old plan stands, the change is refused.
        said = error.__cause__ if isinstance(error, WorkflowFailedError) else error
        detail = f"The workflow cannot plan for this goal: {said}"[:300]
        problem = FieldProblem("/goal", "plan_failed", detail)
        raise InvalidInputError(detail, [problem]) from error
    return plans.compare(task.tenant_id, task.id, plan)


def preview(task: Task, goal: dict[str, Any], parsed: BaseModel) -> PlanPreview:
    """Return what a goal would change; reads only."""
    change = change_for(task, parsed)
    return PlanPreview(
        goal=goal,
        plan_version=task.plan_version + 1,
        workflow_version=registry.get_definition(task.workflow).version,
        difference=change.difference(),
        maps=tuple(_forecasts(task, change)),
    )


def replace_plan(
    task: Task,
    change: PlanChange,
    *,
    goal: dict[str, Any],
    cause: str,
    actor: str,
    command_id: UUID | None = None,
) -> None:
    """Store a new plan with the next number, its difference and the goal it was made for.

    Open approvals and questions that the new plan does not keep as they are end with the old one.

    Transaction: the caller's, which holds the task row. Locks: steps, approvals, audit stream last.
    """
    if task.plan_version == 1:
        _record_first(task)
    version = task.plan_version + 1
    plans.replace(task.tenant_id, task.id, change, version)
    current = plans.current(task.tenant_id, task.id)
    kept = current.filter(plan_version__lt=version, kind="approval")
    definition = registry.get_definition(task.workflow)
    # Nobody knows yet what a function will ask under its new goal.
    asks_anew = bool(change.added) or issubclass(definition, FunctionWorkflow)
    kept_ids = [] if asks_anew else list(kept.values_list("id", flat=True))
    approvals.supersede_open(task.tenant_id, task.id, keep_steps=kept_ids)
    _reopen_questions(current)
    task.goal, task.plan_version, task.plan_result = goal, version, change.plan.result
    task.workflow_version = definition.version
    task.next_position = change.first_open_position
    if task.progress_total is not None:
        task.progress_done, task.progress_total = _work(task)
    task.save(
        update_fields=[
            "goal",
            "workflow_version",
            "plan_version",
            "plan_result",
            "next_position",
            "progress_done",
            "progress_total",
        ]
    )
    difference = change.difference()
    _record(task, cause, actor, difference, command_id)
    audit.append(
        stream=f"task:{task.id}",
        tenant_id=task.tenant_id,
        actor=actor,
        action="plan.replaced",
        target=f"task:{task.id}",
        details={
            "cause": cause,
            "plan_version": version,
            "workflow": f"{task.workflow}@{task.workflow_version}",
            **difference,
        },
    )


def _record(
    task: Task, cause: str, actor: str, difference: Mapping[str, Any], command_id: UUID | None
) -> None:
    PlanVersion.objects.create(
        tenant_id=task.tenant_id,
        task_id=task.id,
        version=task.plan_version,
        cause=cause,
        workflow_version=task.workflow_version,
        command_id=command_id,
        difference=difference,
        actor=actor,
    )


def _record_first(task: Task) -> None:
    """Tell of the plan of admission, too: a task that is never replanned has no history of plans."""
    rows = Step.objects.for_tenant(task.tenant_id).filter(task_id=task.id, plan_version=1)
    keys = rows.order_by("position").values_list("key", flat=True)
    none = {"count": 0, "keys": list[str]()}
    PlanVersion.objects.create(
        tenant_id=task.tenant_id,
        task_id=task.id,
        version=1,
        cause="admission",
        workflow_version=task.workflow_version,
        difference={
            "kept": none,
            "added": {"count": rows.count(), "keys": list(keys[: plans.NAMED])},
            "retired": none,
        },
        actor=f"user:{task.initiator_id}",
        created_at=task.created_at,
    )


def _reopen_questions(current: Any) -> None:
    """A question that the new plan keeps is asked again when the plan reaches it."""
    current.filter(kind__in=("question", "approval"), status="waiting").update(
        status="planned", wake_at=None
    )


def _work(task: Task) -> tuple[int, int]:
    """Return finished and known units of the current plan."""
    counts = plans.current(task.tenant_id, task.id).aggregate(
        total=Count("id"),
        done=Count("id", filter=Q(status__in=plans.DONE)),
        items=Sum(F("next_item"), default=0, filter=Q(kind="map", status="succeeded")),
        maps=Count("id", filter=Q(kind="map", status="succeeded")),
    )
    extra = max(0, counts["items"] - counts["maps"])
    return counts["done"] + extra, counts["total"] + extra


# --- what a preview can tell of maps -------------------------------------------------------------
def _forecasts(task: Task, change: PlanChange) -> list[MapForecast]:
    standing = {row.key for row in change.kept}
    done = {row.key for row in change.kept if row.status in plans.DONE}
    kept = [
        MapForecast(row.key, row.next_item if row.status in plans.DONE else None, row.next_item)
        for row in change.kept
        if row.kind == "map"
    ]
    added = [_forecast(task, step, done, standing) for step in change.added if step.kind == "map"]
    return kept + added


def _forecast(task: Task, step: PlannedStep, done: set[str], standing: set[str]) -> MapForecast:
    """Compare the digests of the items with those of finished ones, if all that is known already."""
    if not step.references() <= done:
        return MapForecast(step.key, None, None)
    arguments = values.Arguments(task.tenant_id, task.id)
    source, *rest = (arguments.value(encoded) for encoded in step.arguments["args"])
    items = values.Items(task.tenant_id, source)
    if items.count > _COUNTED_ITEMS:
        return MapForecast(step.key, items.count, None)
    known = _finished_digests(task, step.method, standing)
    found = sum(
        values.item_digest(step.method, item, rest) in known for item in items.read(0, items.count)
    )
    return MapForecast(step.key, items.count, found)


def _finished_digests(task: Task, method: str, kept: set[str]) -> set[str]:
    """Return the digests of items whose results a new map of a method would take over."""
    maps = Step.objects.for_tenant(task.tenant_id).filter(
        task_id=task.id, kind="map", method=method
    )
    sources = [row.id for row in maps if row.retired_in is not None or row.key not in kept]
    known: set[str] = set()
    ranges = StepRange.objects.for_tenant(task.tenant_id).filter(step_id__in=sources)
    for row in ranges.iterator(chunk_size=50):
        digests = row.item_digests
        if row.failed:
            rows = values.unpack(task.tenant_id, row.results)
            digests = [d for d, item in zip(digests, rows, strict=True) if "result" in item]
        known.update(digests)
    return known
