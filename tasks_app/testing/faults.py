"""What may happen to a worker at a sync point: it dies, it freezes, its message comes twice, or a person steers.

A fault gets the task's id, inside the worker's own thread and outside any transaction.
"""

from collections.abc import Callable
from uuid import UUID, uuid4

from django.db import connection

from tasks_app.admission import commands
from tasks_app.domain.errors import EngineSignal, RuntimeFault
from tasks_app.domain.principal import Principal
from tasks_app.domain.states import TERMINAL, TaskStatus
from tasks_app.engine import lease as leases
from tasks_app.engine import recovery, slice_runner
from tasks_app.models import Task

Fault = Callable[[UUID], None]


class WorkerDied(EngineSignal):
    """The worker is gone: no handler of an author's code may catch this."""


def die(_task_id: UUID) -> None:
    """Kill the worker here. Raises: WorkerDied."""
    raise WorkerDied


def freeze(task_id: UUID) -> None:
    """Stop the worker past its lease, let another one do the rest, then wake it up again."""
    held = leases.keeper().lease
    lose_lease(task_id)
    run_due(task_id)
    if held is not None and held.task.id == task_id:
        # What its own clock tells the worker when it wakes up.
        held.deadline = 0.0


def deliver_twice(task_id: UUID) -> None:
    """Deliver the task's message a second time, while the worker is at it."""
    slice_runner.run_slice(task_id)


def pause_and_resume(by: Principal) -> Fault:
    """Return a fault: a person pauses the task here and resumes it at once."""

    def steer(task_id: UUID) -> None:
        for kind in ("pause", "resume"):
            task = Task.objects.for_tenant(by.tenant_id).get(pk=task_id)
            if TaskStatus(task.status) in TERMINAL:
                return
            try:
                commands.submit_command(
                    by,
                    task_id=task_id,
                    command_id=uuid4(),
                    type=kind,
                    payload={},
                    expected_version=task.state_version,
                    reason="a test steers at every point",
                    source="code",
                )
            except RuntimeFault:
                # What cannot be steered now, such as a held task, is left alone.
                return

    return steer


def lose_lease(task_id: UUID) -> None:
    """Move time: the task's lease ended an hour ago, and the sweeper has seen it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE tasks_app_task SET lease_expires_at = clock_timestamp() - interval '1 h'"
            " WHERE id = %s AND lease_expires_at IS NOT NULL",
            [task_id],
        )
    recovery.recover_lost()


def make_due(task_id: UUID) -> None:
    """Move time: timers and pauses between tries of the task have ended."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE tasks_app_task SET next_wake_at = clock_timestamp() - interval '1 s'"
            " WHERE id = %s AND next_wake_at IS NOT NULL AND status IN ('queued', 'recovering')",
            [task_id],
        )
        cursor.execute(
            "UPDATE tasks_app_step SET wake_at = clock_timestamp() - interval '1 s'"
            " WHERE task_id = %s AND kind = 'sleep' AND wake_at IS NOT NULL",
            [task_id],
        )


def run_due(task_id: UUID) -> None:
    """Run slices of the task while it is due; time is moved for it."""
    while True:
        make_due(task_id)
        if slice_runner.run_slice(task_id) == "idle":
            return
