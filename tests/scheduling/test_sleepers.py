"""A sleeping task is a row and nothing else: a million of them cost nobody anything."""

import os
import time
from collections.abc import Callable, Iterator
from statistics import median
from uuid import UUID

import pytest
from django.db import connection

from tasks_app.engine import lease, queue, recovery, slice_runner
from tasks_app.models import Outbox
from tests.support import crowd
from tests.support.engine import Engine

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]

# PERDURE_TEST_SLEEPERS=1000000 takes some minutes.
SLEEPERS = int(os.environ.get("PERDURE_TEST_SLEEPERS", "200000"))
SAMPLES = 15
# Medians on a busy machine: a factor for real, and some milliseconds for chance.
FACTOR, CHANCE_SECONDS = 5.0, 0.05

SAY = {"op": "say"}


@pytest.fixture
def engine(db: None) -> Iterator[Engine]:
    yield Engine()
    lease.stop_keeper()


def claim_and_let_go(task_id: UUID) -> None:
    """Claim the only due task and make it due again, as if its slice had handed on."""
    held = lease.claim(None)
    assert held is not None
    assert held.task.id == task_id
    lease.release(held)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE tasks_app_task SET status = 'queued', next_wake_at = clock_timestamp(),"
            " lease_owner = NULL, lease_lock = NULL, lease_expires_at = NULL WHERE id = %s",
            [task_id],
        )


def measure(act: Callable[[], object]) -> float:
    """Return the median of some runs, in seconds."""
    times = []
    for _ in range(SAMPLES):
        began = time.perf_counter()
        act()
        times.append(time.perf_counter() - began)
    return median(times)


def test_sleepers_cost_nothing(engine: Engine) -> None:
    """Claim, look and sweep stay within a small factor of what they cost without any sleeper."""
    task_id = engine.submit(SAY)
    acts: dict[str, Callable[[], object]] = {
        "claim": lambda: claim_and_let_go(task_id),
        "look": queue.is_anybody_waiting,
        "sweep": recovery.sweep,
    }
    before = {name: measure(act) for name, act in acts.items()}
    began = time.perf_counter()
    crowd.add_sleeping(task_id, SLEEPERS)
    print(f"\n{SLEEPERS} sleeping tasks added in {time.perf_counter() - began:.0f} s")  # noqa: T201 - a measurement
    with connection.cursor() as cursor:
        # As autovacuum does.
        cursor.execute("ANALYZE tasks_app_task")
    after = {name: measure(act) for name, act in acts.items()}
    for name, seconds in after.items():
        print(f"{name}: {seconds * 1000:.1f} ms, without {before[name] * 1000:.1f} ms")  # noqa: T201 - a measurement
    for name, seconds in after.items():
        assert seconds <= FACTOR * before[name] + CHANCE_SECONDS, name
    assert Outbox.objects.for_tenant(engine.tenant.id).count() <= 1
    assert slice_runner.run_slice() == "completed"
    assert slice_runner.run_slice() == "idle"
