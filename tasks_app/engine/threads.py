"""One run of a thread at a time: who is next, and what each leaves behind.

The slot passes in the commit that ends its holder. Whoever ends a task holds its row and locks no
thread; whoever admits one (`thread_entry`) locks the thread and the holder's run. So a new run sees
the slot free, or is seen by whoever frees it.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q
from django.db.models.functions import Now

from tasks_app.domain.errors import NotFoundError, ThreadBusyError
from tasks_app.domain.runs import CancelAction, Slot
from tasks_app.domain.states import TaskStatus
from tasks_app.domain.workspace import Files
from tasks_app.engine import continuation, passes, thread_values, transitions, workspace
from tasks_app.events.catalogue import EventType
from tasks_app.models import Run, Task, Thread, ThreadState

BATCH = 200

# Threads in which somebody waits whose time has come, and nobody is at work.
_FREE_THREADS = """
SELECT DISTINCT r.tenant_id, r.thread_id FROM tasks_app_run r
WHERE r.slot = 'waiting' AND (r.not_before IS NULL OR r.not_before <= clock_timestamp())
  AND NOT EXISTS (SELECT FROM tasks_app_run h WHERE h.thread_id = r.thread_id AND h.slot = 'holding')
LIMIT %s
"""


def lock(tenant_id: UUID, thread_id: UUID) -> Thread:
    """Lock a thread against other admissions and writers of states. Raises: NotFoundError."""
    threads = Thread.objects.for_tenant(tenant_id).select_for_update(no_key=True)
    found: Thread | None = threads.filter(pk=thread_id, deleted_at=None).first()
    if found is None:
        raise NotFoundError("Not found.")
    return found


def make(tenant_id: UUID, key: str, *, owner_id: int) -> Thread:
    """Return the thread of a name, locked; it is made unless its owner has made it meanwhile.

    Transaction: the caller's; what it refuses afterwards was never made.
    Raises: NotFoundError when the name is another person's, or was a deleted thread's.
    """
    rows = Thread.objects.for_tenant(tenant_id)
    made = Thread(tenant_id=tenant_id, key=key, owner_id=owner_id)
    rows.bulk_create([made], ignore_conflicts=True)
    found = rows.filter(key=key, owner_id=owner_id).values_list("pk", flat=True).first()
    if found is None:
        raise NotFoundError("Not found.")
    return lock(tenant_id, found)


def on_end(tenant_id: UUID, task_id: UUID, target: TaskStatus) -> None:
    """Keep the state that a run leaves, free its slot and give it to whoever is next.

    Transaction: the caller's, which ends the task. Locks: the run; the next task and its run.
    """
    runs = Run.objects.for_tenant(tenant_id)
    run = runs.select_for_update(no_key=True).get(pk=task_id)
    state = _leave_state(run, target) if run.slot == Slot.HOLDING else None
    runs.filter(pk=task_id).update(slot=Slot.RELEASED, final_state=state, disconnect_deadline=None)
    if run.slot == Slot.HOLDING:
        _pass_slot(tenant_id, run.thread_id)


def write_state(
    thread: Thread, values: Mapping[str, Any], metadata: Mapping[str, Any]
) -> ThreadState:
    """Store values that a client gives a thread as its newest state.

    Transaction: the caller's, which has locked the thread. Raises: ThreadBusyError while a run
    holds the slot.
    """
    runs = Run.objects.for_tenant(thread.tenant_id).filter(thread_id=thread.id)
    if runs.filter(slot=Slot.HOLDING).exists():
        raise ThreadBusyError
    return _store_state(
        thread.tenant_id, thread.id, values, source="update", task_id=None, metadata=metadata
    )


def head_of(tenant_id: UUID, thread_id: UUID) -> ThreadState | None:
    """Return the newest state of a thread."""
    states = ThreadState.objects.for_tenant(tenant_id).filter(thread_id=thread_id)
    found: ThreadState | None = states.order_by("-seq").first()
    return found


def pass_due() -> int:
    """Give free slots to runs whose time has come; return how many threads were looked at.

    Transaction: one for each thread. Locks: the thread.
    """
    with connection.cursor() as cursor:
        cursor.execute(_FREE_THREADS, [BATCH])
        found = cursor.fetchall()
    passes.each(_pass_free, found)
    return len(found)


def _pass_free(tenant_id: UUID, thread_id: UUID) -> None:
    with transaction.atomic(durable=True):
        threads = Thread.objects.for_tenant(tenant_id).select_for_update(no_key=True)
        threads.get(pk=thread_id)
        runs = Run.objects.for_tenant(tenant_id).filter(thread_id=thread_id)
        if not runs.filter(slot=Slot.HOLDING).exists():
            _pass_slot(tenant_id, thread_id)


def due() -> Q:
    """Return the condition of a run that may begin now."""
    return Q(not_before=None) | Q(not_before__lte=Now())


def begin(run: Run) -> None:
    """Let a run that holds the slot see the thread as it is now, and say what it was given.

    Transaction: the caller's, which holds the thread or the task.
    """
    if run.base_state_id is None:
        head = head_of(run.tenant_id, run.thread_id)
        Run.objects.for_tenant(run.tenant_id).filter(pk=run.pk).update(base_state=head)
    for message in thread_values.messages_of(run.request.get("input"), run.pk):
        transitions.append_event(run.pk, run.tenant_id, EventType.MESSAGE, message)


def _pass_slot(tenant_id: UUID, thread_id: UUID) -> None:
    """Give the slot to the first run that waits and may begin."""
    runs = Run.objects.for_tenant(tenant_id).filter(thread_id=thread_id, slot=Slot.WAITING)
    tasks = Task.objects.for_tenant(tenant_id).select_for_update(no_key=True)
    while True:
        task_id = runs.filter(due()).order_by("number").values_list("pk", flat=True).first()
        if task_id is None:
            return
        task = tasks.get(pk=task_id)
        # Whoever was cancelled meanwhile waits no more.
        if runs.filter(pk=task_id).update(slot=Slot.HOLDING):
            _make_due(task)
            begin(Run.objects.for_tenant(tenant_id).get(pk=task_id))
            return


def _make_due(task: Task) -> None:
    """Let the queue have a task whose turn has come; one that is paused stays so."""
    due_now = {"next_wake_at": Now()} if task.status == TaskStatus.QUEUED else {}
    rows = Task.objects.for_tenant(task.tenant_id).filter(pk=task.id)
    rows.update(awaits_slot=False, **due_now)
    if due_now:
        continuation.owe(task.id, task.tenant_id, "slot")


def _leave_state(run: Run, target: TaskStatus) -> ThreadState | None:
    before = run.base_state.values if run.base_state else {}
    rolled_back = target is TaskStatus.CANCELLED and run.cancel_action == CancelAction.ROLLBACK
    values = before if rolled_back else thread_values.fold(run.tenant_id, run.task_id, before)
    files = workspace.files_before(run) if rolled_back else workspace.files_after(run)
    return _store_state(
        run.tenant_id,
        run.thread_id,
        thread_values.complete(values),
        files=files,
        source="rollback" if rolled_back else "run",
        task_id=run.task_id,
        metadata={"run_id": str(run.task_id)},
    )


def _store_state(
    tenant_id: UUID,
    thread_id: UUID,
    values: Mapping[str, Any],
    *,
    source: str,
    task_id: UUID | None,
    metadata: Mapping[str, Any],
    files: Files | None = None,
) -> ThreadState:
    """Store the newest state; without `files` those of the one before it stay."""
    head = head_of(tenant_id, thread_id)
    if files is None:
        files = head.workspace if head else {}
    return ThreadState.objects.create(
        tenant_id=tenant_id,
        thread_id=thread_id,
        seq=head.seq + 1 if head else 1,
        task_id=task_id,
        source=source,
        parent=head,
        values=dict(values),
        workspace=dict(files),
        metadata=dict(metadata),
    )
