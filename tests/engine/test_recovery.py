"""Takeover after a lost lease, dead letters, sweeper passes."""

import json
import threading
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from pytest_django import Settings

from ledger_app.models import AuditEntry
from ledger_app.services import effects
from tasks_app import syncpoints
from tasks_app.domain.checkpoint import SCHEMA_VERSION, digest
from tasks_app.domain.errors import LeaseLost
from tasks_app.engine import continuation, delivery, lease, plans, recovery, shutdown, slice_runner
from tasks_app.engine.session import SliceSession
from tasks_app.models import Checkpoint, Outbox, Slice, Task
from tasks_app.workflows.scripted import Scripted
from tests.support.engine import Engine, lines


def abandon(engine: Engine, task_id: UUID) -> lease.Lease:
    """Claim the task and walk away, as a killed worker would."""
    held = lease.claim(task_id)
    assert held is not None
    assert held.task.id == task_id
    lease.release(held)
    engine.lose_lease(task_id)
    return held


def change_checkpoint(sql: str, *values: str | int | UUID) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE tasks_app_checkpoint DISABLE TRIGGER USER")
        cursor.execute(sql, values)
        cursor.execute("ALTER TABLE tasks_app_checkpoint ENABLE TRIGGER USER")


@pytest.fixture
def half_done(engine: Engine, settings: Settings, tmp_path: Path) -> UUID:
    """Return a task with 5 of 12 steps done and where its steps count themselves."""
    settings.RUNTIME = {**settings.RUNTIME, "slice_steps": 5}
    task_id = engine.submit(*[{"op": "say", "append": str(tmp_path / "ran")} for _ in range(12)])
    assert engine.run(task_id) == "slice_spent"
    return task_id


def test_lost_lease_is_recovered_from_the_checkpoint(
    engine: Engine, half_done: UUID, tmp_path: Path
) -> None:
    """M12: recovering, verified, continued; finished steps are not run again; all audited."""
    before = engine.task(half_done)
    abandon(engine, half_done)
    task = engine.task(half_done)
    assert (task.status, task.recoveries, task.fence) == ("recovering", 1, before.fence + 2)
    assert engine.drive(half_done).status == "completed"
    assert len(lines(tmp_path / "ran")) == 12
    actions = [
        json.loads(entry.envelope)["action"]
        for entry in AuditEntry.objects.filter(stream=f"task:{half_done}")
    ]
    assert "task.recovered" in actions
    assert Slice.objects.for_tenant(engine.tenant.id).filter(outcome="lost").count() == 1
    engine.assert_audit_verifies(half_done)


def test_live_worker_is_not_taken_over(engine: Engine, half_done: UUID) -> None:
    """E46: as long as the process holds its lock and its lease is not over, nothing happens."""
    held = lease.claim(half_done)
    assert held is not None
    assert recovery.recover_lost() == 0
    assert engine.task(half_done).status == "working"
    lease.release(held)


def cut_keeper() -> None:
    """Free the lock of this process, as its death or a cut session does."""
    lock = lease.keeper().lock_key
    lease.stop_keeper()
    with connection.cursor() as cursor:
        # Waits until the server has noticed that the process's connection is gone.
        cursor.execute("SELECT pg_advisory_lock(%s), pg_advisory_unlock(%s)", [lock, lock])


def test_dead_process_is_noticed_before_its_lease_ends(engine: Engine, half_done: UUID) -> None:
    """E46: the lock of the process is free, so the lease is not waited for."""
    held = lease.claim(half_done)
    cut_keeper()
    expires_at = engine.task(half_done).lease_expires_at
    assert expires_at is not None
    assert expires_at > lease.database_now()
    assert recovery.recover_lost() == 1
    assert engine.task(half_done).status == "recovering"
    assert held is not None


