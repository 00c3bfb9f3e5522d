"""Schedules from any door: made, paused, resumed, fired by hand, deleted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from django.db import IntegrityError
from django.db.models import F
from django.db.models.functions import Now

from tasks_app.admission import task_settings, tenant_audit
from tasks_app.admission.firing import fire_one
from tasks_app.admission.keys import clean_reason
from tasks_app.admission.replays import own_transaction
from tasks_app.admission.tasks import check_goal
from tasks_app.domain.errors import (
    FieldProblem,
    InvalidInputError,
    NameTakenError,
    NotAllowedError,
    NotFoundError,
)
from tasks_app.domain.principal import Principal
from tasks_app.domain.schedules import MAX_CATCH_UP, MAX_JITTER_SECONDS, Overlap, Timing, jitter
from tasks_app.engine.lease import database_now
from tasks_app.models import Schedule, Thread
from tasks_app.policy.capabilities import require
from tasks_app.workflows import registry

NAME_MAX = 100


@dataclass(frozen=True, slots=True)
class Plan:
    """What a schedule starts and when.

    Attributes:
        catch_up_limit: how many of the times that were missed are made up for, the newest of them.
        jitter_seconds: a firing comes up to so much later, so that many do not come at once.
    """

    name: str
    workflow: str
    goal: Mapping[str, Any]
    timing: Timing
    title: str = ""
    priority: int = 5
    budget: Mapping[str, Any] = field(default_factory=dict)
    overlap: Overlap = Overlap.SKIP
    catch_up_limit: int = 1
    jitter_seconds: int = 0


def create_schedule(principal: Principal, plan: Plan, *, request_id: str | None = None) -> Schedule:
    """Store a schedule; its tasks will be the caller's.

    Transaction: its own. Locks: the tenant's audit stream last.
    Raises: NotAllowedError, InvalidInputError, UnknownWorkflowError, ReservedKeyError,
    NameTakenError: nothing was stored.
    """
    require(principal, "tasks:create")
    if principal.user_id is None:
        raise NotAllowedError("tasks:create", "A schedule needs a person who asks for it.")
    if plan.overlap is Overlap.CANCEL_PREVIOUS:
        require(principal, "tasks:cancel")
    _check(plan)
    schedule_id = uuid4()
    try:
        with own_transaction():
            now = database_now()
            thread = Thread.objects.create(
                tenant_id=principal.tenant_id,
                key=f"schedule-{schedule_id}",
                owner_id=principal.user_id,
            )
            schedule: Schedule = Schedule.objects.create(
                id=schedule_id,
                tenant_id=principal.tenant_id,
                owner_id=principal.user_id,
                thread=thread,
                name=plan.name,
                workflow=plan.workflow,
                goal=dict(plan.goal),
                title=plan.title,
                priority=plan.priority,
                budget=dict(plan.budget),
                cron=plan.timing.cron,
                interval_seconds=plan.timing.interval_seconds,
                time_zone=plan.timing.time_zone,
                overlap=plan.overlap,
                catch_up_limit=plan.catch_up_limit,
                jitter_seconds=plan.jitter_seconds,
                starts_at=now,
                **next_times(schedule_id, plan.timing, plan.jitter_seconds, now, now),
            )
            _record(principal, schedule, "created", request_id, {"workflow": plan.workflow})
    except IntegrityError as error:
        raise NameTakenError(plan.name) from error
    return schedule


def pause_schedule(
    principal: Principal, *, schedule_id: UUID, reason: str, request_id: str | None = None
) -> Schedule:
    """Let a schedule rest; the times that pass meanwhile are not made up for.

    Transaction: its own. Locks: the schedule. Raises: NotFoundError, NotAllowedError,
    InvalidInputError.
    """
    text = clean_reason(reason)
    _visible(principal, schedule_id, "tasks:steer")
    with own_transaction():
        schedule = _locked(principal, schedule_id)
        if schedule.paused_at is None:
            rest = {"paused_at": Now(), "pause_reason": text, "due_at": None, "fires_at": None}
            _change(schedule, rest)
            _record(principal, schedule, "paused", request_id, {"reason": text})
    return _visible(principal, schedule_id, "tasks:steer")


def resume_schedule(
    principal: Principal, *, schedule_id: UUID, reason: str, request_id: str | None = None
) -> Schedule:
    """Let a paused schedule go on from now.

    Transaction: its own. Locks: the schedule. Raises: NotFoundError, NotAllowedError,
    InvalidInputError.
    """
    text = clean_reason(reason)
    _visible(principal, schedule_id, "tasks:steer")
    with own_transaction():
        schedule = _locked(principal, schedule_id)
        if schedule.paused_at is not None:
            now = database_now()
            times = next_times(
                schedule.id, timing_of(schedule), schedule.jitter_seconds, now, schedule.starts_at
            )
            _change(schedule, {"paused_at": None, "pause_reason": "", **times})
            _record(principal, schedule, "resumed", request_id, {"reason": text})
    return _visible(principal, schedule_id, "tasks:steer")


def delete_schedule(
    principal: Principal, *, schedule_id: UUID, reason: str, request_id: str | None = None
) -> None:
    """End a schedule for good; its tasks and its row stay.

    Transaction: its own. Locks: the schedule. Raises: NotFoundError, NotAllowedError,
    InvalidInputError.
    """
    text = clean_reason(reason)
    _visible(principal, schedule_id, "tasks:cancel")
    with own_transaction():
        schedule = _locked(principal, schedule_id)
        _change(schedule, {"deleted_at": Now(), "due_at": None, "fires_at": None})
        _record(principal, schedule, "deleted", request_id, {"reason": text})


def fire_now(
    principal: Principal, *, schedule_id: UUID, request_id: str | None = None
) -> UUID | None:
    """Start what a schedule would start, once and now; its times stay as they are.

    Returns the task, or None when its overlap rule leaves it out.

    Transaction: its own. Locks: the schedule, then as admission. Raises: NotFoundError,
    NotAllowedError and what `admit_task` raises.
    """
    schedule = _visible(principal, schedule_id, "tasks:create")
    if schedule.owner_id != principal.user_id:
        raise NotAllowedError("tasks:create", "Only who made a schedule fires it.")
    with own_transaction():
        schedule = _locked(principal, schedule_id)
        task_id = fire_one(schedule, principal, key=f"{request_id or uuid4()}")
        # Last: its stream is locked until the commit.
        _record(principal, schedule, "fired", request_id, {"task": task_id and str(task_id)})
    return task_id


def next_times(
    schedule_id: UUID, timing: Timing, jitter_seconds: int, after: datetime, since: datetime
) -> dict[str, datetime | None]:
    """Return when a schedule is due next and when it fires for that."""
    due = timing.next_after(after, since)
    fires = None if due is None else due + jitter(str(schedule_id), due, jitter_seconds)
    return {"due_at": due, "fires_at": fires}


def timing_of(schedule: Schedule) -> Timing:
    """Return the times of a stored schedule."""
    return Timing(schedule.cron, schedule.interval_seconds, schedule.time_zone)


def _check(plan: Plan) -> None:
    plan.timing.check()
    check_goal(plan.workflow, plan.goal)
    definition = registry.get_definition(plan.workflow)
    task_settings.checked(definition, plan.title or None, plan.priority, None, None, plan.budget)
    problems = []
    if not 1 <= len(plan.name.strip()) <= NAME_MAX or not plan.name.isprintable():
        detail = f"1 to {NAME_MAX} characters on one line."
        problems.append(FieldProblem("/name", "invalid_value", detail))
    if not 0 <= plan.catch_up_limit <= MAX_CATCH_UP:
        detail = f"From 0 to {MAX_CATCH_UP}."
        problems.append(FieldProblem("/catchUpLimit", "invalid_value", detail))
    if not 0 <= plan.jitter_seconds <= MAX_JITTER_SECONDS:
        detail = f"From 0 to {MAX_JITTER_SECONDS} seconds."
        problems.append(FieldProblem("/jitterSeconds", "invalid_value", detail))
    if problems:
        raise InvalidInputError("The schedule does not fit.", problems)


def _visible(principal: Principal, schedule_id: UUID, capability: str) -> Schedule:
    rows = Schedule.objects.visible_to(principal)
    found: Schedule | None = rows.filter(pk=schedule_id, deleted_at=None).first()
    if found is None:
        require(principal, "tasks:read")
        raise NotFoundError("Not found.")
    require(principal, capability, found)
    return found


def _locked(principal: Principal, schedule_id: UUID) -> Schedule:
    rows = Schedule.objects.for_tenant(principal.tenant_id).select_for_update(no_key=True)
    found: Schedule | None = rows.filter(pk=schedule_id, deleted_at=None).first()
    if found is None:
        raise NotFoundError("Not found.")
    return found


def _change(schedule: Schedule, columns: Mapping[str, Any]) -> None:
    rows = Schedule.objects.for_tenant(schedule.tenant_id).filter(pk=schedule.pk)
    rows.update(version=F("version") + 1, updated_at=Now(), **columns)


def _record(
    principal: Principal,
    schedule: Schedule,
    act: str,
    request_id: str | None,
    details: Mapping[str, object],
) -> None:
    target = f"schedule:{schedule.pk}"
    tenant_audit.record(principal, f"schedule.{act}", target, request_id, details)
