"""Messages are hints: delivered thrice, lost altogether, or sent to a Redis that hangs or dies."""

import os
import signal
import time

import pytest
from celery import current_app

from runtime_project.local.redis_server import EmbeddedRedis
from tasks_app.engine.continuation import JOB_NAME
from tasks_app.models import Outbox, Slice, Task
from tests.crash.bed import Bed
from tests.support import evidence, oracles, outside_oracles, services

pytestmark = pytest.mark.crash


@pytest.fixture
def broker() -> EmbeddedRedis:
    """The embedded Redis of this test run, to be hurt."""
    server = services.start().redis
    if server.process is None:
        pytest.skip("needs the embedded Redis, but REDIS_URL names another")
    return server


def check_each_ran_once(bed: Bed, tasks: list[Task], *, effects: int) -> None:
    """Every task completed; no body, no act and no claim happened that was not owed."""
    for task in tasks:
        assert task.status == "completed", task.error
        oracles.check_task(task)
        counts = bed.outside.counts(str(task.id))
        outside_oracles.check_outside(task, counts, expected=effects)
        assert {count.requests for count in counts.values()} <= {1}
        assert task.recoveries_total == 0


def test_every_message_thrice_runs_nothing_twice(bed: Bed, thrice: None) -> None:
    """A message that finds nothing due does nothing: one claim for each slice (S6)."""
    long = [bed.say() for _ in range(250)]
    bed.sync.hold("claim.before")
    ids = [bed.submit(*long, bed.effect("act")) for _ in range(3)]
    ids += [bed.submit(bed.say(), bed.effect("act")) for _ in range(9)]
    for task_id in ids * 2:
        current_app.send_task(JOB_NAME, args=[str(task_id), "again"], queue="slices")
    bed.sync.release("claim.before")
    tasks = bed.wait_all_rest(ids)
    check_each_ran_once(bed, tasks, effects=1)
    runs = evidence.read_runs(bed.runs)
    assert runs["run"] == len(ids)
    assert [runs[f"run.{n}"] for n in range(2, 251)] == [3] * 249
    slices = Slice.objects.for_tenant(bed.tenant.id)
    # A hundred steps a slice: the long ones take three, the short ones one.
    assert slices.count() == 3 * 3 + 9
    assert slices.filter(outcome="completed").count() == len(ids)


def test_flushed_redis_loses_no_task(bed: Bed) -> None:
    """FLUSHALL while three of fifty tasks run: all finish, none twice (P2)."""
    bed.sync.hold("step.before")
    script = [bed.say(impure=True), bed.effect("act"), bed.say()]
    ids = [bed.submit(*script) for _ in range(50)]
    held = len(bed.fleet.workers)
    bed.wait(lambda: bed.count_at("step.before", ids) == held, "the first claims")
    bed.flush_redis()
    bed.sync.release("step.before")
    tasks = bed.wait_all_rest(ids)
    check_each_ran_once(bed, tasks, effects=1)
    assert evidence.read_runs(bed.runs) == {"run_impure": 50, "run": 50}


def test_hung_redis_delays_nobody_who_asks(bed: Bed, broker: EmbeddedRedis) -> None:
    """Admission answers within three seconds, running slices go on, all finish later (P4)."""
    assert broker.process is not None
    running = bed.submit(bed.say(impure=True), bed.effect("act"), bed.say(), held="step.before")
    bed.sync.wait_hit("step.before", running)
    broker.process.send_signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        late = bed.submit(bed.effect("act"))
        assert time.monotonic() - began < 3
        assert bed.task(late).status == "queued"
        assert Outbox.objects.for_tenant(bed.tenant.id).filter(task_id=late).exists()
        bed.sync.release("step.before", running)
        bed.check_completed(running, effects=1)
    finally:
        broker.process.send_signal(signal.SIGCONT)
    bed.check_completed(late, effects=1)
    check_each_ran_once(bed, [bed.task(running), bed.task(late)], effects=1)


def test_killed_redis_costs_no_worker(bed: Bed, broker: EmbeddedRedis) -> None:
    """No worker exits, no step runs twice, and new tasks start once Redis is back (P3)."""
    assert broker.process is not None
    script = [bed.say(impure=True), bed.effect("act"), bed.say()]
    bed.sync.hold("step.before")
    ids = [bed.submit(*script) for _ in range(12)]
    held = len(bed.fleet.workers)
    bed.wait(lambda: bed.count_at("step.before", ids) == held, "the first claims")
    os.kill(broker.process.pid, signal.SIGKILL)
    broker.process.wait()
    orphan = bed.submit(*script)
    bed.sync.release("step.before")
    broker.start()
    late = bed.submit(*script)
    tasks = bed.wait_all_rest([*ids, orphan, late])
    check_each_ran_once(bed, tasks, effects=1)
    assert evidence.read_runs(bed.runs) == {"run_impure": 14, "run": 14}
    bed.check_alive()
