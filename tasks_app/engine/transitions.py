"""Every change of a task's status: one guarded statement, journaled, audited, told afterwards.

A slice passes its fence; a person's act passes none and holds the row's lock instead. Nothing else
in the code base writes `status` (a test looks).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from psycopg.types.json import Jsonb

from ledger_app.domain.canonical import cleaned
from ledger_app.services import audit
from ledger_app.services.statements import fetch_row
from tasks_app import syncpoints
from tasks_app.domain.errors import LeaseLost
from tasks_app.domain.states import LEASED, TERMINAL, TaskStatus, bumps_version, check_edge
from tasks_app.domain.webhooks import TOLD
from tasks_app.engine import webhooks
from tasks_app.events import publisher
from tasks_app.events.catalogue import EventType

# Columns that every edge out of a leased status gives back.
_UNLEASE = "lease_owner = NULL, lease_lock = NULL, lease_expires_at = NULL"

# A sweeper that looked before the claim may have owed a message after it.
_FORGOTTEN = """, forgotten AS (
    DELETE FROM tasks_app_outbox o USING moved WHERE o.task_id = moved.id
)"""
_SLICE_ENDED = """, slice AS (
    UPDATE tasks_app_slice s SET ended_at = clock_timestamp(), outcome = %s, steps = %s
    FROM moved WHERE s.id = %s AND s.task_id = moved.id
)"""

ENGINE = "system:engine"


@dataclass(frozen=True, slots=True)
class SliceEnd:
    """How the slice ended that gives the task away with a move."""

    slice_id: int
    outcome: str
    steps: int


@dataclass(frozen=True, slots=True)
class Moved:
    """Where the task stands after a transition."""

    state_version: int
    event_seq: int
    parent_id: UUID | None = None
    thread_id: UUID | None = None


def hand_on(
    task_id: UUID,
    tenant_id: UUID,
    *,
    fence: int,
    wake_at: datetime | None,
    reason: str,
    ended: SliceEnd | None = None,
) -> Moved:
    """Give a working task back to the queue, due now or at a time.

    Transaction: the caller's. Locks: the task row, then the audit stream.
    Raises: LeaseLost when a newer fence owns the task or the status moved on.
    """
    return move(
        task_id,
        tenant_id,
        TaskStatus.WORKING,
        TaskStatus.QUEUED,
        fence=fence,
        reason=reason,
        due=wake_at or "now",
        ended=ended,
    )


def await_child(task_id: UUID, tenant_id: UUID, *, fence: int, child_id: UUID) -> Moved:
    """Give a working task back to the queue until a child of it has ended.

    Transaction: the caller's. Raises: LeaseLost.
    """
    return _await(task_id, tenant_id, fence, f"waits for the child {child_id}")


def await_children(task_id: UUID, tenant_id: UUID, *, fence: int) -> Moved:
    """Give a closing task back to the queue until all its children have ended.

    Transaction: the caller's. Raises: LeaseLost.
    """
    return _await(task_id, tenant_id, fence, "waits until its children have ended")


def _await(task_id: UUID, tenant_id: UUID, fence: int, reason: str) -> Moved:
    """Leave a task due at no time.

    No time and no message makes it due; the child's end does, or the sweeper that sees it.
    """
    return move(
        task_id,
        tenant_id,
        TaskStatus.WORKING,
        TaskStatus.QUEUED,
        fence=fence,
        reason=reason,
        due=None,
    )


def await_person(
    task_id: UUID,
    tenant_id: UUID,
    *,
    fence: int,
    event: Mapping[str, object],
    wake_at: datetime | None,
) -> Moved:
    """Stop a working task until a person answers; `wake_at` is the question's deadline.

    Transaction: the caller's, which also stores the question. Raises: LeaseLost.
    """
    return move(
        task_id,
        tenant_id,
        TaskStatus.WORKING,
        TaskStatus.INPUT_REQUIRED,
        fence=fence,
        extra_events=[(EventType.INPUT_REQUIRED, event)],
        due=wake_at,
    )


def finish(
    task_id: UUID,
    tenant_id: UUID,
    source: TaskStatus,
    target: TaskStatus,
    *,
    fence: int | None = None,
    actor: str = ENGINE,
    receipt_id: UUID | None = None,
    delivered: Mapping[str, object] | None = None,
    result: Any = None,
    error: Mapping[str, object] | None = None,
    stop_reason: str = "",
    reason: str = "",
    ended: SliceEnd | None = None,
) -> Moved:
    """End a task for good; its receipt is stored before, in the same transaction.

    Args:
        delivered: what the journal tells of the receipt, just before the end.

    Transaction: the caller's. Locks: the task row, then the audit stream.
    Raises: LeaseLost when the status moved on.
    """
    terminal: dict[str, object] = {"status": target.value}
    if receipt_id is not None:
        terminal["receiptId"] = str(receipt_id)
    return move(
        task_id,
        tenant_id,
        source,
        target,
        fence=fence,
        actor=actor,
        reason=reason,
        extra_events=[
            *([] if delivered is None else [(EventType.DELIVERY, delivered)]),
            (EventType.TERMINAL, terminal),
        ],
        columns={
            "receipt_id": receipt_id,
            "phase": "",
            "result": None if result is None else Jsonb(result),
            "error": None if error is None else _stored(error),
            "stop_reason": stop_reason,
        },
        ended=ended,
    )


def move(
    task_id: UUID,
    tenant_id: UUID,
    source: TaskStatus,
    target: TaskStatus,
    *,
    fence: int | None = None,
    actor: str = ENGINE,
    reason: str = "",
    due: datetime | str | None = None,
    columns: Mapping[str, object] | None = None,
    raise_fence: bool = False,
    extra_events: Sequence[tuple[str, Mapping[str, object]]] = (),
    details: Mapping[str, object] | None = None,
    ended: SliceEnd | None = None,
) -> Moved:
    """Move a task along one edge of the table; an owed message ends with its task.

    Args:
        fence: the slice's; None when the caller holds the row's lock for a person or the sweeper.
        due: when the task is due in its new status: a time, "now", or None for never by itself.
        columns: further columns to set.
        raise_fence: shut out whoever still holds the lease.
        extra_events: further journal events of this transition, in order.
        details: facts for the audit entry.
        ended: the slice that ends with this move.

    Transaction: the caller's. Locks: the task row; the audit stream last.
    Raises: LeaseLost when the row is not in `source` any more or a newer fence owns it.
    """
    check_edge(source, target)
    bump = int(bumps_version(source, target))
    events: list[dict[str, Any]] = [
        {"type": EventType.STATUS, "data": _status_event(source, target, reason)},
        *({"type": kind, "data": dict(data)} for kind, data in extra_events),
    ]
    sets = ["status = %s", "state_version = t.state_version + %s", "event_seq = t.event_seq + %s"]
    values: list[Any] = [target.value, bump, len(events)]
    if source in LEASED and target not in LEASED:
        sets.append(_UNLEASE)
    if raise_fence:
        sets.append("fence = t.fence + 1")
    if target in TERMINAL:
        sets.append("finished_at = clock_timestamp()")
    if TaskStatus.DEAD_LETTERED in {source, target}:
        is_held = target is TaskStatus.DEAD_LETTERED
        sets.append("held_at = " + ("clock_timestamp()" if is_held else "NULL"))
    time = "clock_timestamp()" if due == "now" else "%s::timestamptz"
    # A task that waits for its turn in its thread is not due, whatever happens to it.
    sets.append(f"next_wake_at = CASE WHEN t.awaits_slot THEN NULL ELSE {time} END")
    if due != "now":
        values.append(due)
    for column, value in (columns or {}).items():
        sets.append(f"{column} = %s")
        values.append(value)
    guard = "" if fence is None else " AND t.fence = %s"
    parameters: list[Any] = [
        *values,
        task_id,
        tenant_id,
        source.value,
        *([] if fence is None else [fence]),
        len(events),
        _stored(events),
    ]
    more = _FORGOTTEN if target in TERMINAL else ""
    more += webhooks.OWED if target in TOLD else ""
    if ended is not None:
        more += _SLICE_ENDED
        parameters += [ended.outcome, ended.steps, ended.slice_id]
    entry, entry_parameters = audit.append_sql(
        stream=f"task:{task_id}",
        tenant_id=tenant_id,
        actor=actor,
        action=f"task.{target.value}",
        target=f"task:{task_id}",
        details={"from": source.value, "reason": reason, "fence": fence, **(details or {})},
        versions=(f"state_version - {bump}", "state_version"),
    )
    row = fetch_row(
        f"""
