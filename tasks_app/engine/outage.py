"""What becomes of a task whose slice broke: was it the task, or was the database away?

A slice that fell with the database is nobody's fault. Its worker sends the task to recovery itself,
as soon as the database answers, and no recovery is counted (P27). What broke otherwise is counted
by the sweeper, so that a task that breaks every slice ends with a person (E60).
"""

import logging
import time

from django.db import DatabaseError, InterfaceError, close_old_connections, connection
from django.db.models.functions import Now

from tasks_app.domain.errors import LeaseLost
from tasks_app.domain.states import TaskStatus
from tasks_app.engine import continuation, shutdown, transitions
from tasks_app.engine.lease import Lease, keeper, owned_row
from tasks_app.models import Slice

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 0.5


def give_up(lease: Lease, *, failed: bool) -> None:
    """Let go of the task of a slice that broke; changes nothing when a newer fence owns it.

    Tries until the database answers or the worker stops; then the lease ends by itself.

    Args:
        failed: the slice met an error; False when it only found its lease too old.
    """
    lease.lost = True
    while not _has_given_up(lease, failed=failed) and not shutdown.requested():
        time.sleep(PAUSE_SECONDS)


def _has_given_up(lease: Lease, *, failed: bool) -> bool:
    try:
        close_old_connections()
        if keeper().look() != lease.session:
            _send_to_recovery(lease)
        elif failed:
            _end_lease(lease)
    except LeaseLost:
        return True
    except (DatabaseError, InterfaceError) as error:
        logger.warning("outage.database_away", extra={"error": str(error)})
        return False
    return True


def _end_lease(lease: Lease) -> None:
    """End the lease now; the sweeper finds it at its next pass and counts."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE tasks_app_task SET lease_expires_at = clock_timestamp() - interval '1 day'"
            " WHERE id = %s AND fence = %s AND status IN ('working', 'pausing')",
            [lease.task.id, lease.task.fence],
        )


def _send_to_recovery(lease: Lease) -> None:
    """Make the task due for another slice, which verifies what this one left.

    Transaction: its own. Locks: the task row, then the audit stream.
    Raises: LeaseLost when the task is somebody else's.
    """
    task = lease.task
    with owned_row(task) as row:
        Slice.objects.for_tenant(task.tenant_id).filter(pk=lease.slice_id).update(
            ended_at=Now(), outcome="lost"
        )
        transitions.move(
            task.id,
            task.tenant_id,
            TaskStatus(row.status),
            TaskStatus.RECOVERING,
            fence=task.fence,
            reason="the database was away",
            due="now",
        )
        continuation.owe(task.id, task.tenant_id, "outage")
    logger.warning("outage.given_back", extra={"task_id": str(task.id), "fence": task.fence})
