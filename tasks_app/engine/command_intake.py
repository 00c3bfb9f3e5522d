"""A command's way in, whoever gives it: stored with its number, then applied or left for the worker.

Who may give which command, and whether it fits, is decided before.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid5

from django.db import transaction
from django.db.models.functions import Now

from ledger_app.domain.canonical import digest_of
from ledger_app.services import audit
from tasks_app.domain.states import LEASED, TERMINAL, TaskStatus
from tasks_app.domain.steering import REASON_MAX, CommandType
from tasks_app.engine import steering, transitions
from tasks_app.events.catalogue import EventType
from tasks_app.models import SteeringCommand, Task


def store(
    task: Task,
    *,
    command_id: UUID,
    kind: CommandType,
    payload: Mapping[str, Any],
    payload_sha256: str,
    reason: str,
    requested_by_id: int,
    source: str,
) -> SteeringCommand:
    """Store a command under the task's next number.

    Transaction: the caller's, which holds the task row.
    """
    task.command_seq += 1
    Task.objects.for_tenant(task.tenant_id).filter(pk=task.pk).update(command_seq=task.command_seq)
    return SteeringCommand.objects.create(
        tenant_id=task.tenant_id,
        task_id=task.id,
        command_id=command_id,
        seq=task.command_seq,
        type=kind.value,
        payload=dict(payload),
        payload_sha256=payload_sha256,
        expected_version=task.state_version,
        reason=reason.strip(),
        requested_by_id=requested_by_id,
        source=source,
        old_version=task.state_version,
    )


def accept(
    task: Task,
    command: SteeringCommand,
    *,
    actor: str,
    via: str = "",
    request_id: str | None = None,
) -> None:
    """Apply a stored command if no worker holds the task, else leave it for the next safe point.

    Transaction: the caller's, which holds the task row; the audit stream comes last.
    """
    if TaskStatus(task.status) in LEASED and command.type != CommandType.SET_PRIORITY:
        _leave_pending(task, command, actor)
    else:
        steering.apply_now(task, command)
        command.refresh_from_db(from_queryset=SteeringCommand.objects.for_tenant(task.tenant_id))
    audit.append(
        stream=f"task:{task.id}",
        tenant_id=task.tenant_id,
        actor=actor,
        action="command.accepted",
        target=f"command:{command.command_id}",
        via=via,
        old_version=command.old_version,
        new_version=task.state_version,
        request_id=request_id,
        details={"type": command.type, "reason": command.reason},
    )


def cancel_by_system(tenant_id: UUID, task_id: UUID, *, reason: str) -> bool:
    """Cancel a task on behalf of the task that started it, as a person's command would.

    It is told once. Returns False when there is nothing to do any more.

    Transaction: its own. Locks: the task row.
    """
    with transaction.atomic(durable=True):
        task = Task.objects.for_tenant(tenant_id).select_for_update(no_key=True).get(pk=task_id)
        command_id = uuid5(task_id, "parent ended")
        known = SteeringCommand.objects.for_tenant(tenant_id).filter(command_id=command_id)
        if task.status in TERMINAL or known.exists():
            return False
        command = store(
            task,
            command_id=command_id,
            kind=CommandType.CANCEL,
            payload={},
            payload_sha256=digest_of({"task": str(task_id), "type": "cancel", "reason": reason}),
            reason=reason[:REASON_MAX],
            requested_by_id=task.initiator_id,
            source=steering.SYSTEM_SOURCE,
        )
        accept(task, command, actor=steering.actor_of(command))
    return True


def _leave_pending(task: Task, command: SteeringCommand, actor: str) -> None:
    """Tell the worker, who applies the command at its next safe point."""
    if command.type == CommandType.CANCEL:
        Task.objects.for_tenant(task.tenant_id).filter(pk=task.pk, cancel_requested_at=None).update(
            cancel_requested_at=Now()
        )
    if command.type == CommandType.PAUSE and task.status == TaskStatus.WORKING:
        moved = transitions.move(
            task.id,
            task.tenant_id,
            TaskStatus.WORKING,
            TaskStatus.PAUSING,
            actor=actor,
            reason=command.reason,
        )
        task.status = TaskStatus.PAUSING
    else:
        moved = transitions.append_event(
            task.id,
            task.tenant_id,
            EventType.LOG,
            {"message": f"{command.type} accepted; it takes effect at the next safe point"},
            bump=1,
        )
    task.state_version = moved.state_version
