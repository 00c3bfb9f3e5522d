"""Holds a task for a person, who alone can say how it goes on (E60).

A cancel that waits is such a word: it is applied in the commit that holds the task. Other commands
wait for the repair.
"""

from collections.abc import Mapping
from uuid import UUID

from tasks_app.domain.states import TaskStatus
from tasks_app.domain.steering import CommandType
from tasks_app.engine import steering, transitions
from tasks_app.engine.session import SliceSession
from tasks_app.models import SteeringCommand, Step, Task


def hold(
    task_id: UUID,
    tenant_id: UUID,
    source: TaskStatus,
    *,
    code: str,
    evidence: Mapping[str, object],
    fence: int | None = None,
) -> None:
    """Hold a task with the evidence, or end it when somebody has cancelled it already.

    Transaction: the caller's, which holds the task row or its fence. Raises: LeaseLost.
    """
    transitions.dead_letter(task_id, tenant_id, source, code=code, evidence=evidence, fence=fence)
    waiting = SteeringCommand.objects.for_tenant(tenant_id).filter(
        task_id=task_id, type=CommandType.CANCEL, status="pending"
    )
    if waiting.exists():
        steering.settle_pending(Task.objects.for_tenant(tenant_id).get(pk=task_id))


def hold_at(session: SliceSession, step: Step, code: str, message: str) -> None:
    """Hold a task that a slice works on at a step. Transaction: the caller's, which owns it."""
    task = session.task
    session.commit(checkpoint="dead_letter")
    session.end("dead_lettered")
    hold(
        task.id,
        task.tenant_id,
        TaskStatus(task.status),
        fence=task.fence,
        code=code,
        evidence={"step": step.key, "message": message[:500]},
    )
