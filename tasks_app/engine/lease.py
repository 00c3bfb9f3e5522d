"""The right to execute a task until a time: claim it, keep it, know when it is gone.

Each worker process has one keeper: a thread with a connection of its own. It holds the session
advisory lock by which the process is known to live (E46) and renews the lease of the task that the
process executes. A step that blocks for minutes keeps its lease; a step never holds the keeper.
"""

import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import (
    DatabaseError,
    InterfaceError,
    OperationalError,
    connection,
    transaction,
)

from ledger_app.services import audit
from ledger_app.services.statements import fetch_row
from tasks_app import conf, syncpoints
from tasks_app.domain.errors import LeaseLost
from tasks_app.domain.states import LEASED
from tasks_app.engine import queue, queue_sql, sql, transitions
from tasks_app.events.catalogue import EventType
from tasks_app.models import Task

logger = logging.getLogger(__name__)

# A claim is made only while the process's lock was seen held so recently: a restart of the database
# ends the session that holds it, and an idle keeper would not notice.
SEEN_SECONDS = 0.5
# How long a claim waits for somebody who holds the row of its task for a moment.
LOCK_WAIT_SECONDS = 2


@dataclass(slots=True)
class ClaimedTask:
    """What a slice knows about its task; the claim read it under the row's lock."""

    id: UUID
    tenant_id: UUID
    workflow: str
    workflow_version: int
    goal: dict[str, Any]
    status: str
    state_version: int
    plan_version: int
    plan_result: dict[str, Any] | None
    next_position: int
    fence: int
    event_seq: int
    checkpoint_seq: int
    command_seq: int
    steering_cursor: int
    recoveries: int
    checkpoint_policy: dict[str, Any]
    approval_policy: dict[str, Any]
    initiator_id: int
    policy_version: int
    progress_done: int
    progress_total: int | None
    closing_as: str
    budget: dict[str, int]
    steps_done: int
    active_seconds: float
    deadline_at: datetime | None
    thread_id: UUID | None
    parent_id: UUID | None


@dataclass(slots=True)
class Lease:
    """A claim and what the keeper knows about it.

    `deadline` is on this process's monotonic clock and lies never later than the database's expiry,
    since it counts from before the statement that set the expiry.
    """

    task: ClaimedTask
    slice_id: int
    recovered: bool
    deadline: float
    command_seq: int
    started_at: datetime
    # The keeper's session of the database at the claim; see `Keeper.look`.
    session: int = 0
    # A limit may hold other tasks back until this one gives its place away.
    is_limited: bool = False
    # Another task was due at the claim that a free worker could execute.
    others_wait: bool = False
    cancel_requested: bool = False
    lost: bool = False
    # Looked up when it is called: the model of tests gives time another clock.
    claimed_at: float = field(default_factory=lambda: time.monotonic())

    @property
    def remaining_seconds(self) -> float:
        """Return how long the lease is certainly still held."""
        return self.deadline - time.monotonic()

    @property
    def now(self) -> datetime:
        """Return about the database's time, without asking it: for people and for deadlines."""
        return self.started_at + timedelta(seconds=time.monotonic() - self.claimed_at)

    def check(self, margin_seconds: float = 0) -> None:
        """Stop the slice when the lease is gone or too short for what comes next (E42).

        Raises:
            LeaseLost: write nothing more, call nothing outside.
        """
        if self.lost or self.remaining_seconds <= margin_seconds:
            self.lost = True
            raise LeaseLost(self.task.id, self.task.fence)


