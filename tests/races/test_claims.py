"""Claimers against each other: nobody waits, nothing is taken twice, limits hold exactly (E41)."""

from uuid import UUID

import pytest
from django.db import connection, transaction
from pytest_django import Settings

from tasks_app.engine import lease
from tasks_app.engine.lease import Lease
from tests import factories
from tests.races.actors import together
from tests.support.engine import Engine

SAY = {"op": "say"}


@pytest.fixture
def other(engine: Engine) -> Engine:
    """A second tenant with people of its own."""
    return Engine()


def claimed(results: list[Lease | None]) -> list[UUID]:
    return [result.task.id for result in results if result is not None]


def claim_under_lock() -> UUID:
    """Claim in the caller's transaction, which stays open; return the task's id."""
    found = lease._claim_once(lease.keeper(), None, is_locked=False)
    assert found is not None
    return found.task.id


def test_claimers_never_wait_for_each_other(engine: Engine, other: Engine) -> None:
    """While one claim is not committed, the next one takes the second best, of either tenant."""
    ids = {engine.submit(SAY) for _ in range(2)} | {other.submit(SAY) for _ in range(2)}
    with transaction.atomic():
        first = claim_under_lock()
        rest = together([lambda: _impatiently() for _ in range(3)])
    assert {first, *rest} == ids


def _impatiently() -> UUID:
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '100ms'")
        return claim_under_lock()


def test_claim_locks_one_task(engine: Engine, other: Engine) -> None:
    """It looks at the tasks of every tenant and holds up people's commands on one only."""
    ids = [engine.submit(SAY) for _ in range(3)] + [other.submit(SAY) for _ in range(3)]
    with transaction.atomic():
        claim_under_lock()
        (free,) = together([_count_unlocked])
    assert free == len(ids) - 1


def _count_unlocked() -> int:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT id FROM tasks_app_task FOR UPDATE SKIP LOCKED")
        return len(cursor.fetchall())


def test_limit_of_a_tenant_is_exact(engine: Engine, other: Engine) -> None:
    """Eight workers at once: two tasks of the limited tenant run, and all of the other's."""
    factories.set_tenant(engine.tenant, max_concurrent_tasks=2)
    limited = {engine.submit(SAY, priority=0) for _ in range(8)}
    free = {other.submit(SAY) for _ in range(3)}
    taken = claimed(together([lambda: lease.claim(None)] * 8))
    assert len(limited.intersection(taken)) == 2
    assert free.intersection(taken) == free
    assert len(taken) == 5


def test_limit_of_the_installation_is_exact(engine: Engine, settings: Settings) -> None:
    """Eight workers at once, each with a message of its own: three tasks run."""
    settings.RUNTIME = {**settings.RUNTIME, "max_concurrent_tasks": 3}
    ids = [engine.submit(SAY) for _ in range(8)]
    results = together([lambda task_id=task_id: lease.claim(task_id) for task_id in ids])  # type: ignore[misc]
    assert len(claimed(results)) == 3
