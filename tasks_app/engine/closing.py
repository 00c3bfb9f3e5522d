"""How a task ends without success: what it did is undone, its children end, and then it does.

What is left of its plan gives way to the plan that undoes (`compensation`), which whichever worker
claims the task runs. How the task is to end waits in its row meanwhile (E71; runs contract R61,
R71). A task with nothing to undo and without live children ends in the commit that says so.
"""

from collections.abc import Mapping

from django.db import transaction
from django.db.models.functions import Now

from ledger_app.services import audit
from tasks_app.domain.states import LEASED, TaskStatus
from tasks_app.engine import children, compensation, continuation, replanning, transitions
from tasks_app.events.catalogue import EventType
from tasks_app.models import Task
from tasks_app.workflows import registry


def begin(
    task: Task,
    target: TaskStatus,
    *,
    actor: str,
    stop_reason: str,
    reason: str,
    error: Mapping[str, object] | None,
) -> bool:
    """Begin to close a task; False when it can end at once.

    `task` is brought up to date. A task that no worker holds is due at once.

    Transaction: the caller's, which holds the task row. Locks: step rows, approvals, audit stream.
    """
    if task.closing_as:
        return False
    acts = compensation.to_undo(task)
    if not acts and not _waits(task):
        return False
    change = compensation.change_for(task, acts)
    replanning.replace_plan(task, change, goal=task.goal, cause="compensation", actor=actor)
    task.closing_as = target.value
    task.closing = {
        "actor": actor,
        "stop_reason": stop_reason,
        "reason": reason,
        "error": None if error is None else dict(error),
    }
    task.save(update_fields=["closing_as", "closing"])
    _tell(task, actor, reason, [act.key for act in acts])
    _make_due(task, actor, reason)
    # Told only now: no transaction holds the rows of two tasks.
    tenant_id, task_id = task.tenant_id, task.id
    transaction.on_commit(lambda: children.cancel_live(tenant_id, task_id, target), robust=True)
    return True


def _waits(task: Task) -> bool:
    """Tell whether children have to end first; a task that no worker could run does not wait."""
    can_run = TaskStatus(task.status) is not TaskStatus.DEAD_LETTERED
    return (
        can_run
        and registry.find_definition(task.workflow) is not None
        and children.has_live(task.tenant_id, task.id)
    )


def _tell(task: Task, actor: str, reason: str, keys: list[str]) -> None:
    told = transitions.append_event(
        task.id,
        task.tenant_id,
        EventType.LOG,
        {"message": f"{_first(keys)} before the task ends as {task.closing_as}"},
        bump=1,
    )
    task.state_version = told.state_version
    audit.append(
        stream=f"task:{task.id}",
        tenant_id=task.tenant_id,
        actor=actor,
        action="task.closing",
        target=f"task:{task.id}",
        old_version=told.state_version - 1,
        new_version=told.state_version,
        details={
            "as": task.closing_as,
            "plan_version": task.plan_version,
            "compensates": keys[:50],
            "reason": reason,
        },
    )


def _first(undone: list[str]) -> str:
    return f"{len(undone)} acts are undone" if undone else "Child tasks end"


def _make_due(task: Task, actor: str, reason: str) -> None:
    """Have a worker begin now, unless one holds the task."""
    status = TaskStatus(task.status)
    if status in LEASED:
        return
    if status in {TaskStatus.QUEUED, TaskStatus.RECOVERING}:
        Task.objects.for_tenant(task.tenant_id).filter(pk=task.pk).update(next_wake_at=Now())
    else:
        moved = transitions.move(
            task.id,
            task.tenant_id,
            status,
            TaskStatus.QUEUED,
            actor=actor,
            reason=reason,
            due="now",
        )
        task.status, task.state_version = TaskStatus.QUEUED, moved.state_version
    continuation.owe(task.id, task.tenant_id, "closing")
