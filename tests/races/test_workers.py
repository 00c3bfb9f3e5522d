"""Workers and sweepers against each other: claims, approvals' use, renewal, take-over."""

from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from pytest_django import Settings

from runtime_project.local.processes import wait_until
from tasks_app.engine import approvals, continuation, lease, recovery
from tasks_app.engine.lease import Lease
from tasks_app.models import Approval, Slice, Task
from tests.races.actors import Actor, together
from tests.races.test_people import decide, waiting_for_approval
from tests.support import evidence, oracles
from tests.support.engine import Engine, lines
from tests.support.syncdir import SyncDir


@pytest.fixture
def quiet_keeper(settings: Settings) -> None:
    """No renewal comes by itself while a test runs."""
    settings.RUNTIME = {**settings.RUNTIME, "heartbeat_seconds": 600.0, "lease_seconds": 900.0}


def expire(task_id: UUID) -> None:
    """Move time: the lease ended an hour ago."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE tasks_app_task SET lease_expires_at = clock_timestamp() - interval '1 h'"
            " WHERE id = %s",
            [task_id],
        )


def has_lease(task_id: UUID) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT lease_expires_at > clock_timestamp() FROM tasks_app_task WHERE id = %s",
            [task_id],
        )
        return bool(cursor.fetchone()[0])


def end_session_of_keeper() -> None:
    """End the session that holds this process's lock, as a restart of the server does."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory'"
            " AND (classid::bigint << 32 | objid::bigint) = %s",
            [lease.keeper().lock_key],
        )
        assert cursor.fetchall() == [(True,)]


def test_eight_claims_of_one_task(engine: Engine, sync: SyncDir) -> None:
    """One message delivered eight times at once: one lease, seven times nothing (P8)."""
    task_id = engine.submit({"op": "say"})
    sync.hold("claim.before")
    actors = [Actor(lambda: lease.claim(task_id)) for _ in range(8)]
    sync.wait_hit("claim.before", task_id, count=8)
    sync.release("claim.before")
    results = [actor.result() for actor in actors]
    assert sum(isinstance(result, Lease) for result in results) == 1
    assert results.count(None) == 7
    assert engine.task(task_id).fence == 1
    assert Slice.objects.for_tenant(engine.tenant.id).count() == 1
    oracles.check_audit(evidence.of(engine.task(task_id)))


def test_claim_waits_for_a_command_that_holds_the_row(engine: Engine) -> None:
    """A message that comes while a person's command holds the task is not lost to a pause."""
    task_id = engine.submit({"op": "say"})
    with transaction.atomic():
        list(Task.objects.for_tenant(engine.tenant.id).select_for_update().filter(pk=task_id))
        actor = Actor(lambda: lease.claim(task_id))
        assert wait_until(is_somebody_waiting_for_a_lock, seconds=10)
    assert isinstance(actor.result(), Lease)


def is_somebody_waiting_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool(cursor.fetchone()[0])


def test_eight_claims_share_five_tasks(engine: Engine) -> None:
    """Whoever finds its task taken gets another due one, and none is given twice."""
    ids = [engine.submit({"op": "say"}) for _ in range(5)]
    results = together([lambda n=n: lease.claim(ids[n % 5]) for n in range(8)])  # type: ignore[misc]
    claimed = [result.task.id for result in results if result is not None]
    assert len(claimed) == len(set(claimed))
    # A claim that met only locked rows may come home with nothing; its message is not the last.
    rest = [found.task.id for found in iter(lambda: lease.claim(None), None)]
    assert sorted([*claimed, *rest]) == sorted(ids)
    assert {engine.task(task_id).fence for task_id in ids} == {1}


def test_one_approval_is_used_once(engine: Engine) -> None:
    """Eight workers that all believe they may act: one of them may (S57)."""
    approval = waiting_for_approval(engine)
    decide(approval, engine.approver, "approve")
    held = lease.claim(approval.task_id)
    assert held is not None
    task = held.task

    def use() -> bool:
        with transaction.atomic():
            return approvals.consume(task, approval.id, approval.args_sha256)

    assert together([use] * 8).count(True) == 1
    found = Approval.objects.for_tenant(engine.tenant.id).get(pk=approval.pk)
    assert found.status == "consumed"


def test_fresh_lease_is_not_renewed_before_its_time(
    engine: Engine, sync: SyncDir, quiet_keeper: None
) -> None:
    """The claim has just written the whole term: a short slice costs no renewal at all (E40)."""
    ids = [engine.submit({"op": "say"}) for _ in range(5)]
    assert {engine.run(task_id) for task_id in ids} == {"completed"}
    lease.stop_keeper()
    assert [task_id for task_id in ids if sync.hits("lease.before_renew", task_id)] == []


