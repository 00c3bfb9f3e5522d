"""Sweeper passes: lost leases, due timers, unanswered questions, owed messages, over-age tasks.

Any number of sweepers may run; each pass takes bounded batches and skips locked rows, so two of
them never do the same work twice (E45).
"""

import logging
import time
from dataclasses import dataclass
from uuid import UUID

from django.db import connection, transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from ledger_app.services import audit
from tasks_app import conf, syncpoints
from tasks_app.domain.states import LEASED, TaskStatus
from tasks_app.engine import (
    children,
    continuation,
    delivery,
    holding,
    passes,
    queue,
    queue_sql,
    sql,
    thread_entry,
    threads,
    transitions,
)
from tasks_app.models import Approval, Slice, Step, Task

logger = logging.getLogger(__name__)

BATCH = 200


@dataclass(frozen=True, slots=True)
class SweepCounts:
    """What one pass did."""

    recovered: int = 0
    woken: int = 0
    expired: int = 0
    overdue: int = 0
    sent: int = 0
    parents: int = 0
    orphans: int = 0
    begun: int = 0
    deserted: int = 0

    @property
    def total(self) -> int:
        """Return the number of rows that the pass moved."""
        told = self.parents + self.orphans + self.begun + self.deserted
        return self.recovered + self.woken + self.expired + self.overdue + self.sent + told


def sweep(*, include_leases: bool = True) -> SweepCounts:
    """Make one pass over everything that nobody else would notice.

    Args:
        include_leases: False right after an outage, so that live workers renew first (P27).
    """
    sends = not conf.runtime().poll_claim
    return SweepCounts(
        recovered=recover_lost() if include_leases else 0,
        woken=owe_due() if sends else 0,
        expired=expire_questions(),
        parents=children.wake_forgotten(),
        orphans=children.cancel_orphans(),
        begun=threads.pass_due(),
        deserted=thread_entry.cancel_deserted(),
        overdue=fail_overdue(),
        sent=continuation.send_due(BATCH) if sends else 0,
    )


def recover_lost() -> int:
    """Send tasks of dead or silent workers to recovery; too many in a row: to a person (E60)."""
    asked_at = time.monotonic()
    with connection.cursor() as cursor:
        cursor.execute(sql.LOST_LEASES, {**_graces(), "limit": BATCH})
        rows = cursor.fetchall()
    if time.monotonic() - asked_at > conf.runtime().heartbeat_seconds:
        # The database stood still for everybody: what looks lost may be renewed right now.
        return 0
    return passes.each(_recover, rows)


def _recover(
    task_id: UUID, tenant_id: UUID, fence: int, status: str, recoveries: int, owner: str
) -> None:
    syncpoints.reach("reap.after_scan", task_id, fence)
    source = TaskStatus(status)
    with transaction.atomic(durable=True):
        if not _still_lost(task_id, fence):
            return
        Slice.objects.for_tenant(tenant_id).filter(task_id=task_id, fence=fence).update(
            ended_at=Now(), outcome="lost"
        )
        moved = recoveries + 1
        transitions.move(
            task_id,
            tenant_id,
            source,
            TaskStatus.RECOVERING,
            fence=fence,
            actor="system:sweeper",
            reason=f"{owner} vanished",
            due="now",
            raise_fence=True,
            columns={"recoveries": moved},
            details={"recovery": moved, "owner": owner},
        )
        Task.objects.for_tenant(tenant_id).filter(pk=task_id).update(
            recoveries_total=F("recoveries_total") + 1
        )
        if moved > conf.runtime().max_recoveries:
            holding.hold(
                task_id,
                tenant_id,
                TaskStatus.RECOVERING,
                code="too_many_recoveries",
                evidence=_why_held(task_id, tenant_id, moved, owner),
            )
        else:
            continuation.owe(task_id, tenant_id, "recovery")
    logger.warning("sweep.lease_lost", extra={"task_id": str(task_id), "owner": owner})


