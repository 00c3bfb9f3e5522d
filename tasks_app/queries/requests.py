"""What a task, or a task that it started, waits for a person to say: questions and approvals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tasks_app.domain.principal import Principal
from tasks_app.domain.states import TERMINAL, TaskStatus
from tasks_app.models import Step, Task, WithdrawnRequest
from tasks_app.queries.approvals import approvals_waiting_for
from tasks_app.queries.snapshot import TaskSnapshot

_MAX_DEPTH = 5
_LIVE = tuple(status for status in TaskStatus if status not in TERMINAL)


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """Something that waits for a person; `key` never stands for anything else in the task's life.

    An approval has a digest, and `version` is its own; a question has a schema, and `version` is
    that of its task.
    """

    key: str
    id: str
    task_id: UUID
    workflow: str
    version: int
    prompt: str
    schema: Mapping[str, Any]
    args_sha256: str = ""


def list_requests(principal: Principal, snapshot: TaskSnapshot) -> list[OpenRequest]:
    """Return what waits below a task, oldest first, as far as this very person may answer it.

    Requests that were withdrawn from MCP are left out.
    """
    tasks = _waiting(principal, snapshot)
    if not tasks:
        return []
    found = [*_questions(principal, tasks), *_approvals(principal, tasks)]
    if not found:
        return []
    withdrawn = WithdrawnRequest.objects.for_tenant(principal.tenant_id).filter(task_id__in=tasks)
    gone = set(withdrawn.values_list("key", flat=True))
    return [request for request in found if request.key not in gone]


def _waiting(principal: Principal, snapshot: TaskSnapshot) -> dict[UUID, tuple[str, int]]:
    """Return workflow and version of the task and its descendants that wait for a person."""
    if snapshot.status is TaskStatus.INPUT_REQUIRED:
        return {snapshot.task_id: (snapshot.workflow, snapshot.state_version)}
    waiting: dict[UUID, tuple[str, int]] = {}
    if not any(child.status not in TERMINAL for child in snapshot.children):
        return waiting
    parents: Sequence[UUID] = [snapshot.task_id]
    for _ in range(_MAX_DEPTH):
        rows = Task.objects.visible_to(principal).filter(parent_id__in=parents, status__in=_LIVE)
        live = list(rows.values_list("id", "workflow", "state_version", "status"))
        if not live:
            break
        for task_id, workflow, version, status in live:
            if status == TaskStatus.INPUT_REQUIRED:
                waiting[task_id] = workflow, version
        parents = [row[0] for row in live]
    return waiting


def _questions(principal: Principal, tasks: Mapping[UUID, tuple[str, int]]) -> list[OpenRequest]:
    if not principal.can("tasks:steer"):
        return []
    rows = Step.objects.for_tenant(principal.tenant_id).filter(
        task_id__in=tasks, kind="question", status="waiting", retired_in__isnull=True
    )
    return [
        OpenRequest(
            key=f"inp_{step.id}",
            id=step.key,
            task_id=step.task_id,
            workflow=tasks[step.task_id][0],
            version=tasks[step.task_id][1],
            prompt=str(step.options.get("prompt") or step.key),
            schema=step.options.get("schema") or {},
        )
        for step in rows.order_by("id")
    ]


def _approvals(principal: Principal, tasks: Mapping[UUID, tuple[str, int]]) -> list[OpenRequest]:
    rows = approvals_waiting_for(principal).filter(task_id__in=tasks).order_by("created_at")
    return [
        OpenRequest(
            key=f"apr_{approval.id.hex}",
            id=str(approval.id),
            task_id=approval.task_id,
            workflow=tasks[approval.task_id][0],
            version=approval.version,
            prompt=approval.tool,
            schema=approval.arguments,
            args_sha256=approval.args_sha256,
        )
        for approval in rows
    ]
