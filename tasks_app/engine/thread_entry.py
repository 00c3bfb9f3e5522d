"""How a task enters its thread, and how runs of a thread are asked to end.

Lock order: thread, the task of the slot's holder, its run, then the tasks and runs that wait, by
their number.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models import Max
from django.db.models.functions import Now

from ledger_app.domain.canonical import digest_of
from tasks_app.domain.errors import NotAllowedError, QueueFullError, ThreadBusyError
from tasks_app.domain.runs import MAX_WAITING, CancelAction, Slot, Strategy
from tasks_app.domain.states import TERMINAL, TaskStatus
from tasks_app.domain.steering import CommandType
from tasks_app.engine import command_intake, passes, threads
from tasks_app.models import Run, Task, Thread

SUPERSEDED = "superseded"
_REASONS = {CancelAction.INTERRUPT: "user_cancelled", CancelAction.ROLLBACK: "rolled_back"}


@dataclass(frozen=True, slots=True)
class Entry:
    """How a task wants to enter a thread.

    Attributes:
        thread_id: the thread, or None: `new_key` names one that comes into being with the task.
        ends_only_of: the person whose runs the strategy may end; None: anybody's.
        request: what the client asked for, to be shown again; nothing secret in it. Messages of
            its `input` join the conversation when the run begins.
        base_state_id: a state of the thread to begin with instead of its head.
        not_before: it does not begin earlier.
        cancels_on_disconnect: it is cancelled when the client that made it goes away.
    """

    thread_id: UUID | None
    strategy: Strategy = Strategy.REJECT
    new_key: str = ""
    ends_only_of: int | None = None
    request: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    server_context: Mapping[str, Any] = field(default_factory=dict)
    base_state_id: UUID | None = None
    not_before: datetime | None = None
    cancels_on_disconnect: bool = False


def open_thread(tenant_id: UUID, entry: Entry, *, owner_id: int) -> Thread:
    """Return the locked thread of an entry, made now if it is to be. Raises: NotFoundError."""
    if entry.thread_id is None:
        return threads.make(tenant_id, entry.new_key, owner_id=owner_id)
    return threads.lock(tenant_id, entry.thread_id)


def enter(thread: Thread, task_id: UUID, entry: Entry, *, by: int, actor: str) -> Run:
    """Return the place of a new task in its thread, before its row is written.

    One that has to wait is stored with `awaits_slot`; `begin` follows once the row is there.

    Transaction: that of `open_thread`. Locks: the holder of the thread's slot, and with a strategy
    that ends others all of its live tasks.
    Raises: ThreadBusyError, QueueFullError, NotAllowedError; the caller must store nothing.
    """
    tenant_id = thread.tenant_id
    runs = Run.objects.for_tenant(tenant_id).filter(thread_id=thread.id)
    if entry.strategy in {Strategy.INTERRUPT, Strategy.ROLLBACK}:
        live = runs.exclude(slot=Slot.RELEASED)
        if entry.ends_only_of and live.exclude(task__initiator_id=entry.ends_only_of).exists():
            raise NotAllowedError("tasks:cancel")
        _supersede(thread, CancelAction(entry.strategy.value), by=by, actor=actor)
    is_taken = _is_taken(thread)
    waiting = runs.filter(slot=Slot.WAITING)
    ahead = waiting.count()
    if entry.strategy is Strategy.REJECT and (is_taken or ahead):
        raise ThreadBusyError
    if ahead >= MAX_WAITING:
        raise QueueFullError(MAX_WAITING)
    is_later = entry.not_before is not None or waiting.filter(threads.due()).exists()
    return Run(
        task_id=task_id,
        tenant_id=tenant_id,
        thread_id=thread.id,
        number=(runs.aggregate(last=Max("number"))["last"] or 0) + 1,
        slot=Slot.WAITING if is_taken or is_later else Slot.HOLDING,
        strategy=entry.strategy,
        cancels_on_disconnect=entry.cancels_on_disconnect,
        not_before=entry.not_before,
        request=dict(entry.request),
        metadata=dict(entry.metadata),
        server_context=dict(entry.server_context),
        base_state_id=entry.base_state_id,
    )


def begin(run: Run) -> None:
    """Store the run of a task that was written; one that need not wait begins.

    Transaction: that of `enter`.
    """
    run.save(force_insert=True)
    if run.slot == Slot.HOLDING:
        threads.begin(run)


def request_cancel(
    tenant_id: UUID,
    task_id: UUID,
    action: CancelAction,
    *,
    by: int,
    actor: str,
    source: str,
    cancel_reason: str = "",
    reason: str = "",
    via: str = "",
    request_id: str | None = None,
) -> TaskStatus:
    """Ask a run to end; the first action that was asked for stays. Return its status now.

    Transaction: the caller's. Locks: the task, then its run.
    """
    tasks = Task.objects.for_tenant(tenant_id)
    task = tasks.select_for_update(no_key=True).get(pk=task_id)
    if task.status in TERMINAL:
        return TaskStatus(task.status)
    runs = Run.objects.for_tenant(tenant_id).filter(pk=task_id, cancel_action="")
    why = cancel_reason or _REASONS[action]
    if not runs.update(cancel_action=action, cancel_reason=why) or task.closing_as:
        return TaskStatus(task.status)
    command = command_intake.store(
        task,
        command_id=uuid4(),
        kind=CommandType.CANCEL,
        payload={},
        payload_sha256=digest_of({"task": str(task_id), "type": "cancel", "action": action}),
        reason=reason or f"{action} of the run",
        requested_by_id=by,
        source=source,
    )
    command_intake.accept(task, command, actor=actor, via=via, request_id=request_id)
    return TaskStatus(task.status)


def cancel_deserted() -> int:
    """Cancel runs whose creator went away and has not come back in time (R54); return how many.

    Transaction: one for each run. Locks: the task, its run.
    """
    left = Run.objects.all_tenants("the sweeper serves the installation").filter(
        disconnect_deadline__lte=Now()
    )
    found = list(left.values_list("tenant_id", "pk", "task__initiator_id")[: threads.BATCH])
    passes.each(_cancel_deserted, found)
    return len(found)


def _cancel_deserted(tenant_id: UUID, task_id: UUID, initiator_id: int) -> None:
    with transaction.atomic(durable=True):
        request_cancel(
            tenant_id,
            task_id,
            CancelAction.INTERRUPT,
            by=initiator_id,
            actor="system:sweeper",
            source="system",
            cancel_reason="client_disconnected",
            reason="The client that made the run has left.",
        )
        runs = Run.objects.for_tenant(tenant_id).filter(pk=task_id)
        runs.update(disconnect_deadline=None)


def _supersede(thread: Thread, action: CancelAction, *, by: int, actor: str) -> None:
    """End every run that waits, and ask the one at work to end.

    Those that wait come first, so that none of them gets the slot.
    """
    runs = Run.objects.for_tenant(thread.tenant_id).filter(thread_id=thread.id)
    order = {"by": by, "actor": actor, "source": "system", "cancel_reason": SUPERSEDED}
    holder = _locked_holder(thread)
    waiting = runs.filter(slot=Slot.WAITING).order_by("number").values_list("pk", flat=True)
    for task_id in list(waiting):
        request_cancel(thread.tenant_id, task_id, CancelAction.INTERRUPT, **order)  # type: ignore[arg-type]
    if holder is not None:
        request_cancel(thread.tenant_id, holder, action, **order)  # type: ignore[arg-type]


def _is_taken(thread: Thread) -> bool:
    """Tell whether a run holds the slot, and keep it from passing on until this is committed.

    Whoever ended while its row was waited for has passed the slot on: only a new look tells to whom.
    """
    runs = Run.objects.for_tenant(thread.tenant_id).filter(thread_id=thread.id, slot=Slot.HOLDING)
    while not runs.select_for_update(no_key=True).exists():
        if not runs.exists():
            return False
    return True


def _locked_holder(thread: Thread) -> UUID | None:
    """Lock the task that holds the slot; whoever ends meanwhile has passed it on."""
    runs = Run.objects.for_tenant(thread.tenant_id).filter(thread_id=thread.id, slot=Slot.HOLDING)
    while True:
        holder: UUID | None = runs.values_list("pk", flat=True).first()
        if holder is None:
            return None
        tasks = Task.objects.for_tenant(thread.tenant_id).select_for_update(no_key=True)
        tasks.get(pk=holder)
        if runs.filter(pk=holder).exists():
            return holder
