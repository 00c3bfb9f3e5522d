"""The task that started a task, and those that it started, as part of its snapshot's one query."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import F, OuterRef
from django.db.models.functions import JSONObject

from tasks_app.domain.principal import Principal
from tasks_app.models import Task

MAX_CHILDREN = 50


@dataclass(frozen=True, slots=True)
class Relative:
    """A task that started this one or was started by it; `step_key` is the starting step's."""

    task_id: UUID
    title: str
    workflow: str
    status: str
    step_key: str


def parent_of_each(principal: Principal) -> ArraySubquery:
    """Return an annotation: the parent of each task, if the principal may see it."""
    rows = Task.objects.visible_to(principal).filter(
        tenant_id=OuterRef("tenant_id"), id=OuterRef("parent_id")
    )
    return ArraySubquery(rows.values_list(_shape(OuterRef("parent_step__key")))[:1])


def children_of_each(principal: Principal) -> ArraySubquery:
    """Return an annotation: the newest children of each task that the principal may see."""
    rows = Task.objects.visible_to(principal).filter(
        tenant_id=OuterRef("tenant_id"), parent_id=OuterRef("pk")
    )
    newest = rows.order_by("-created_at", "-id")
    return ArraySubquery(newest.values_list(_shape(F("parent_step__key")))[:MAX_CHILDREN])


def list_relatives(
    principal: Principal, task_id: UUID
) -> tuple[Relative | None, tuple[Relative, ...]]:
    """Return a visible task's parent and its newest children; nothing for any other task."""
    rows = Task.objects.visible_to(principal).filter(pk=task_id)
    annotated = rows.annotate(
        parents=parent_of_each(principal), started_tasks=children_of_each(principal)
    )
    row = annotated.values("parents", "started_tasks").first()
    if row is None:
        return None, ()
    return next(iter(relatives(row["parents"])), None), relatives(row["started_tasks"])


def relatives(found: Sequence[dict[str, Any]] | None) -> tuple[Relative, ...]:
    """Return what an annotation holds."""
    return tuple(Relative(**{**row, "task_id": UUID(row["task_id"])}) for row in found or ())


def _shape(step_key: Any) -> JSONObject:
    return JSONObject(
        task_id="id", title="title", workflow="workflow", status="status", step_key=step_key
    )