def test_two_sweepers_recover_a_task_once(
    engine: Engine, sync: SyncDir, quiet_keeper: None
) -> None:
    """Both saw the lost lease; one takes the task over."""
    task_id = engine.submit({"op": "say"})
    assert lease.claim(task_id) is not None
    expire(task_id)
    sync.hold("reap.after_scan")
    actors = [Actor(recovery.recover_lost) for _ in range(2)]
    sync.wait_hit("reap.after_scan", task_id, count=2)
    sync.release("reap.after_scan")
    for actor in actors:
        assert isinstance(actor.result(), int)
    task = engine.task(task_id)
    assert (task.status, task.fence, task.recoveries_total) == ("recovering", 2, 1)
    oracles.check_audit(evidence.of(task))


def test_two_sweepers_send_a_message_once(engine: Engine) -> None:
    """Within one pause a message is sent again by one of them (P26)."""
    ids = [engine.submit({"op": "say"}) for _ in range(8)]
    with connection.cursor() as cursor:
        cursor.execute("UPDATE tasks_app_outbox SET next_try_at = clock_timestamp()")
    assert sum(together([continuation.send_due, continuation.send_due])) == len(ids)


def test_s10_owner_that_renews_after_the_scan_keeps_its_task(
    engine: Engine, sync: SyncDir, settings: Settings, quiet_keeper: None
) -> None:
    """The sweeper looks again under the row's lock: no second attempt (S10)."""
    task_id = engine.submit({"op": "say"})
    held = lease.claim(task_id)
    assert held is not None
    expire(task_id)
    sync.hold("reap.after_scan")
    sweeper = Actor(recovery.recover_lost)
    sync.wait_hit("reap.after_scan", task_id)
    settings.RUNTIME = {**settings.RUNTIME, "heartbeat_seconds": 0.05}
    lease.keeper().keep(held)
    assert wait_until(lambda: has_lease(task_id), seconds=10)
    sync.release("reap.after_scan")
    assert isinstance(sweeper.result(), int)
    task = engine.task(task_id)
    assert (task.status, task.fence, task.recoveries_total) == ("working", 1, 0)
    assert not held.lost


def test_keeper_that_ended_is_replaced_before_the_next_claim(
    engine: Engine, quiet_keeper: None
) -> None:
    """Without a live keeper the sweeper would take every new task away at once (E46)."""
    task_id = engine.submit({"op": "say"})
    lease.keeper().stop()
    assert lease.claim(task_id) is not None
    assert recovery.recover_lost() == 0
    assert engine.task(task_id).fence == 1


@pytest.mark.slow
def test_claim_after_a_restart_of_the_database_is_not_taken_for_dead(
    engine: Engine, quiet_keeper: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle keeper does not notice that its session ended; the next claim makes it look (E46)."""
    monkeypatch.setattr(lease, "SEEN_SECONDS", 0.0)
    task_id = engine.submit({"op": "say"})
    end_session_of_keeper()
    assert lease.claim(task_id) is not None
    assert recovery.recover_lost() == 0
    assert engine.task(task_id).fence == 1


def test_keeper_finds_back_when_its_session_is_ended(
    engine: Engine, settings: Settings, sync: SyncDir
) -> None:
    """It holds its lock again and renews again; the slice under way is not told anything (E42)."""
    settings.RUNTIME = {**settings.RUNTIME, "heartbeat_seconds": 0.05}
    task_id = engine.submit({"op": "say"})
    held = lease.claim(task_id)
    assert held is not None
    sync.wait_hit("lease.before_renew", task_id)
    end_session_of_keeper()
    expire(task_id)
    assert wait_until(lambda: has_lease(task_id), seconds=10)
    assert recovery.recover_lost() == 0
    assert (engine.task(task_id).fence, held.lost) == (1, False)


@pytest.mark.slow
def test_s09_f2_no_effect_starts_when_renewal_fails(
    engine: Engine, sync: SyncDir, settings: Settings, tmp_path: Any
) -> None:
    """Nobody told the worker that its lease is gone; its own clock does (S9, E42)."""
    settings.RUNTIME = {**settings.RUNTIME, "lease_seconds": 1.5, "heartbeat_seconds": 0.1}
    acts = tmp_path / "acts"
    task_id = engine.submit({"op": "effect", "key": "act", "append": str(acts)})
    sync.fail("lease.before_renew", 10**6)
    sync.hold("effect.before", task_id)
    worker = Actor(lambda: engine.run(task_id))
    sync.wait_hit("effect.before", task_id)
    assert wait_until(lambda: not has_lease(task_id), seconds=10)
    sync.release("effect.before", task_id)
    assert worker.result() == "lost"
    assert lines(acts) == []
    sync.fail("lease.before_renew", 0)
    settings.RUNTIME = {**settings.RUNTIME, "lease_seconds": 30.0}
    engine.lose_lease(task_id)
    assert engine.drive(task_id).status == "completed"
    assert len(lines(acts)) == 1
