"""PostgreSQL goes away during work; a worker is told to stop in the middle of a long map."""

import signal
from collections import Counter

import pytest
from django.db import connection

from runtime_project.local.postgres import EmbeddedPostgres
from runtime_project.local.processes import wait_until
from tasks_app.models import Slice
from tests.crash.bed import Bed
from tests.support import evidence, oracles, outside_oracles, services
from tests.support.workers import TIMES

pytestmark = pytest.mark.crash

LEASE_SECONDS = float(TIMES["RUNTIME_LEASE_SECONDS"])
COMMITS = ("step.before_commit", "step.after_commit")


@pytest.fixture
def server() -> EmbeddedPostgres:
    """The embedded PostgreSQL of this test run, to be restarted."""
    postgres = services.start().postgres
    if postgres.process is None:
        pytest.skip("needs the embedded PostgreSQL, but DATABASE_URL names another")
    return postgres


@pytest.mark.parametrize("away_seconds", [0.0, 1.5 * LEASE_SECONDS], ids=["short", "long"])
def test_workers_outlive_a_restart_of_postgresql(
    bed: Bed, server: EmbeddedPostgres, away_seconds: float
) -> None:
    """Workers and sweeper find back by themselves; each act happens once (P13).

    However long it took, nobody's recovery is counted (P27).
    """
    script = [bed.say(impure=True), bed.effect("act"), bed.say()]
    bed.sync.hold("effect.after_call")
    ids = [bed.submit(*script) for _ in range(9)]
    held = len(bed.fleet.workers)
    bed.wait(lambda: bed.count_at("effect.after_call", ids) == held, "the first acts")
    before = {task_id: bed.progress(task_id).committed for task_id in ids}
    connection.close()
    server.stop()
    # Real time: the leases end while nobody can renew them.
    wait_until(lambda: False, seconds=away_seconds)
    server.start()
    bed.sync.release("effect.after_call")
    tasks = bed.wait_all_rest(ids)
    for task in tasks:
        assert task.status == "completed", task.error
        assert (task.recoveries, task.recoveries_total) == (0, 0)
        oracles.check_task(task)
        outside_oracles.check_outside(task, bed.outside.counts(str(task.id)), expected=1)
    assert sum("run_impure" in committed for committed in before.values()) == held
    assert evidence.read_runs(bed.runs)["run_impure"] == len(ids)
    bed.check_alive()


def test_worker_told_to_stop_hands_a_long_map_on(bed: Bed) -> None:
    """SIGTERM in the middle: it exits by itself, another goes on, no item is done twice (P20)."""
    items = 400
    listed = {"op": "map", "count": items, "append": str(bed.runs)}
    task_id = bed.submit(listed, held=COMMITS)
    hit = bed.sync.walk(COMMITS, task_id, ("step.before_commit", 4))
    leaving = bed.fleet.owner_of(hit.pid)
    leaving.send(signal.SIGTERM)
    bed.wait(lambda: "Warm shutdown" in leaving.log.read_text(), "its shutdown")
    bed.sync.release(COMMITS, task_id)
    bed.wait(lambda: not leaving.is_running(), "the worker's end")
    task = bed.check_completed(task_id, effects=0)
    assert task.recoveries_total == 0
    assert evidence.read_runs(bed.runs) == Counter(str(n) for n in range(items))
    slices = Slice.objects.for_tenant(bed.tenant.id).filter(task_id=task_id)
    assert slices.get(fence=hit.fence).outcome == "shutdown"
    bed.fleet.replace(leaving)
