"""Repairing held tasks from any door: authorise, compare versions, carry out, keep the decision.

One repair is one transaction: the task goes on exactly as it is written that somebody decided.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

from django.contrib.auth.models import User
from django.db import transaction

from ledger_app.services import audit
from tasks_app import syncpoints
from tasks_app.admission import idempotency, webhooks
from tasks_app.admission import principal as principals
from tasks_app.admission.tasks import admit_task
from tasks_app.admission.versions import require_version
from tasks_app.domain.errors import (
    FieldProblem,
    IdempotencyMismatchError,
    InvalidInputError,
    NotAllowedError,
    NotFoundError,
    RepairRejectedError,
    RuntimeFault,
    UnauthenticatedError,
)
from tasks_app.domain.principal import Principal
from tasks_app.domain.repairs import BULK_MAX, RepairVerb, check_payload
from tasks_app.domain.runs import Strategy
from tasks_app.domain.steering import REASON_MAX, merge_patch
from tasks_app.engine import repairs
from tasks_app.engine.thread_entry import Entry
from tasks_app.models import Repair, Run, Task
from tasks_app.policy.capabilities import require
from tasks_app.policy.reserved import refuse_reserved
from tasks_app.queries.holds import cause_of, needs_of


@dataclass(frozen=True, slots=True)
class Repaired:
    """What became of a repair; `status` and `state_version` are the task's after it."""

    repair_id: UUID
    task_id: UUID
    verb: str
    status: str
    state_version: int
    forked_task_id: UUID | None
    replayed: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """One task of many whose repair was refused; nothing of it was stored."""

    task_id: UUID
    fault: RuntimeFault


def repair_task(
    principal: Principal,
    *,
    task_id: UUID,
    repair_id: UUID,
    verb: str,
    payload: Mapping[str, Any],
    expected_version: int | None,
    reason: str,
    source: str,
    request_id: str | None = None,
) -> Repaired:
    """Repair a held task. The same `repair_id` again returns the first outcome.

    Args:
        payload: continue_from: `checkpoint`, default the newest good one. settle_effect:
            `outcome` (done, not_done, call_again), `effect` (its key, needed when several are
            open), `proof` and `result` of an act that is done, `hold` to settle without going on.
            fork: `goal`, a merge patch. requeue and close take nothing.

    Transaction: its own. Locks: the task row, then what the repair changes, audit stream last.

    Raises:
        NotFoundError, NotAllowedError, TenantSuspendedError, InvalidInputError, ReservedKeyError,
        VersionRequiredError, VersionConflictError, TaskTerminalError, RepairRejectedError,
        IdempotencyMismatchError, UnknownWorkflowError: nothing was stored.
    """
    kind = _parse(verb, payload, reason)
    task = Task.objects.visible_to(principal).filter(pk=task_id).first()
    if task is None:
        require(principal, "tasks:read")
        raise NotFoundError("Not found.")
    for need in needs_of(kind):
        require(principal, need, task)
    if principal.user_id is None:
        raise NotAllowedError("deadletters:manage", "A repair needs a person who decides it.")
    fingerprint = idempotency.fingerprint_of(
        {"task": str(task_id), "verb": kind.value, "payload": dict(payload), "reason": reason}
    )
    order = repairs.Order(repair_id, kind, payload, principal.actor, reason.strip())
    with transaction.atomic(durable=True):
        task = (
            Task.objects.for_tenant(principal.tenant_id)
            .select_for_update(no_key=True)
            .get(pk=task_id)
        )
        replay = _find_replay(principal, repair_id, fingerprint, task)
        if replay is not None:
            return replay
        require_version(task, expected_version)
        state = repairs.check(task, kind)
        old_version, cause = task.state_version, cause_of(task)
        forked = _fork(principal, task, order, source, request_id)
        repairs.carry_out(task, order, state)
        Repair.objects.create(
            tenant_id=task.tenant_id,
            task_id=task.id,
            repair_id=repair_id,
            verb=kind.value,
            payload=dict(payload),
            payload_sha256=fingerprint,
            cause=cause[:64],
            reason=order.reason,
            requested_by_id=principal.user_id,
            source=source,
            old_version=old_version,
            new_version=task.state_version,
            status=task.status,
            forked_task_id=forked,
        )
        audit.append(
            stream=f"task:{task.id}",
            tenant_id=task.tenant_id,
            actor=principal.actor,
            action="task.repaired",
            target=f"repair:{repair_id}",
            outcome=task.status,
            via=principal.via,
            old_version=old_version,
            new_version=task.state_version,
            request_id=request_id,
            details={
                "verb": kind.value,
                "cause": cause,
                "reason": order.reason,
                "payload_sha256": fingerprint,
                "proof": payload.get("proof"),
                "forked_task": None if forked is None else str(forked),
            },
        )
        syncpoints.reach("repair.before_commit", task_id)
    return Repaired(
        repair_id, task_id, kind.value, task.status, task.state_version, forked, replayed=False
    )