class Keeper:
    """The process's thread that stays alive for its leases."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock_key = secrets.randbits(62)
        self.owner = f"{socket.gethostname()[:60]}:{self.pid}:{self.lock_key % 0xFFFF:04x}"
        self._lease: Lease | None = None
        self._wake = threading.Event()
        self._locked = threading.Event()
        self._holds = False
        self._seen_at = 0.0
        # How often the lock was taken: the number of the session that holds it.
        self.session = 0
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="lease-keeper", daemon=True)

    def start(self) -> None:
        """Begin to keep; the process's lock is held soon after."""
        self._thread.start()

    def is_alive(self) -> bool:
        """Tell whether the thread still runs; without it the process counts as dead."""
        return self._thread.is_alive()

    def wait_locked(self) -> None:
        """Wait until the process's lock is held, so that a claim is never taken for dead."""
        if time.monotonic() - self._seen_at > SEEN_SECONDS:
            self._locked.clear()
            self._wake.set()
        if not self._locked.wait(conf.runtime().lease_seconds):
            raise DatabaseError("the lease keeper cannot reach the database")

    @property
    def lease(self) -> Lease | None:
        """Return the lease that is kept now."""
        return self._lease

    def look(self) -> int:
        """Return the number of the session that holds the process's lock, seen to live just now.

        Another number than at a claim: the process was cut off from the database in between.
        Raises: DatabaseError while the database cannot be reached.
        """
        self._seen_at = 0.0
        self.wait_locked()
        return self.session

    def keep(self, lease: Lease | None) -> None:
        """Renew this lease from now on; None: nothing to renew."""
        self._lease = lease
        self._wake.set()

    def stop(self) -> None:
        """End the thread and give up the process's lock."""
        self._stop = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop:
                self._tend()
        finally:
            connection.close()

    def _tend(self) -> None:
        try:
            if self._hold_lock():
                # After an outage whoever comes back says so before anybody counts it as dead.
                self._renew_kept()
            if self._wake.wait(conf.runtime().heartbeat_seconds):
                # The claim has just written the whole term: renew it one heartbeat from now.
                self._wake.clear()
                return
            self._renew_kept()
        except (DatabaseError, InterfaceError, syncpoints.SyncPointFailureError) as error:
            # The lease runs out by itself unless a later try succeeds; the slice sees the deadline.
            logger.warning("lease.renewal_failed", extra={"error": str(error)})
            self._locked.clear()
            self._holds = False
            connection.close()
            # Forget who asked: while the database is away this must not become a busy loop.
            self._wake.clear()
            self._wake.wait(min(1.0, conf.runtime().heartbeat_seconds))

    def _hold_lock(self) -> bool:
        """Take the lock, or see that the session that took it still lives; tell which."""
        if self._locked.is_set():
            return False
        is_held = self._holds and connection.connection is not None
        with connection.cursor() as cursor:
            if is_held:
                cursor.execute("SELECT 1")
            else:
                cursor.execute("SELECT pg_advisory_lock(%s)", [self.lock_key])
        self._holds = True
        self.session += not is_held
        self._seen_at = time.monotonic()
        self._locked.set()
        return not is_held

    def _renew_kept(self) -> None:
        lease = self._lease
        if lease is not None and not lease.lost:
            self._renew(lease)

    def _renew(self, lease: Lease) -> None:
        task = lease.task
        syncpoints.reach("lease.before_renew", task.id, task.fence)
        seconds = conf.runtime().lease_seconds
        asked_at = time.monotonic()
        with connection.cursor() as cursor:
            cursor.execute(
                sql.RENEW, {"task_id": task.id, "fence": task.fence, "lease_seconds": seconds}
            )
            row = cursor.fetchone()
        self._seen_at = asked_at
        if row is None:
            lease.lost = True
            return
        lease.deadline = asked_at + seconds
        lease.command_seq, lease.cancel_requested = row


_keeper: Keeper | None = None
# A thread that stands for a whole worker process has a keeper of its own (tests/model).
own_keeper: ContextVar[Keeper | None] = ContextVar("own_keeper", default=None)


def keeper() -> Keeper:
    """Return this process's keeper; a forked child gets one of its own, an ended one is replaced."""
    global _keeper
    own = own_keeper.get()
    if own is not None:
        return own
    if _keeper is None or _keeper.pid != os.getpid() or not _keeper.is_alive():
        started = Keeper()
        started.start()
        _keeper = started
    return _keeper


def stop_keeper() -> None:
    """End this process's keeper, if there is one."""
    global _keeper
    if _keeper is not None and _keeper.pid == os.getpid():
        _keeper.stop()
    _keeper = None


def claim(preferred: UUID | None) -> Lease | None:
    """Take the fairest due task, or return None when nothing is due that may run now.

    Transaction: its own. Locks: that of the limits where there are any; the task row, skipping
    locked ones; then the audit stream. When only a passing lock, such as a person's command, hid
    the preferred task, it is waited for.
    """
    holder = keeper()
    holder.wait_locked()
    syncpoints.reach("claim.before", preferred)
    lease = _claim(holder, preferred)
    if lease is None and preferred is not None and _is_due_after_lock(preferred):
        lease = _claim(holder, preferred)
    if lease is not None:
        holder.keep(lease)
        syncpoints.reach("claim.after", lease.task.id, lease.task.fence)
    return lease