@pytest.mark.parametrize(("kind", "at_once"), [("keyed", True), ("queryable", False)])
def test_call_that_may_still_be_made_is_not_asked_about(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, kind: str, at_once: bool
) -> None:
    """Whoever lost only the lock may send a request until the lease ends; a key makes that harmless."""
    task_id = engine.submit({"op": "effect", "key": "k", "kind": kind})
    found: list[int] = []

    def look(name: str, *_: object) -> None:
        if name == "effect.after_begin" and not found:
            cut_keeper()
            found.append(recovery.recover_lost())

    monkeypatch.setattr(syncpoints, "reach", look)
    outcome = engine.run(task_id)
    assert found == [int(at_once)]
    assert outcome == ("lost" if at_once else "completed")
    assert engine.drive(task_id).status == "completed"


def test_begun_query_is_recovered_when_its_lease_is_over(engine: Engine) -> None:
    """A worker that is really dead delays its successor by the lease, and by no more."""
    task_id = engine.submit({"op": "effect", "key": "k", "kind": "queryable"})
    held = lease.claim(task_id)
    assert held is not None
    act = effects.Act(
        tenant_id=engine.tenant.id,
        task_id=task_id,
        step_key="act_queryable",
        key=f"{task_id}:act_queryable",
        kind="queryable",
        tool="act_queryable",
        target="",
        args_sha256="0" * 64,
    )
    effects.begin(act, fence=held.task.fence, request={})
    cut_keeper()
    assert recovery.recover_lost() == 0
    lease.release(held)
    engine.lose_lease(task_id)
    assert engine.task(task_id).status == "recovering"


def test_old_fence_writes_nothing(engine: Engine, half_done: UUID) -> None:
    """E3: after a takeover every write of the old slice is refused and changes no row."""
    held = abandon(engine, half_done)
    held.lost = False
    session = SliceSession(held, Scripted)
    seen = engine.task(half_done)
    session.hold_event("log", {"message": "ghost"})
    with pytest.raises(LeaseLost):
        session.commit()
    held.lost = False
    with pytest.raises(LeaseLost), session.owned():
        raise AssertionError("the row is not ours")
    now = engine.task(half_done)
    assert (now.event_seq, now.state_version) == (seen.event_seq, seen.state_version)


def test_too_many_recoveries_need_a_person(
    engine: Engine, half_done: UUID, settings: Settings
) -> None:
    """E60: more than `max_recoveries` in a row without a committed step: dead letter."""
    for number in range(settings.RUNTIME["max_recoveries"]):
        abandon(engine, half_done)
        assert engine.task(half_done).recoveries == number + 1
    abandon(engine, half_done)
    task = engine.task(half_done)
    assert (task.status, task.error["code"]) == ("dead_lettered", "too_many_recoveries")
    step = task.error["step"]
    assert task.error["message"] == (
        f"4 workers in a row were lost at the step {step}, before it was done."
    )
    assert engine.run(half_done) == "idle"


def test_progress_resets_the_recovery_counter(engine: Engine, half_done: UUID) -> None:
    """E60: a committed step since the last takeover starts the count anew."""
    abandon(engine, half_done)
    assert engine.run(half_done) == "slice_spent"
    assert engine.task(half_done).recoveries == 0
    assert engine.task(half_done).recoveries_total == 1


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("UPDATE tasks_app_checkpoint SET document = replace(document, '12', '13')", "text"),
        ("UPDATE tasks_app_checkpoint SET sha256 = repeat('0', 64)", "sum"),
        ("UPDATE tasks_app_checkpoint SET document = 'nonsense', sha256 = %s", "nonsense"),
    ],
)
def test_changed_checkpoint_is_not_executed(
    engine: Engine, half_done: UUID, tmp_path: Path, sql: str, why: str
) -> None:
    """M16.6: dead letter, and not one step runs."""
    done = len(lines(tmp_path / "ran"))
    if why == "text":
        row = Checkpoint.objects.for_tenant(engine.tenant.id).order_by("-seq").first()
        change_checkpoint(
            "UPDATE tasks_app_checkpoint SET document = %s WHERE id = %s",
            row.document.replace('"next_position":5', '"next_position":9'),
            row.id,
        )
    elif why == "sum":
        change_checkpoint(sql)
    else:
        change_checkpoint(sql, digest("nonsense"))
    assert engine.run(half_done) == "dead_lettered"
    task = engine.task(half_done)
    assert (task.status, task.error["code"]) == ("dead_lettered", "checkpoint_damaged")
    assert len(lines(tmp_path / "ran")) == done