def repair_tasks(
    principal: Principal,
    *,
    tasks: Sequence[tuple[UUID, int | None]],
    bulk_id: UUID,
    verb: str,
    payload: Mapping[str, Any],
    reason: str,
    source: str,
    request_id: str | None = None,
) -> list[Repaired | Refused]:
    """Repair several held tasks in one way, each in a transaction of its own, in their order.

    Args:
        tasks: id and the version that was seen of each, at most BULK_MAX.
        bulk_id: made by the client; the same again repeats nothing.

    Raises:
        NotAllowedError, TenantSuspendedError, InvalidInputError, ReservedKeyError: no task was
            touched.
    """
    check_repairs(principal, tasks=tasks, verb=verb, payload=payload, reason=reason)
    outcomes: list[Repaired | Refused] = []
    for task_id, expected_version in tasks:
        try:
            outcome: Repaired | Refused = repair_task(
                principal,
                task_id=task_id,
                repair_id=uuid5(bulk_id, str(task_id)),
                verb=verb,
                payload=payload,
                expected_version=expected_version,
                reason=reason,
                source=source,
                request_id=request_id,
            )
        except RuntimeFault as fault:
            outcome = Refused(task_id, fault)
        outcomes.append(outcome)
    return outcomes


def check_repairs(
    principal: Principal,
    *,
    tasks: Sequence[tuple[UUID, int | None]],
    verb: str,
    payload: Mapping[str, Any],
    reason: str,
) -> None:
    """Refuse what cannot be done with any of the tasks. Raises: as `repair_tasks`."""
    for need in needs_of(_parse(verb, payload, reason)):
        require(principal, need)
    if not 1 <= len(tasks) <= BULK_MAX:
        problem = FieldProblem("/tasks", "invalid_value", f"From 1 to {BULK_MAX} tasks.")
        raise InvalidInputError(problem.detail, [problem])


def _parse(verb: str, payload: Mapping[str, Any], reason: str) -> RepairVerb:
    problems = []
    if verb not in frozenset(RepairVerb):
        known = ", ".join(RepairVerb)
        problems.append(FieldProblem("/verb", "unknown_verb", f"One of {known}."))
    if not 1 <= len(reason.strip()) <= REASON_MAX:
        detail = f"Say why, in 1 to {REASON_MAX} characters."
        problems.append(FieldProblem("/reason", "reason_required", detail))
    if problems:
        raise InvalidInputError("The repair is not valid.", problems)
    refuse_reserved(dict(payload))
    check_payload(RepairVerb(verb), payload)
    return RepairVerb(verb)


def _find_replay(
    principal: Principal, repair_id: UUID, fingerprint: str, task: Task
) -> Repaired | None:
    found = Repair.objects.for_tenant(principal.tenant_id).filter(repair_id=repair_id).first()
    if found is None:
        return None
    if found.payload_sha256 != fingerprint or found.requested_by_id != principal.user_id:
        raise IdempotencyMismatchError("This repair id was used before for another repair.")
    return Repaired(
        repair_id,
        task.id,
        found.verb,
        found.status,
        found.new_version,
        found.forked_task_id,
        replayed=True,
    )


def _fork(
    principal: Principal, task: Task, order: repairs.Order, source: str, request_id: str | None
) -> UUID | None:
    """Admit the task that replaces the held one, for whoever asked for that; None for other verbs.

    Raises:
        RepairRejectedError: who asked for the task may not start any, or is no member any more.
        InvalidInputError, UnknownWorkflowError: the goal does not fit.
    """
    if order.verb is not RepairVerb.FORK:
        return None
    initiator = User.objects.get(pk=task.initiator_id)
    try:
        admitted = admit_task(
            principals.from_user(initiator, task.tenant_id, via=principal.via),
            workflow=task.workflow,
            goal=merge_patch(task.goal, order.payload.get("goal", {})),
            source=source,
            title=task.title,
            priority=task.priority,
            checkpoint_policy=task.checkpoint_policy,
            approval_policy=task.approval_policy,
            budget=task.budget,
            entry=_place_of_fork(task),
            webhook=task.webhook_url if webhooks.is_allowed(task.webhook_url) else "",
            request_id=request_id,
            forked_from=task.id,
            ordered_by=principal,
        )
    except (UnauthenticatedError, NotAllowedError) as error:
        raise RepairRejectedError(
            "initiator_revoked", "Who asked for this task may not start tasks any more."
        ) from error
    return admitted.task_id


def _place_of_fork(task: Task) -> Entry | None:
    """Return the place behind the held task in its thread."""
    if task.thread_id is None:
        return None
    run = Run.objects.for_tenant(task.tenant_id).get(pk=task.id)
    return Entry(task.thread_id, Strategy.ENQUEUE, run.request, run.metadata, run.server_context)