WITH moved AS (
    UPDATE tasks_app_task t SET {", ".join(sets)}, updated_at = clock_timestamp()
    WHERE t.id = %s AND t.tenant_id = %s AND t.status = %s{guard}
    RETURNING t.id, t.tenant_id, t.state_version, t.event_seq, t.progress_done, t.progress_total,
        t.phase, t.parent_id, t.thread_id, t.status, t.webhook_id
), events AS (
    INSERT INTO tasks_app_event (tenant_id, task_id, seq, type, data, at)
    SELECT moved.tenant_id, moved.id, moved.event_seq - %s + e.number, e.value ->> 'type',
        e.value -> 'data', clock_timestamp()
    FROM moved, jsonb_array_elements(%s) WITH ORDINALITY AS e(value, number)
){more}
SELECT state_version, event_seq, progress_done, progress_total, phase, parent_id, thread_id,
    {entry}
FROM moved""",
        [*parameters, *entry_parameters],
    )
    if row is None:
        raise LeaseLost(task_id, fence or 0)
    version, seq, done, total, phase, parent_id, thread_id, _ = row
    progress = done / total if total else None
    for number, event in enumerate(events):
        tell(
            tenant_id,
            task_id,
            seq - len(events) + 1 + number,
            event["type"],
            progress,
            phase,
            version,
        )
    return Moved(version, seq, parent_id, thread_id)


def append_event(
    task_id: UUID, tenant_id: UUID, event_type: str, data: Mapping[str, object], *, bump: int = 0
) -> Moved:
    """Write one journal event of a task whose row the caller has locked.

    Args:
        bump: how much `state_version` grows: 1 when a command or approval was accepted.
    """
    parameters: list[Any] = [bump, task_id, tenant_id, event_type, _stored(data)]
    with connection.cursor() as cursor:
        cursor.execute(
            """