def test_checkpoint_of_a_newer_schema_is_held(engine: Engine, half_done: UUID) -> None:
    """E52: an unknown newer version is a dead letter, not a crash."""
    row = Checkpoint.objects.for_tenant(engine.tenant.id).order_by("-seq").first()
    newer = row.document.replace(f'"schema_version":{SCHEMA_VERSION}', '"schema_version":99')
    change_checkpoint(
        "UPDATE tasks_app_checkpoint SET document = %s, sha256 = %s WHERE id = %s",
        newer,
        digest(newer),
        row.id,
    )
    assert engine.run(half_done) == "dead_lettered"
    error = engine.task(half_done).error
    assert (error["code"], error["schema_version"]) == ("checkpoint_damaged", 99)


def test_checkpoint_of_another_task_is_not_taken(
    engine: Engine, half_done: UUID, settings: Settings
) -> None:
    """A checkpoint moved over from another task has a right checksum and the wrong owner."""
    other = engine.submit(*[{"op": "say"} for _ in range(12)])
    engine.run(other)
    row = Checkpoint.objects.for_tenant(engine.tenant.id).filter(task_id=other).first()
    change_checkpoint(
        "UPDATE tasks_app_checkpoint SET document = %s, sha256 = %s WHERE task_id = %s",
        row.document,
        row.sha256,
        half_done,
    )
    assert engine.run(half_done) == "dead_lettered"


def test_checkpoints_cannot_be_changed_by_sql(engine: Engine, half_done: UUID) -> None:
    """E50: a checkpoint is immutable for every role that does not switch triggers off."""
    from django.db import IntegrityError, transaction

    with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE tasks_app_checkpoint SET sha256 = 'x'")


def test_lost_message_is_sent_again(engine: Engine) -> None:
    """E1: a message that was lost with the broker is sent again by the sweeper."""
    task_id = engine.submit({"op": "say"})
    with connection.cursor() as cursor:
        cursor.execute("UPDATE tasks_app_outbox SET next_try_at = clock_timestamp()")
    assert continuation.send_due() == 1
    assert continuation.send_due() == 0
    row = Outbox.objects.for_tenant(engine.tenant.id).get(task_id=task_id)
    assert row.tries == 1


def test_due_task_without_a_message_gets_one(engine: Engine) -> None:
    """A due timer, or a row whose outbox entry was never written, is woken."""
    task_id = engine.submit({"op": "sleep", "s": 60})
    engine.run(task_id)
    assert recovery.owe_due() == 0
    engine.make_due(task_id)
    assert recovery.owe_due() == 1
    assert Outbox.objects.for_tenant(engine.tenant.id).filter(task_id=task_id).exists()


def test_overdue_task_fails(engine: Engine) -> None:
    """M18: a task past its own deadline fails with the reason."""
    task_id = engine.submit({"op": "say"})
    with connection.cursor() as cursor:
        cursor.execute("UPDATE tasks_app_task SET deadline_at = clock_timestamp()")
    assert recovery.fail_overdue() == 1
    task = engine.task(task_id)
    assert (task.status, task.stop_reason) == ("failed", "max_duration")


