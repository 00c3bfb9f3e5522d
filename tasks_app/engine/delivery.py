"""The end of a task: artifacts checked against their digests, receipt, terminal status, one commit."""

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn
from uuid import UUID

from ledger_app.queries import iterate_effect_summaries
from ledger_app.services import effects, receipts
from tasks_app import syncpoints
from tasks_app.domain.errors import CorruptCheckpointError, EngineSignal
from tasks_app.domain.states import TaskStatus
from tasks_app.engine import (
    budget_grants,
    children,
    closing,
    handover,
    open_calls,
    threads,
    transitions,
)
from tasks_app.engine.handover import Handover
from tasks_app.engine.lease import ClaimedTask
from tasks_app.engine.session import SafePointNeeded, SliceDone, SliceSession
from tasks_app.events.catalogue import DeliveryData
from tasks_app.models import Approval, SteeringCommand, Step, Task
from tasks_app.tools import artifact_store
from tasks_app.workflows import MapResults

# How long to wait before the next try to make a receipt; after the last one the task fails (R67).
RECEIPT_PAUSES_SECONDS = (0.1, 0.5)
DEADLINE_PASSED = {"code": "deadline_passed", "message": "The task's deadline passed."}


class ArtifactDamagedError(CorruptCheckpointError):
    """A presented artifact is missing or was changed; success must not be claimed."""

    code = "artifact_damaged"


def planned_result(session: SliceSession) -> Any:
    """Return the result of a finished plan as JSON data."""
    task = session.task
    result = session.arguments.value(task.plan_result) if task.plan_result else None
    if isinstance(result, MapResults):
        return {"count": result.count, "failed": result.failed}
    return result


def complete_task(session: SliceSession, result: Any) -> None:
    """Complete a task that has nothing left to do and has handed over what it made.

    Transaction: its own; results held back, receipt and status in one commit.
    Raises: LeaseLost; ArtifactDamagedError when an output is not what was stored; what ends a slice
        whose task fails because its delivery is incomplete, or its receipt cannot be made.
    """
    task = session.task
    try:
        handed = _hand_over(session)
    except (OSError, syncpoints.SyncPointFailureError) as error:
        message = f"The receipt could not be made: {type(error).__name__}"
        raise _refuse(session, "delivery_receipt_failed", message) from error
    if handed.verdict.problem:
        raise _refuse(session, "delivery_incomplete", handed.verdict.problem)
    with session.owned(undisturbed=True):
        session.commit(checkpoint="end")
        receipt_id, delivered = _put_receipt(
            task.tenant_id,
            task.id,
            "completed",
            handed,
            has_effects=bool(session.references.effects),
        )
        syncpoints.reach("finish.before_terminal", task.id, task.fence)
        if task.budget:
            budget_grants.close_task(task.id, task.tenant_id)
        moved = transitions.finish(
            task.id,
            task.tenant_id,
            TaskStatus.WORKING,
            TaskStatus.COMPLETED,
            fence=task.fence,
            receipt_id=receipt_id,
            delivered=delivered,
            result=result,
            ended=session.ending("completed"),
        )
        _tell_others(moved, task.tenant_id, task.id, TaskStatus.COMPLETED)
    syncpoints.reach("finish.after_terminal", task.id, task.fence)


def _hand_over(session: SliceSession) -> Handover:
    """Return what the task hands over, checked against the store; tries three times.

    Raises: ArtifactDamagedError; OSError when the store cannot be read.
    """
    for pause_seconds in RECEIPT_PAUSES_SECONDS:
        with suppress(OSError, syncpoints.SyncPointFailureError):
            return _checked(session)
        time.sleep(pause_seconds)
    return _checked(session)


def _checked(session: SliceSession) -> Handover:
    task = session.task
    handed = handover.gather(
        task.tenant_id,
        task.id,
        in_thread=task.thread_id is not None,
        has_artifacts=bool(session.references.artifacts),
    )
    for item in handed.items:
        if not artifact_store.is_intact(task.tenant_id, item["sha256"]):
            raise ArtifactDamagedError(
                f"The artifact {item['name']} is not what was stored.", sha256=item["sha256"]
            )
    syncpoints.reach("finish.before_receipt", task.id, task.fence)
    return handed


def _refuse(session: SliceSession, code: str, message: str) -> EngineSignal:
    """Fail a task that did all its steps; return what the caller raises.

    Transaction: its own. Raises: LeaseLost, SafePointNeeded.
    """
    with session.owned(undisturbed=True):
        session.commit(checkpoint="end")
        return fail_task(session, {"code": code, "message": message}, stop_reason=code)


def fail_task(
    session: SliceSession, error: Mapping[str, object], *, stop_reason: str
) -> EngineSignal:
    """Fail a task that a slice works on, once what it did is undone.

    Returns what the caller raises after its transaction: the slice is done, or it goes on with the
    compensations.

    Transaction: the caller's, which owns the task; last in it. Raises: LeaseLost.
    """
    rows = Task.objects.for_tenant(session.task.tenant_id)
    task = rows.get(pk=session.task.id)
    if end_task(
        task, TaskStatus.FAILED, fence=session.task.fence, error=error, stop_reason=stop_reason
    ):
        session.end("failed")
        return SliceDone("failed")
    task.refresh_from_db(from_queryset=rows)
    session.take_over(task)
    return SafePointNeeded()