def _is_due_after_lock(task_id: UUID) -> bool:
    """Wait for whoever holds the row, at most a moment, and tell whether the task is due then."""
    try:
        with transaction.atomic(durable=True), connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_WAIT_SECONDS}s'")
            cursor.execute(queue_sql.DUE_AFTER_LOCK, [task_id])
            return cursor.fetchone() is not None
    except OperationalError:
        # Still locked: the owed message comes again.
        return False


def _claim(holder: Keeper, preferred: UUID | None) -> Lease | None:
    """Claim in one statement, or behind the lock of the limits where there are any."""
    if not queue.has_own_limits():
        lease = _claim_once(holder, preferred, is_locked=False)
        if lease is not None:
            return lease
    with transaction.atomic(durable=True):
        is_limited = queue.lock_limits()
        return _claim_once(holder, preferred, is_locked=True) if is_limited else None


def _claim_once(holder: Keeper, preferred: UUID | None, *, is_locked: bool) -> Lease | None:
    seconds = conf.runtime().lease_seconds
    asked_at = time.monotonic()
    row = fetch_row(
        queue_sql.CLAIM,
        {
            **queue.limits(),
            **_entry(holder),
            "preferred": preferred,
            "owner": holder.owner,
            "lock": holder.lock_key,
            "lease_seconds": seconds,
            "locked": is_locked,
        },
    )
    if row is None:
        return None
    task = ClaimedTask(*_parsed(row[: len(sql.TASK_COLUMNS)]))
    source, slice_id, claimed_at, others_wait, _ = row[len(sql.TASK_COLUMNS) :]
    total = task.progress_total
    transitions.tell(
        task.tenant_id,
        task.id,
        task.event_seq,
        EventType.STATUS,
        min(1.0, task.progress_done / total) if total else None,
        "",
        task.state_version,
    )
    return Lease(
        task=task,
        slice_id=slice_id,
        recovered=source == "recovering",
        deadline=asked_at + seconds,
        command_seq=task.command_seq,
        started_at=claimed_at,
        session=holder.session,
        is_limited=is_locked,
        others_wait=others_wait,
    )


def _entry(holder: Keeper) -> dict[str, Any]:
    """Return the audit entry of a claim, with places for what its statement finds out."""
    envelope, details, salt = audit.texts(
        stream=f"task:{queue_sql.SOME_TASK}",
        tenant_id=queue_sql.SOME_TENANT,
        actor=transitions.ENGINE,
        action="task.claimed",
        target=f"task:{queue_sql.SOME_TASK}",
        new_version=audit.UNKNOWN,
        details={
            "fence": audit.UNKNOWN,
            "worker": holder.owner,
            "from": queue_sql.SOME_STATUS,
        },
    )
    return {"envelope": envelope, "details": details, "salt": salt}


def release(lease: Lease) -> None:
    """Stop renewing; whoever ended the slice has already given the row away."""
    lease.lost = True
    keeper().keep(None)


@contextmanager
def owned_row(task: ClaimedTask) -> Iterator[Task]:
    """Open a transaction that holds a task's row under a slice's fence, without a session.

    Locks: the task row. Raises: LeaseLost when a newer fence owns the task.
    """
    with transaction.atomic(durable=True):
        rows = Task.objects.for_tenant(task.tenant_id).select_for_update(no_key=True)
        row = rows.filter(pk=task.id, fence=task.fence, status__in=LEASED).first()
        if row is None:
            raise LeaseLost(task.id, task.fence)
        yield row


def database_now() -> datetime:
    """Return the database's time."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchone()
    return now  # type: ignore[no-any-return]


def _parsed(row: tuple[Any, ...]) -> list[Any]:
    json_columns = {"goal", "plan_result", "checkpoint_policy", "approval_policy", "budget"}
    return [
        json.loads(value) if column in json_columns and isinstance(value, str) else value
        for column, value in zip(sql.TASK_COLUMNS, row, strict=True)
    ]
