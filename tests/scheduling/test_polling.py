"""Workers that poll: no Redis anywhere, real processes, the same promises (E45)."""

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django import Settings

from runtime_project.local import processes
from tasks_app.models import Outbox, Slice
from tests.crash.bed import Bed
from tests.support import evidence, oracles, outside_oracles
from tests.support.outside import Outside
from tests.support.workers import Fleet

pytestmark = pytest.mark.crash

NOWHERE = "redis://127.0.0.1:1/0"
COMMITS = ("step.before_commit", "step.after_commit")


@pytest.fixture(scope="module")
def polling(db: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two polling workers of two processes each, and a sweeper; their Redis does not exist."""
    fleet = Fleet(tmp_path_factory.mktemp("polling"), polls=True)
    fleet.env |= {"RUNTIME_POLL_CLAIM": "1", "REDIS_URL": NOWHERE, "REDIS_BROKER_URL": NOWHERE}
    try:
        fleet.start(workers=2)
        yield fleet
    finally:
        fleet.stop()


@pytest.fixture
def bed(polling: Fleet, outside: Outside, tmp_path: Path, settings: Settings) -> Iterator[Bed]:
    settings.RUNTIME = {**settings.RUNTIME, "poll_claim": True}
    bed = Bed(polling, outside, tmp_path)
    yield bed
    bed.sync.clear()


def test_tasks_complete_without_redis(bed: Bed) -> None:
    """Every step and every act once, no message owed, every process alive at the end."""
    script = [bed.say(impure=True), bed.effect("act"), bed.say()]
    ids = [bed.submit(*script) for _ in range(30)]
    for task in bed.wait_all_rest(ids):
        assert task.status == "completed", task.error
        oracles.check_task(task)
        outside_oracles.check_outside(task, bed.outside.counts(str(task.id)), expected=1)
    assert evidence.read_runs(bed.runs)["run_impure"] == len(ids)
    assert not Outbox.objects.for_tenant(bed.tenant.id).exists()
    bed.check_alive()


def test_killed_child_is_replaced_and_its_task_goes_on(bed: Bed) -> None:
    """The parent never ends with a child; the task is taken over as with messages."""
    task_id = bed.submit(bed.say(impure=True), bed.effect("act"), held="effect.after_call")
    hit = bed.sync.wait_hit("effect.after_call", task_id)
    worker = bed.fleet.owner_of(hit.pid)
    bed.kill(hit.pid)
    bed.sync.release("effect.after_call", task_id)
    task = bed.check_completed(task_id, effects=1)
    assert task.recoveries_total == 1
    bed.wait(lambda: len(worker.children()) == 2, "a new child")
    assert hit.pid not in worker.children()
    bed.check_alive()


def test_worker_told_to_stop_hands_on_within_a_second(bed: Bed) -> None:
    """SIGTERM in the middle of a map: it ends by itself, no item is done twice."""
    items = 400
    task_id = bed.submit({"op": "map", "count": items, "append": str(bed.runs)}, held=COMMITS)
    hit = bed.sync.walk(COMMITS, task_id, ("step.before_commit", 4))
    leaving = bed.fleet.owner_of(hit.pid)
    leaving.send(signal.SIGTERM)
    bed.sync.release(COMMITS, task_id)
    ended = processes.wait_until(lambda: not leaving.is_running(), seconds=5)
    assert ended, leaving.tail()
    assert leaving.process.returncode == 0
    task = bed.check_completed(task_id, effects=0)
    assert task.recoveries_total == 0
    assert evidence.read_runs(bed.runs) == Counter(str(n) for n in range(items))
    slices = Slice.objects.for_tenant(bed.tenant.id).filter(task_id=task_id)
    assert slices.get(fence=hit.fence).outcome == "shutdown"
    bed.fleet.replace(leaving)


def test_children_end_with_their_parent(bed: Bed) -> None:
    """A parent that is killed leaves nobody behind who claims."""
    leaving = bed.fleet.workers[0]
    bed.wait(lambda: len(leaving.children()) == 2, "its children")
    children = leaving.children()
    leaving.send(signal.SIGKILL)
    bed.wait(lambda: not set(children) & set(leaving.children()), "the children's end")
    leaving.process.wait(10)
    bed.fleet.replace(leaving)