WITH told AS (
    UPDATE tasks_app_task t SET event_seq = t.event_seq + 1,
        state_version = t.state_version + %s, updated_at = clock_timestamp()
    WHERE t.id = %s AND t.tenant_id = %s
    RETURNING t.id, t.tenant_id, t.state_version, t.event_seq, t.progress_done, t.progress_total,
        t.phase
), events AS (
    INSERT INTO tasks_app_event (tenant_id, task_id, seq, type, data, at)
    SELECT tenant_id, id, event_seq, %s, %s, clock_timestamp() FROM told
)
SELECT state_version, event_seq, progress_done, progress_total, phase FROM told""",
            parameters,
        )
        version, seq, done, total, phase = cursor.fetchone()
    syncpoints.reach("event.after_seq", task_id)
    tell(tenant_id, task_id, seq, event_type, done / total if total else None, phase, version)
    return Moved(version, seq)


def tell(
    tenant_id: UUID,
    task_id: UUID,
    seq: int,
    event_type: str,
    progress: float | None,
    phase: str,
    version: int,
) -> None:
    """Push an event once the transaction has committed; never before, never in its way."""
    transaction.on_commit(
        lambda: publisher.publish(tenant_id, task_id, seq, event_type, progress, phase, version),
        robust=True,
    )


def _stored(value: object) -> Jsonb:
    """Return JSON in the nearest form that a row takes: some of it is text of an author's code."""
    return Jsonb(cleaned(value))


def _status_event(source: TaskStatus, target: TaskStatus, reason: str) -> dict[str, str]:
    data = {"source": source.value, "target": target.value}
    return {**data, "reason": reason} if reason else data


def dead_letter(
    task_id: UUID,
    tenant_id: UUID,
    source: TaskStatus,
    *,
    code: str,
    evidence: Mapping[str, object],
    fence: int | None = None,
) -> Moved:
    """Park a task that needs a person, with the evidence (E60).

    A pausing task gets there through `recovering`: the table has no shorter way.

    Transaction: the caller's. Raises: LeaseLost.
    """
    if source is TaskStatus.PAUSING:
        move(task_id, tenant_id, source, TaskStatus.RECOVERING, fence=fence, reason=code)
        source = TaskStatus.RECOVERING
    return move(
        task_id,
        tenant_id,
        source,
        TaskStatus.DEAD_LETTERED,
        fence=fence,
        reason=code,
        columns={
            "error": _stored({"code": code, **evidence}),
            "stop_reason": "dead_lettered",
        },
        details=evidence,
    )
