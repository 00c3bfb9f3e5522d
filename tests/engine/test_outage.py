"""P27: what fell with the database is nobody's fault; nobody counts as dead too early."""

import threading
import time
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError, ProgrammingError, close_old_connections, connection
from pytest_django import Settings
from typing_extensions import override

from tasks_app.admission import firing, replays
from tasks_app.engine import lease, outage, recovery
from tasks_app.engine.lease import Lease
from tasks_app.management.commands import sweep
from tasks_app.models import Outbox, Task
from tests.support.engine import Engine

SAY = {"op": "say"}


@pytest.fixture
def held(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Lease:
    """A slice under way."""
    monkeypatch.setattr(outage, "PAUSE_SECONDS", 0.0)
    engine.submit(SAY)
    claimed = lease.claim(None)
    assert claimed is not None
    return claimed


def cut_off(held: Lease) -> None:
    """End the session that holds this process's lock, as an outage of the database does."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory'"
            " AND (classid::bigint << 32 | objid::bigint) = %s",
            [lease.keeper().lock_key],
        )
        assert cursor.fetchall() == [(True,)]


def standing(engine: Engine, task_id: UUID) -> tuple[str, int, int]:
    task: Task = engine.task(task_id)
    return task.status, task.recoveries, task.recoveries_total


@pytest.mark.slow
@pytest.mark.parametrize("failed", [True, False])
def test_slice_that_fell_with_the_database_is_not_counted(
    engine: Engine, held: Lease, *, failed: bool
) -> None:
    """Its worker sends the task to recovery itself, due at once, and any worker goes on."""
    cut_off(held)
    outage.give_up(held, failed=failed)
    assert standing(engine, held.task.id) == ("recovering", 0, 0)
    assert Outbox.objects.for_tenant(engine.tenant.id).get().reason == "outage"
    assert engine.run(held.task.id) == "completed"
    engine.assert_audit_verifies(held.task.id)


def test_slice_that_broke_by_itself_is_counted(engine: Engine, held: Lease) -> None:
    """The sweeper takes it over at its next pass; three of them in a row are enough (E60)."""
    outage.give_up(held, failed=True)
    assert recovery.recover_lost() == 1
    assert standing(engine, held.task.id) == ("recovering", 1, 1)


def test_slice_that_only_grew_too_old_leaves_its_lease(engine: Engine, held: Lease) -> None:
    """A step that stops the keeper is the task's own fault: the lease runs out and counts."""
    outage.give_up(held, failed=False)
    assert standing(engine, held.task.id) == ("working", 0, 0)


def test_worker_tries_until_the_database_answers(
    engine: Engine, held: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long that takes: without it nothing else could be done either (P13)."""
    held.deadline = time.monotonic() - 1
    tries = iter([True, True])

    def unreachable() -> None:
        if next(tries, False):
            raise OperationalError("the database restarts")
        close_old_connections()

    monkeypatch.setattr(outage, "close_old_connections", unreachable)
    outage.give_up(held, failed=True)
    assert recovery.recover_lost() == 1


def test_nobody_heard_of_before_the_start_counts_as_dead_at_once(
    engine: Engine, held: Lease, settings: Settings
) -> None:
    """The server is younger than the grace: an ended lease says nothing about its owner."""
    settings.RUNTIME = {**settings.RUNTIME, "outage_grace_seconds": 10.0**9}
    rows = Task.objects.for_tenant(engine.tenant.id).filter(pk=held.task.id)
    rows.update(lease_expires_at=datetime(2001, 1, 1, tzinfo=UTC))
    assert recovery.recover_lost() == 0
    settings.RUNTIME = {**settings.RUNTIME, "outage_grace_seconds": 0.0}
    assert recovery.recover_lost() == 1


def test_death_in_this_life_of_the_server_is_noticed_at_once(
    engine: Engine, held: Lease, settings: Settings
) -> None:
    """The lease was written after the start, so its owner had its lock then (E46)."""
    settings.RUNTIME = {**settings.RUNTIME, "outage_grace_seconds": 10.0**9}
    cut_off(held)
    assert recovery.recover_lost() == 1


class _Passes(threading.Event):
    """Tells the sweeper to make so many passes, without a pause."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._left = number

    @override
    def wait(self, timeout: float | None = None) -> bool:
        self._left -= 1
        return self._left < 0


def test_sweeper_that_was_cut_off_believes_in_no_death_for_a_while(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    """It goes on with everything else."""
    settings.RUNTIME = {**settings.RUNTIME, "outage_grace_seconds": 600.0}
    believed: list[bool] = []

    def make_pass(*, include_leases: bool) -> recovery.SweepCounts:
        believed.append(include_leases)
        if len(believed) == 2:
            raise OperationalError("the database restarts")
        return recovery.SweepCounts()

    monkeypatch.setattr(recovery, "sweep", make_pass)
    monkeypatch.setattr(firing, "fire_due", lambda: 0)
    monkeypatch.setattr(replays, "forget_old", lambda: 0)
    sweep.sweep_until(_Passes(4))
    assert believed == [True, True, False, False]


def test_broken_pass_is_no_outage(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever does not work is said, and dead workers are found all the same."""
    settings.RUNTIME = {**settings.RUNTIME, "outage_grace_seconds": 600.0}
    believed: list[bool] = []

    def make_pass(*, include_leases: bool) -> recovery.SweepCounts:
        believed.append(include_leases)
        return recovery.SweepCounts()

    def refuse() -> int:
        raise ProgrammingError("permission denied")

    monkeypatch.setattr(recovery, "sweep", make_pass)
    monkeypatch.setattr(firing, "fire_due", refuse)
    sweep.sweep_until(_Passes(3))
    assert believed == [True, True, True]
    assert [record.message for record in caplog.records] == ["sweep.pass_failed"] * 3


def test_sweeper_that_stood_still_believes_in_no_death_for_a_while(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    """Workers may have stood still with it, such as on a machine that slept."""
    settings.RUNTIME = {**settings.RUNTIME, "outage_grace_seconds": 5.0, "heartbeat_seconds": 1.0}
    believed: list[bool] = []
    clock = iter([0.0, 0.1, 0.2, 60.0, 61.0, 62.0, 63.0, 64.0, 65.5])
    monkeypatch.setattr(sweep, "time", _Clock(clock))

    def make_pass(*, include_leases: bool) -> Any:
        believed.append(include_leases)
        return recovery.SweepCounts()

    monkeypatch.setattr(recovery, "sweep", make_pass)
    monkeypatch.setattr(firing, "fire_due", lambda: 0)
    monkeypatch.setattr(replays, "forget_old", lambda: 0)
    sweep.sweep_until(_Passes(8))
    assert believed == [True, True, False, False, False, False, False, True]


class _Clock:
    def __init__(self, readings: Any) -> None:
        self._readings = readings

    def monotonic(self) -> float:
        return float(next(self._readings))
