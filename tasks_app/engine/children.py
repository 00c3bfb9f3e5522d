"""Parents and children: who wakes whom when a task ends, and what ends with it.

No transaction locks two tasks that exist already: a parent inserts its child, and reads it without a
lock; a child that has ended wakes its parent in a transaction of its own; children of a task that
is cancelled or fails are cancelled one at a time, and the task ends after them (`closing`). The foreign key share-locks the
parent's key for a child that is written, which is why tasks are locked without their key: it waits
for nobody, and whoever holds a parent never waits for a child. Whatever a crash leaves out is
derived from the rows by the sweeper.
"""

from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models.functions import Now

from tasks_app import syncpoints
from tasks_app.domain.states import TERMINAL, TaskStatus
from tasks_app.engine import child_events, command_intake, continuation, passes
from tasks_app.models import Step, Task

BATCH = 200

_ENDED = [status.value for status in TERMINAL]

# Parents that wait for a child that has ended.
_FORGOTTEN_PARENTS = """
SELECT p.tenant_id, p.id
FROM tasks_app_step s
JOIN tasks_app_task c ON c.parent_id = s.task_id AND c.parent_step_id = s.id
JOIN tasks_app_task p ON p.id = s.task_id
WHERE s.kind = 'child' AND s.status = 'waiting' AND s.retired_in IS NULL
  AND c.status = ANY(%s) AND p.status = 'queued' AND p.next_wake_at IS NULL
LIMIT %s
"""

# Parents that are to end and have no live child any more.
_FORGOTTEN_CLOSING = """
SELECT p.tenant_id, p.id
FROM tasks_app_task p
WHERE p.closing_as <> '' AND p.status = 'queued' AND p.next_wake_at IS NULL
  AND NOT EXISTS (SELECT FROM tasks_app_task c
    WHERE c.parent_id = p.id AND c.status <> ALL(%s))
LIMIT %s
"""

# Children whose parent ends or ended without success, or no longer wants what they do.
_ORPHANS = """
SELECT c.tenant_id, c.id, coalesce(nullif(p.closing_as, ''), p.status)
FROM tasks_app_task c
JOIN tasks_app_task p ON p.id = c.parent_id
JOIN tasks_app_step s ON s.id = c.parent_step_id
WHERE c.parent_id IS NOT NULL AND c.status <> ALL(%s)
  AND (p.closing_as <> '' OR p.status IN ('failed', 'cancelled') OR s.status = 'superseded')
  AND NOT EXISTS (SELECT FROM tasks_app_steeringcommand k
    WHERE k.task_id = c.id AND k.type = 'cancel' AND k.source = 'system')
LIMIT %s
"""


def on_end(tenant_id: UUID, task_id: UUID, target: TaskStatus, parent_id: UUID | None) -> None:
    """Have the parent woken and the children ended once the task's end is committed.

    Transaction: the caller's, which ends the task; what follows has transactions of its own.
    """
    if parent_id is not None:
        transaction.on_commit(lambda: syncpoints.reach("sub.after_terminal", task_id), robust=True)
        # Told before: a parent that waits for nothing else may have ended right after it is woken.
        transaction.on_commit(lambda: child_events.tell_end(task_id, tenant_id), robust=True)
        transaction.on_commit(lambda: wake_parent(tenant_id, parent_id), robust=True)
    if target in {TaskStatus.FAILED, TaskStatus.CANCELLED}:
        transaction.on_commit(lambda: cancel_live(tenant_id, task_id, target), robust=True)


def wake_parent(tenant_id: UUID, parent_id: UUID) -> None:
    """Make a task due that waits for a child that has ended; otherwise do nothing.

    One that is to end waits until none of its children lives.

    Transaction: its own. Locks: the parent's row, waiting for a parent that is about to wait; so
    either the parent sees the child's end, or this sees the parent wait.
    """
    syncpoints.reach("child.before_wake", parent_id)
    tasks = Task.objects.for_tenant(tenant_id)
    with transaction.atomic(durable=True):
        parent = tasks.select_for_update(no_key=True).filter(pk=parent_id).first()
        if parent is None or parent.status != TaskStatus.QUEUED or parent.next_wake_at is not None:
            return
        if _may_go_on(parent):
            tasks.filter(pk=parent_id).update(next_wake_at=Now())
            continuation.owe(parent_id, tenant_id, "child")


def _may_go_on(parent: Task) -> bool:
    if parent.closing_as:
        return not has_live(parent.tenant_id, parent.id)
    waiting = Step.objects.for_tenant(parent.tenant_id).filter(
        task_id=parent.id, kind="child", status="waiting", retired_in=None
    )
    ended = Task.objects.for_tenant(parent.tenant_id).filter(
        parent_id=parent.id, parent_step_id__in=waiting.values("id"), status__in=_ENDED
    )
    return bool(ended.exists())


def has_live(tenant_id: UUID, parent_id: UUID) -> bool:
    """Tell whether a task that this one has started has not ended."""
    return bool(_live(tenant_id, parent_id).exists())


def _live(tenant_id: UUID, parent_id: UUID) -> Any:
    return Task.objects.for_tenant(tenant_id).filter(parent_id=parent_id).exclude(status__in=_ENDED)


def cancel_live(tenant_id: UUID, parent_id: UUID, ended_as: str) -> None:
    """Cancel the children of a task that ends without success, one after the other.

    Transaction: one for each child. Locks: that child's row.
    """
    for child_id in _live(tenant_id, parent_id).order_by("id").values_list("id", flat=True):
        command_intake.cancel_by_system(
            tenant_id, child_id, reason=f"The parent task was {ended_as}."
        )


def wake_forgotten() -> int:
    """Wake parents whose child has ended while nobody was there to tell them; return how many."""
    found: list[tuple[UUID, UUID]] = []
    with connection.cursor() as cursor:
        for statement in (_FORGOTTEN_PARENTS, _FORGOTTEN_CLOSING):
            cursor.execute(statement, [_ENDED, BATCH])
            found += cursor.fetchall()
    passes.each(wake_parent, found)
    return len(found)


def cancel_orphans() -> int:
    """Cancel children that nobody waits for any more; return how many were told."""
    with connection.cursor() as cursor:
        cursor.execute(_ORPHANS, [_ENDED, BATCH])
        found = cursor.fetchall()
    passes.each(_cancel_orphan, found)
    return len(found)


def _cancel_orphan(tenant_id: UUID, child_id: UUID, parent_status: str) -> None:
    ended = parent_status in {TaskStatus.FAILED, TaskStatus.CANCELLED}
    why = f"was {parent_status}" if ended else "has another goal now"
    command_intake.cancel_by_system(tenant_id, child_id, reason=f"The parent task {why}.")


def depth_of(tenant_id: UUID, task_id: UUID) -> int:
    """Return how many tasks stand above a task."""
    depth, parents = 0, Task.objects.for_tenant(tenant_id)
    parent_id = parents.filter(pk=task_id).values_list("parent_id", flat=True).get()
    while parent_id is not None:
        depth += 1
        parent_id = parents.filter(pk=parent_id).values_list("parent_id", flat=True).get()
    return depth
