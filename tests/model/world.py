"""Everything around the engine that a seed decides about: the other side, messages, time, ids.

The other side counts. Time is virtual: in this process a number, in the database the rows.
"""

import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import connection

from tasks_app.engine.lease import Lease, own_keeper
from tasks_app.events.catalogue import EventType
from tests.model.actors import current, unseen
from tests.support.oracles import OracleViolation
from tests.support.outside import Count
from tests.support.outside_oracles import Frame

LEASE_SECONDS = 3600.0
GRACE_SECONDS = 60.0
# How much real time a seed takes at most: virtual and real clocks differ by so much.
REAL_SECONDS = 100.0


class LostAnswerError(Exception):
    """The other side was called, and what it did is not known here."""


@dataclass
class OtherSide:
    """Acts on requests and counts them; a keyed request is acted on once for each key."""

    chance: random.Random
    requests: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    acts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    used: dict[UUID, dict[str, tuple[int, int, int]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    runs: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def call(self, key: str, kind: str) -> str:
        """Act, and answer; sometimes the answer is lost, sometimes the request never comes."""
        fate = self.chance.random()
        self.requests[key] += 1
        _check_caller(key)
        _stop("outside.request", kind)
        if fate < 0.05:
            raise LostAnswerError("the request never arrived")
        if kind != "keyed" or self.acts[key] == 0:
            self.acts[key] += 1
        _stop("outside.answer", kind)
        if fate < 0.12:
            raise LostAnswerError("the answer never arrived")
        return f"done {key}"

    def has_acted(self, key: str) -> bool:
        """Tell whoever asks whether it has acted on a key."""
        return self.acts[key] > 0

    def use_model(self, task_id: UUID, source_id: str) -> tuple[int, int, int]:
        """Answer as a model would, and count what that used."""
        amounts = (10 + len(self.used[task_id]), 5, 100)
        used: tuple[int, int, int] = self.used[task_id].setdefault(source_id, amounts)
        _stop("model.answer")
        return used

    def counts(self, task_id: UUID) -> dict[str, Count]:
        """Return what it saw of a task's keys."""
        keys = [key for key in self.requests if key.startswith(str(task_id))]
        return {key: Count(self.requests[key], self.acts[key]) for key in keys}


class VirtualTime:
    """Stands for the module `time` in the engine: no time passes but what the seed lets pass."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def monotonic(self) -> float:
        """Return the virtual seconds."""
        return self.now

    def time(self) -> float:
        """Return the real time, which decides nothing."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Let others have their turn."""
        _stop("sleep")


@dataclass
class World:
    """One seed's surroundings."""

    seed: int
    tenant_id: UUID
    other_side: OtherSide
    time: VirtualTime = field(default_factory=VirtualTime)
    messages: list[UUID] = field(default_factory=list)
    frames: dict[UUID, list[Frame]] = field(default_factory=lambda: defaultdict(list))
    names: dict[str, str] = field(default_factory=dict)
    # Tasks of a worker that lost the session of its keeper, and does not know it yet.
    cut: set[UUID] = field(default_factory=set)
    violation: OracleViolation | None = None

    def witness(self, task_id: UUID | None, fence: int, what: str) -> None:
        """O4: see who acts for a task under an old fence, or believes in a lease that is none."""
        with unseen(), connection.cursor() as cursor:
            cursor.execute(
                "SELECT fence, extract(epoch FROM lease_expires_at - clock_timestamp())::float"
                " FROM tasks_app_task WHERE id = %s",
                [task_id],
            )
            newest, left = cursor.fetchone()
        believed = _believed_seconds(task_id)
        if self.violation is not None:
            return
        if fence < newest:
            message = f"{what} under fence {fence}, {newest} is the newest"
            self.violation = OracleViolation("O4", message, task_id)
        elif left is not None and believed > left + REAL_SECONDS:
            message = f"{what} with {believed:.0f} s to go, really {left:.0f} s"
            self.violation = OracleViolation("O4", message, task_id)

    # --- seams of the engine ---------------------------------------------------------------------

    def send_task(self, _name: str, *, args: list[str], **_: object) -> None:
        """Take a message instead of the broker."""
        self.messages.append(UUID(args[0]))

    def publish(
        self,
        tenant_id: UUID,
        task_id: UUID,
        seq: int,
        type: str,  # noqa: A002 - the event's field has this name everywhere
        progress: float | None,
        phase: str,
        version: int,
    ) -> None:
        """Take a pushed event instead of Redis, and read the snapshot as a client does then."""
        stored, snapshot = picture(task_id)
        self.frames[task_id].append(Frame(seq, EventType(type), version, stored, snapshot))

    # --- time ------------------------------------------------------------------------------------

    def pass_time(self, seconds: float, task_ids: list[UUID]) -> None:
        """Let time pass, here and in the rows; rows in somebody's hands keep theirs."""
        self.time.now += seconds
        with connection.cursor() as cursor:
            cursor.execute(_PASS_TIME, {"ids": task_ids, "seconds": seconds})

    def name(self, task_id: UUID | str | None) -> str:
        """Return a task's short name, which is the same in every run of a seed."""
        return self.names.get(str(task_id), "-")


# Nobody is waited for: whoever holds a task's row is in the middle of a transaction.
_PASS_TIME = """
WITH free AS MATERIALIZED (
    SELECT id FROM tasks_app_task WHERE id = ANY(%(ids)s) FOR UPDATE SKIP LOCKED
), tasks AS (
    UPDATE tasks_app_task t SET
        lease_expires_at = lease_expires_at - make_interval(secs => %(seconds)s),
        next_wake_at = next_wake_at - make_interval(secs => %(seconds)s),
        deadline_at = deadline_at - make_interval(secs => %(seconds)s)
    FROM free WHERE t.id = free.id
), steps AS (
    UPDATE tasks_app_step s SET wake_at = wake_at - make_interval(secs => %(seconds)s)
    FROM free WHERE s.task_id = free.id AND s.wake_at IS NOT NULL
), approvals AS (
    UPDATE tasks_app_approval a SET expires_at = expires_at - make_interval(secs => %(seconds)s)
    FROM free WHERE a.task_id = free.id AND a.status IN ('pending', 'approved')
)
UPDATE tasks_app_outbox o SET next_try_at = next_try_at - make_interval(secs => %(seconds)s)
FROM free WHERE o.task_id = free.id
"""


def picture(task_id: UUID) -> tuple[int, Mapping[str, Any]]:
    """Return what a page shows of a task: (seq, facts), read in one statement."""
    with unseen(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT event_seq, status, state_version, plan_version, progress_done, receipt_id"
            " FROM tasks_app_task WHERE id = %s",
            [task_id],
        )
        seq, *facts = cursor.fetchone()
    return seq, dict(zip(("status", "version", "plan", "done", "receipt"), facts, strict=True))


def _kept() -> Lease | None:
    keeper = own_keeper.get()
    return None if keeper is None else keeper.kept  # type: ignore[attr-defined]


def _believed_seconds(task_id: UUID | None) -> float:
    """Return how long this thread's worker believes to hold a task."""
    kept = _kept()
    return 0.0 if kept is None or kept.task.id != task_id else kept.remaining_seconds


def _check_caller(key: str) -> None:
    """See that whoever calls outside holds the task; a moment ago it looked at its lease."""
    kept = _kept()
    if kept is not None and kept.task.id not in world().cut:
        world().witness(kept.task.id, kept.task.fence, f"{key} was called")


def _stop(at: str, detail: str = "") -> None:
    actor = current()
    if actor is not None:
        actor.stop(at, detail)


class Ids:
    """Makes UUIDs whose order a seed decides; no two runs make the same one."""

    def __init__(self, chance: random.Random, real: Callable[[int], bytes]) -> None:
        self._chance, self._real = chance, real
        self._run = real(5)
        self._number = 0

    def urandom(self, size: int) -> bytes:
        """Return bytes: those of the run first, so that only the seed orders ids."""
        if size != 16:
            return self._real(size)
        self._number += 1
        body = self._chance.randbytes(9) + self._number.to_bytes(2, "big")
        return self._run + body


_world: World | None = None


def world() -> World:
    """Return the world of the seed that runs now."""
    assert _world is not None
    return _world


def enter(new: World | None) -> None:
    """Make a world the present one."""
    global _world
    _world = new


def is_entered() -> bool:
    """Tell whether a seed runs now."""
    return _world is not None