def end_task(
    task: Task,
    target: TaskStatus,
    *,
    fence: int | None = None,
    actor: str = transitions.ENGINE,
    error: Mapping[str, object] | None = None,
    stop_reason: str = "",
    reason: str = "",
) -> bool:
    """End a task without success, or begin to undo what it did; tell whether it has ended.

    `task` is brought up to date.

    Transaction: the caller's, which holds the task row or its fence.
    """
    words = {"actor": actor, "error": error, "stop_reason": stop_reason, "reason": reason}
    if closing.begin(task, target, **words):  # type: ignore[arg-type]
        return False
    source = TaskStatus(task.status)
    moved = close(task.tenant_id, task.id, source, target, fence=fence, **words)  # type: ignore[arg-type]
    task.status, task.state_version = target, moved.state_version
    return True


def finish_closing(session: SliceSession) -> NoReturn:
    """End a task whose acts are undone, as it was to end, once its children have ended.

    Transaction: its own. Locks: the task's row; its children are read after that and without a
    lock, so one that ends later finds the task waiting. Raises: SliceDone; SafePointNeeded,
    LeaseLost.
    """
    task = session.task
    target = TaskStatus(task.closing_as)
    syncpoints.reach("finish.before_receipt", task.id, task.fence)
    with session.owned(undisturbed=True):
        session.commit(checkpoint="end")
        waits = children.has_live(task.tenant_id, task.id)
        session.end("child" if waits else target.value)
        if waits:
            transitions.await_children(task.id, task.tenant_id, fence=task.fence)
        else:
            _close_as_meant(task, target)
            syncpoints.reach("finish.before_terminal", task.id, task.fence)
    if waits:
        raise SliceDone("child")
    syncpoints.reach("finish.after_terminal", task.id, task.fence)
    raise SliceDone(target.value)


def _close_as_meant(task: ClaimedTask, target: TaskStatus) -> None:
    words = Task.objects.for_tenant(task.tenant_id).values_list("closing", flat=True)
    close(
        task.tenant_id,
        task.id,
        TaskStatus.WORKING,
        target,
        fence=task.fence,
        **words.get(pk=task.id),
    )


def close(
    tenant_id: UUID,
    task_id: UUID,
    source: TaskStatus,
    target: TaskStatus,
    *,
    fence: int | None = None,
    actor: str = transitions.ENGINE,
    error: Mapping[str, object] | None = None,
    stop_reason: str = "",
    reason: str = "",
) -> transitions.Moved:
    """End a task without success: open questions, commands and calls end with it, a receipt is kept.

    Transaction: the caller's, which holds the task row or its fence.
    """
    Approval.objects.for_tenant(tenant_id).filter(
        task_id=task_id, status__in=("pending", "approved")
    ).update(status="cancelled")
    SteeringCommand.objects.for_tenant(tenant_id).filter(task_id=task_id, status="pending").update(
        status="superseded", rejection="task_terminal"
    )
    Step.objects.for_tenant(tenant_id).filter(
        task_id=task_id, status__in=("planned", "running", "waiting"), retired_in=None
    ).update(status="skipped")
    handed = handover.gather(tenant_id, task_id, in_thread=True, has_artifacts=True)
    if handed.is_of_run:
        open_calls.answer(tenant_id, task_id, target.value)
    receipt_id, delivered = _put_receipt(tenant_id, task_id, target.value, handed)
    budget_grants.close_task(task_id, tenant_id)
    moved = transitions.finish(
        task_id,
        tenant_id,
        source,
        target,
        fence=fence,
        actor=actor,
        receipt_id=receipt_id,
        delivered=delivered,
        error=error,
        stop_reason=stop_reason,
        reason=reason,
    )
    _tell_others(moved, tenant_id, task_id, target)
    return moved


def _tell_others(
    moved: transitions.Moved, tenant_id: UUID, task_id: UUID, target: TaskStatus
) -> None:
    """Let parent and children, and whoever waits in the thread, know of a task's end."""
    children.on_end(tenant_id, task_id, target, moved.parent_id)
    if moved.thread_id is not None:
        threads.on_end(tenant_id, task_id, target)


def _put_receipt(
    tenant_id: UUID,
    task_id: UUID,
    outcome: str,
    handed: Handover,
    *,
    has_effects: bool = True,
) -> tuple[UUID, DeliveryData | None]:
    """Store what the task delivered and did; the first receipt stands.

    Returns its id, and what a run's journal tells of it. A call that was begun and never settled is
    put in doubt first: the task ends without it.

    Args:
        has_effects: False when it is known that there is none to be read.
    """
    acts: list[receipts.EffectFact] = []
    if has_effects:
        effects.doubt_open(
            tenant_id=tenant_id, task_id=task_id, reason=f"the task ended: {outcome}"
        )
        acts = [
            {"key": row.key, "tool": row.tool, "target": row.target, "state": row.state.value}
            for row in iterate_effect_summaries(tenant_id=tenant_id, task_id=task_id)
        ]
    stored = receipts.put(
        tenant_id=tenant_id, task_id=task_id, outcome=outcome, items=handed.items, effects=acts
    )
    return stored.id, handover.told(handed, outcome, acts) if handed.is_of_run else None