def _why_held(task_id: UUID, tenant_id: UUID, recoveries: int, owner: str) -> dict[str, object]:
    """Return what an operator is told: how often, and at which step as far as rows know."""
    rows = Step.objects.for_tenant(tenant_id).filter(task_id=task_id, retired_in=None)
    open_steps = rows.exclude(status__in=("succeeded", "skipped")).order_by("position")
    step = open_steps.values_list("key", flat=True).first()
    at = f"at the step {step}, before it" if step else "before a step"
    return {
        "message": f"{recoveries} workers in a row were lost {at} was done.",
        "recoveries": recoveries,
        "owner": owner,
        **({"step": step} if step else {}),
    }


def _still_lost(task_id: UUID, fence: int) -> bool:
    """Lock the row and look again: the owner may have renewed after the scan."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM tasks_app_task WHERE id = %s AND fence = %s FOR UPDATE SKIP LOCKED",
            [task_id, fence],
        )
        if cursor.fetchone() is None:
            return False
        cursor.execute(
            sql.LOST_LEASES.replace("WHERE t.status", "WHERE t.id = %(task_id)s AND t.status"),
            {**_graces(), "limit": 1, "task_id": task_id},
        )
        return cursor.fetchone() is not None


def _graces() -> dict[str, float]:
    limits = conf.runtime()
    return {
        "lease_seconds": limits.lease_seconds,
        "grace_seconds": limits.grace_seconds,
        "outage_grace_seconds": limits.outage_grace_seconds,
    }


def owe_due() -> int:
    """Owe a message for due tasks that have none, those that will be claimed next first."""
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute(queue_sql.OWE_DUE, {**queue.limits(), "limit": BATCH})
        return int(cursor.rowcount)


def expire_questions() -> int:
    """Close approvals and questions past their deadline and let their tasks go on (S62)."""
    waiting = (
        Task.objects.all_tenants("the sweeper serves the installation")
        .filter(status=TaskStatus.INPUT_REQUIRED, next_wake_at__lte=Now())
        .order_by("next_wake_at")
        .values_list("id", "tenant_id")[:BATCH]
    )
    return passes.each(_expire, list(waiting))


def _expire(task_id: UUID, tenant_id: UUID) -> None:
    with transaction.atomic(durable=True):
        task = _locked(task_id, tenant_id, Q(status=TaskStatus.INPUT_REQUIRED))
        if task is None:
            return
        expired = Approval.objects.for_tenant(tenant_id).filter(
            task_id=task_id, status="pending", expires_at__lte=Now()
        )
        ids = [str(pk) for pk in expired.values_list("id", flat=True)]
        expired.update(status="expired", decided_at=Now(), version=F("version") + 1)
        transitions.move(
            task_id,
            tenant_id,
            TaskStatus.INPUT_REQUIRED,
            TaskStatus.QUEUED,
            actor="system:sweeper",
            reason="deadline passed",
            due="now",
        )
        continuation.owe(task_id, tenant_id, "deadline")
        for approval_id in ids:
            audit.append(
                stream=f"task:{task_id}",
                tenant_id=tenant_id,
                actor="system:sweeper",
                action="approval.expired",
                target=f"approval:{approval_id}",
            )


def fail_overdue() -> int:
    """Fail tasks past their own deadline that no worker holds; workers see it themselves.

    A task that undoes what it did is over already and takes the time that this takes.
    """
    overdue = (
        Task.objects.all_tenants("the sweeper serves the installation")
        .filter(deadline_at__lte=Now(), closing_as="")
        .filter(status__in=(TaskStatus.QUEUED, TaskStatus.PAUSED, TaskStatus.INPUT_REQUIRED))
        .order_by("deadline_at")
        .values_list("id", "tenant_id")[:BATCH]
    )
    return passes.each(_fail_overdue, list(overdue))


def _fail_overdue(task_id: UUID, tenant_id: UUID) -> None:
    with transaction.atomic(durable=True):
        task = _locked(
            task_id, tenant_id, Q(deadline_at__lte=Now(), closing_as="") & ~Q(status__in=LEASED)
        )
        if task is None:
            return
        delivery.end_task(
            task,
            TaskStatus.FAILED,
            actor="system:sweeper",
            error=delivery.DEADLINE_PASSED,
            stop_reason="max_duration",
        )


def _locked(task_id: UUID, tenant_id: UUID, condition: Q) -> Task | None:
    rows = Task.objects.for_tenant(tenant_id).select_for_update(skip_locked=True, no_key=True)
    found: Task | None = rows.filter(condition, pk=task_id).first()
    return found
