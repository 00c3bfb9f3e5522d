"""Carries out the repair of a held task, in the transaction that stores the decision (E60, E61).

A finished step keeps its result and the ledger keeps what was done outside, whatever the verb: a
repair decides how a task goes on, never that something happened once more.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Case, F, Q, Value, When

from ledger_app.domain.effects import EffectKind, EffectState
from ledger_app.queries import EffectRow, list_open_effects
from ledger_app.services import effects
from tasks_app.domain.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    FieldProblem,
    InvalidInputError,
    RepairRejectedError,
)
from tasks_app.domain.repairs import OBSTACLES, HoldState, RepairVerb, Settlement, obstacle
from tasks_app.domain.states import TaskStatus
from tasks_app.engine import continuation, delivery, rewind, transitions, values
from tasks_app.engine.lease import database_now
from tasks_app.events.catalogue import EventType
from tasks_app.models import Step, Task
from tasks_app.queries.holds import read_state
from tasks_app.workflows import registry


@dataclass(frozen=True, slots=True)
class Order:
    """What a person decided about a held task."""

    repair_id: UUID
    verb: RepairVerb
    payload: Mapping[str, Any]
    actor: str
    reason: str

    @property
    def event(self) -> dict[str, object]:
        """Return what the journal tells of it."""
        return {"repairId": str(self.repair_id), "verb": self.verb.value, "reason": self.reason}


def check(task: Task, verb: RepairVerb) -> HoldState:
    """Return what holds the task, if the verb can apply to it.

    Raises:
        RepairRejectedError: the task is not held, or something else must be repaired first.
    """
    if task.status != TaskStatus.DEAD_LETTERED:
        raise RepairRejectedError(
            "task_not_held", f"The task is {task.status}, not held.", currentStatus=task.status
        )
    state = read_state(task, now=database_now())
    code = obstacle(verb, state)
    if code:
        raise RepairRejectedError(code, OBSTACLES[code])
    return state


def carry_out(task: Task, order: Order, state: HoldState) -> None:
    """Do what the person decided; `task` has the new status and version afterwards.

    Transaction: the caller's, which holds the task row and stores the repair. Locks: the task row,
    its steps, effects; the audit stream last.

    Raises:
        RepairRejectedError, InvalidInputError: the decision does not fit the task's rows.
    """
    match order.verb:
        case RepairVerb.CONTINUE_FROM:
            _continue_from(task, order, state)
        case RepairVerb.SETTLE_EFFECT:
            _settle(task, order)
        case RepairVerb.REQUEUE:
            _queue(task, order)
        case RepairVerb.FORK:
            # The new task goes on with what was done; nothing is undone.
            _end(task, order, TaskStatus.CANCELLED, "forked")
        case RepairVerb.CLOSE:
            _close(task, order)
    task.refresh_from_db(from_queryset=Task.objects.for_tenant(task.tenant_id))


def _continue_from(task: Task, order: Order, state: HoldState) -> None:
    seq = order.payload.get("checkpoint") or state.good
    assert seq is not None  # noqa: S101 - without a good one the verb was refused
    try:
        rewind.rewind(task, seq)
    except CorruptCheckpointError as error:
        raise RepairRejectedError(error.code, error.message, **error.fields) from error
    _queue(task, order)


def _queue(task: Task, order: Order) -> None:
    """Let any worker go on: with fresh recoveries, fresh tries, and nobody left from before."""
    _give_fresh_tries(task)
    transitions.move(
        task.id,
        task.tenant_id,
        TaskStatus.DEAD_LETTERED,
        TaskStatus.QUEUED,
        actor=order.actor,
        reason=order.reason,
        due="now",
        raise_fence=True,
        columns={"recoveries": 0, "error": None, "stop_reason": ""},
        extra_events=[(EventType.REPAIRED, order.event)],
    )
    continuation.owe(task.id, task.tenant_id, "repair")


def _give_fresh_tries(task: Task) -> None:
    """Forget the tries of steps that have no result; their Attempt rows stay as history."""
    rows = Step.objects.for_tenant(task.tenant_id).filter(task_id=task.id, retired_in=None)
    tried = rows.filter(status__in=("planned", "running", "failed"))
    tried.filter(Q(attempts__gt=0) | Q(status="failed")).update(
        attempts=0,
        error=None,
        finished_at=None,
        # A map goes on behind the items that it has.
        status=Case(
            When(status="failed", kind="map", then=Value("running")),
            When(status="failed", then=Value("planned")),
            default=F("status"),
        ),
    )


def _end(task: Task, order: Order, target: TaskStatus, stop_reason: str) -> None:
    transitions.append_event(task.id, task.tenant_id, EventType.REPAIRED, order.event)
    delivery.close(
        task.tenant_id,
        task.id,
        TaskStatus.DEAD_LETTERED,
        target,
        actor=order.actor,
        error=task.error,
        stop_reason=stop_reason,
        reason=order.reason,
    )


def _close(task: Task, order: Order) -> None:
    """Give the task up as failed, once what it did is undone (E61)."""
    transitions.append_event(task.id, task.tenant_id, EventType.REPAIRED, order.event)
    delivery.end_task(
        task,
        TaskStatus.FAILED,
        actor=order.actor,
        error=task.error,
        stop_reason="closed",
        reason=order.reason,
    )


# --- effects --------------------------------------------------------------------------------
def _settle(task: Task, order: Order) -> None:
    """Tell the ledger what a person found out; go on unless something else holds the task."""
    effect = _choose(task, str(order.payload.get("effect", "")))
    outcome = Settlement(order.payload["outcome"])
    reason = f"{order.reason} · {order.payload.get('proof', '')}".rstrip(" ·")
    match outcome:
        case Settlement.DONE:
            effects.succeed(
                tenant_id=task.tenant_id,
                task_id=task.id,
                key=effect.key,
                fence=effect.fence,
                response=_checked_result(task, effect, order.payload.get("result")),
                actor=order.actor,
                reason=reason,
            )
        case Settlement.NOT_DONE:
            effects.fail(
                tenant_id=task.tenant_id,
                task_id=task.id,
                key=effect.key,
                fence=effect.fence,
                error={"code": "settled_not_done", "message": reason},
                actor=order.actor,
                reason=reason,
            )
        case Settlement.CALL_AGAIN:
            _order_again(task, effect, order, reason)
    holds = order.payload.get("hold") or obstacle(
        RepairVerb.REQUEUE, read_state(task, now=database_now())
    )
    if holds:
        transitions.append_event(task.id, task.tenant_id, EventType.REPAIRED, order.event, bump=1)
    else:
        _queue(task, order)


def _choose(task: Task, key: str) -> EffectRow:
    """Return the open act that is meant: the named one, or the only one there is."""
    rows = list_open_effects(tenant_id=task.tenant_id, task_id=task.id)
    if key:
        found = next((row for row in rows if row.key == key), None)
        if found is None:
            raise RepairRejectedError("effect_not_in_doubt", f"The act {key} is not open.")
        return found
    doubtful = [row for row in rows if row.state is EffectState.IN_DOUBT] or rows
    if len(doubtful) > 1:
        problem = FieldProblem("/payload/effect", "required", "Several acts are open: name one.")
        raise InvalidInputError(problem.detail, [problem])
    return doubtful[0]


def _order_again(task: Task, effect: EffectRow, order: Order, reason: str) -> None:
    if effect.kind is EffectKind.OPAQUE:
        raise RepairRejectedError(
            "effect_not_repeatable",
            "The other side knows no keys: a second call would be a second act.",
        )
    # A call that was only begun is made again anyway, with the same key.
    if effect.state is EffectState.IN_DOUBT:
        effects.order_again(
            tenant_id=task.tenant_id,
            task_id=task.id,
            key=effect.key,
            fence=effect.fence,
            actor=order.actor,
            reason=reason,
        )


def _checked_result(task: Task, effect: EffectRow, result: Any) -> Any:
    """Return the given result as the step would have returned it.

    Raises: InvalidInputError when later steps could not take it; UnknownWorkflowError.
    """
    definition = registry.get_definition(task.workflow)
    method = getattr(definition, effect.tool, None)
    if method is None:
        return result
    try:
        return values.from_person(method, result)
    except ConfigurationError as error:
        problem = FieldProblem("/payload/result", "schema_mismatch", error.message[:300])
        raise InvalidInputError("The result does not fit the act.", [problem]) from error
