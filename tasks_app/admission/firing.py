"""Schedules whose time has come: one row lock each, and tasks through the same admission as all.

Any number of sweepers may call this; who holds a schedule's row fires it. A crash before the commit
leaves the time due, and a task is stored in the same commit as the next time.
"""

import logging
from datetime import datetime
from uuid import UUID

from django.contrib.auth.models import User
from django.db import InterfaceError, OperationalError, transaction
from django.db.models import F
from django.db.models.functions import Now

from tasks_app.admission import principal as principals
from tasks_app.admission.tasks import admit_task
from tasks_app.domain.errors import (
    NotAllowedError,
    QueueFullError,
    RuntimeFault,
    ThreadBusyError,
    UnauthenticatedError,
)
from tasks_app.domain.principal import Principal
from tasks_app.domain.schedules import STRATEGIES, Overlap, Timing, jitter
from tasks_app.engine.lease import database_now
from tasks_app.engine.thread_entry import Entry
from tasks_app.models import Schedule

logger = logging.getLogger(__name__)

BATCH = 100
REVOKED = "Who made the schedule may not start tasks any more."


def fire_due() -> int:
    """Fire every schedule whose time has come; return how many were looked at.

    Transaction: one for each schedule.
    """
    rows = Schedule.objects.all_tenants("the sweeper serves the installation")
    due = rows.filter(fires_at__lte=Now()).order_by("fires_at")
    found = list(due.values_list("tenant_id", "pk")[:BATCH])
    for tenant_id, schedule_id in found:
        try:
            _fire(tenant_id, schedule_id)
        except (OperationalError, InterfaceError):
            raise
        except Exception:
            # One schedule must not keep the sweeper from everybody else's tasks.
            logger.exception("schedule.failed", extra={"schedule_id": str(schedule_id)})
            _pass_over(tenant_id, schedule_id)
    return len(found)


def fire_one(schedule: Schedule, principal: Principal, *, key: str) -> UUID | None:
    """Start a schedule's task for whoever made it; None when the overlap rule leaves it out.

    Transaction: the caller's, which holds the schedule's row. Raises: what `admit_task` raises.
    """
    try:
        admitted = admit_task(
            principal,
            workflow=schedule.workflow,
            goal=schedule.goal,
            source="schedule",
            title=schedule.title or schedule.name,
            priority=schedule.priority,
            budget=schedule.budget,
            idempotency_key=f"schedule:{schedule.pk}:{key}",
            entry=Entry(schedule.thread_id, STRATEGIES[Overlap(schedule.overlap)]),
        )
    except (ThreadBusyError, QueueFullError):
        _change(schedule, skipped=F("skipped") + 1)
        return None
    _change(
        schedule,
        fired=F("fired") + 1,
        last_fired_at=Now(),
        last_task_id=admitted.task_id,
        last_error=None,
    )
    return admitted.task_id


def _fire(tenant_id: UUID, schedule_id: UUID) -> None:
    with transaction.atomic(durable=True):
        rows = Schedule.objects.for_tenant(tenant_id).select_for_update(
            skip_locked=True, no_key=True
        )
        schedule = rows.filter(pk=schedule_id, fires_at__lte=Now()).first()
        if schedule is None:
            return
        now = database_now()
        timing = _timing(schedule)
        times = list(timing.due_until(schedule.due_at, now, schedule.starts_at))
        wanted = times[-schedule.catch_up_limit :] if schedule.catch_up_limit else []
        if schedule.catch_up_limit == 0 and times and _is_on_time(times[-1], now, schedule):
            wanted = times[-1:]
        _advance(schedule, timing, now, missed=len(times) - len(wanted))
        try:
            principal = _owner(schedule)
            for due in wanted:
                fire_one(schedule, principal, key=due.isoformat())
        except (UnauthenticatedError, NotAllowedError):
            _change(schedule, paused_at=Now(), pause_reason=REVOKED, due_at=None, fires_at=None)
        except RuntimeFault as fault:
            # The next time comes all the same; people see why this one started nothing.
            _change(schedule, last_error={"code": fault.code, "message": fault.message})
            logger.warning(
                "schedule.not_fired", extra={"schedule_id": str(schedule_id), "code": fault.code}
            )


def _pass_over(tenant_id: UUID, schedule_id: UUID) -> None:
    """Leave out the times that are due and tell why; the next one is tried again."""
    with transaction.atomic(durable=True):
        rows = Schedule.objects.for_tenant(tenant_id).select_for_update(no_key=True)
        schedule = rows.get(pk=schedule_id)
        if schedule.due_at is None:
            return
        _advance(schedule, _timing(schedule), database_now(), missed=1)
        _change(schedule, last_error={"code": "internal_error", "message": "See the log."})


def _timing(schedule: Schedule) -> Timing:
    return Timing(schedule.cron, schedule.interval_seconds, schedule.time_zone)


def _is_on_time(due: datetime, now: datetime, schedule: Schedule) -> bool:
    """Tell whether a firing comes when it should, and not after everybody was away."""
    return (now - due).total_seconds() <= schedule.jitter_seconds + 60


def _advance(schedule: Schedule, timing: Timing, now: datetime, *, missed: int) -> None:
    due = timing.next_after(now, schedule.starts_at)
    fires = None if due is None else due + jitter(str(schedule.pk), due, schedule.jitter_seconds)
    _change(schedule, due_at=due, fires_at=fires, skipped=F("skipped") + missed)


def _owner(schedule: Schedule) -> Principal:
    owner = User.objects.get(pk=schedule.owner_id)
    return principals.from_user(owner, schedule.tenant_id, via="schedule")


def _change(schedule: Schedule, **columns: object) -> None:
    rows = Schedule.objects.for_tenant(schedule.tenant_id).filter(pk=schedule.pk)
    rows.update(updated_at=Now(), **columns)