def test_task_that_cannot_be_ended_keeps_nobody_from_the_sweeper(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It comes first in every pass; the next one's work is done all the same."""
    first, second = engine.submit({"op": "say"}), engine.submit({"op": "say"})
    with connection.cursor() as cursor:
        cursor.execute("UPDATE tasks_app_task SET deadline_at = created_at")
    end_task = delivery.end_task

    def refuse(task: Task, *args: Any, **words: Any) -> bool:
        if task.id == first:
            raise ValueError("this row is broken")
        return end_task(task, *args, **words)

    monkeypatch.setattr(delivery, "end_task", refuse)
    assert recovery.sweep().overdue == 1
    assert (engine.task(first).status, engine.task(second).status) == ("queued", "failed")
    told = [record for record in caplog.records if record.message == "sweep.row_failed"]
    assert [record.row[0] for record in told] == [str(first)]  # type: ignore[attr-defined]


def test_suspended_tenant_is_not_worked_for(engine: Engine) -> None:
    """S1: a suspended tenant's tasks are not claimed."""
    task_id = engine.submit({"op": "say"})
    engine.tenant.status = "suspended"
    engine.tenant.save(update_fields=["status"])
    assert slice_runner.run_slice(task_id) == "idle"


def test_error_of_our_own_gives_the_task_back_at_once(
    engine: Engine, half_done: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slice that crashes does not hold its lease: the sweeper recovers the task right away."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(plans, "read_window", broken)
    with pytest.raises(ZeroDivisionError):
        engine.run(half_done)
    assert recovery.recover_lost() == 1
    monkeypatch.undo()
    assert engine.drive(half_done).status == "completed"


def test_stopping_worker_hands_on_in_the_middle_of_a_map(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E43: told to stop, a slice hands on at the next item; nothing is redone."""
    task_id = engine.submit({"op": "map", "count": 60, "append": str(tmp_path / "ran")})
    stopping = iter([False] * 30)
    monkeypatch.setattr(shutdown, "requested", lambda: next(stopping, True))
    assert engine.run(task_id) == "shutdown"
    assert 0 < len(lines(tmp_path / "ran")) < 60
    monkeypatch.undo()
    assert engine.drive(task_id).status == "completed"
    assert len(lines(tmp_path / "ran")) == 60


@pytest.mark.slow
def test_s11_f4_step_longer_than_three_leases_runs_once(engine: Engine, settings: Settings) -> None:
    """E22, S11: a call into C that never yields keeps its lease; nobody takes the task over."""
    short = {"lease_seconds": 0.5, "heartbeat_seconds": 0.1, "grace_seconds": 0.0}
    settings.RUNTIME = {**settings.RUNTIME, **short}
    task_id = engine.submit({"op": "sleep", "s": 1.6, "block": True})
    ended, taken = threading.Event(), []

    def sweep() -> None:
        while not ended.is_set():
            taken.append(recovery.recover_lost())
        connection.close()

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    outcome = engine.run(task_id)
    ended.set()
    sweeper.join()
    assert (outcome, sum(taken)) == ("completed", 0)
    assert len(taken) > 3
    assert Slice.objects.for_tenant(engine.tenant.id).filter(task_id=task_id).count() == 1


def test_removed_checkpoint_is_noticed(engine: Engine, half_done: UUID, tmp_path: Path) -> None:
    """The task's row knows the number of its newest checkpoint; an older one is not taken."""
    done = len(lines(tmp_path / "ran"))
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM tasks_app_checkpoint WHERE task_id = %s AND seq ="
            " (SELECT max(seq) FROM tasks_app_checkpoint WHERE task_id = %s)",
            [half_done, half_done],
        )
    assert engine.run(half_done) == "dead_lettered"
    assert len(lines(tmp_path / "ran")) == done


def test_message_owed_after_the_claim_ends_with_the_task(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweeper's old look owes it; without the task nobody would send or delete it (O10)."""
    task_id = engine.submit({"op": "say"})

    def owe_late(name: str, run: UUID | None, fence: int) -> None:
        if name == "step.before":
            continuation.owe(task_id, engine.tenant.id, "due")

    monkeypatch.setattr(syncpoints, "scheduler", owe_late)
    assert engine.run(task_id) == "completed"
    assert not Outbox.objects.for_tenant(engine.tenant.id).exists()
