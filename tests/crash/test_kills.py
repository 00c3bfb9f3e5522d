"""SIGKILL of what the matrix leaves out: whole workers, maps, sweepers, while messages repeat."""

from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from tests.crash.bed import SLICE_POINTS, Bed
from tests.support import evidence, oracles, outside_oracles

pytestmark = pytest.mark.crash


def effects_script(bed: Bed) -> list[dict[str, Any]]:
    """Two acts with a pure step between them."""
    return [bed.effect("first"), bed.say(), bed.effect("second"), bed.say()]


def kill_at(bed: Bed, task_id: UUID, stop: tuple[str, int]) -> evidence.Progress:
    """Kill the executing process at a stop; return what was done by then."""
    hit = bed.sync.walk(SLICE_POINTS, task_id, stop)
    bed.kill(hit.pid)
    done = bed.progress(task_id)
    oracles.check_checkpoints(evidence.of(bed.task(task_id)))
    bed.sync.release(SLICE_POINTS, task_id)
    return done


@pytest.mark.parametrize("point", ["step.before", "step.before_commit", "step.after_commit"])
def test_atomic_step_killed_anywhere_leaves_one_row(bed: Bed, point: str) -> None:
    """The author's row, the result and the cursor are there together, or none of them."""
    with connection.cursor() as cursor:
        cursor.execute("GRANT SELECT, INSERT ON auth_group TO rt_worker")
        cursor.execute("GRANT USAGE ON SEQUENCE auth_group_id_seq TO rt_worker")
    task_id = bed.submit({"op": "atomic", "append": str(bed.runs)}, held=SLICE_POINTS)
    before = kill_at(bed, task_id, (point, 1))
    task = bed.check_completed(task_id, effects=0)
    outside_oracles.check_runs(before, bed.progress(task_id))
    names = Group.objects.filter(name__startswith=str(task_id)).values_list("name", flat=True)
    assert list(names) == [task.result["row"]]


@pytest.mark.parametrize("stop", [("step.before_commit", 3), ("step.after_commit", 3)])
def test_map_killed_in_the_middle_repeats_the_open_range_only(
    bed: Bed, stop: tuple[str, int]
) -> None:
    """Items of committed ranges never run again, those of the open one once more at most."""
    commits = ("step.before_commit", "step.after_commit")
    task_id = bed.submit({"op": "map", "count": 60, "append": str(bed.runs)}, held=commits)
    hit = bed.sync.walk(commits, task_id, stop)
    bed.kill(hit.pid)
    before = bed.progress(task_id)
    assert 0 < len(before.committed & before.runs.keys()) < 60
    bed.sync.release(commits, task_id)
    task = bed.check_completed(task_id, effects=0)
    after = bed.progress(task_id)
    outside_oracles.check_runs(before, after)
    assert set(after.runs) == {str(n) for n in range(60)}
    assert task.result == {"count": 60, "failed": 0, "total": sum(n**2 for n in range(60))}


def test_whole_worker_killed_another_goes_on(bed: Bed) -> None:
    """Parent and child end at once, as with a machine; nobody is left to notice (M12)."""
    task_id = bed.submit(*effects_script(bed), held=SLICE_POINTS)
    hit = bed.sync.walk(SLICE_POINTS, task_id, ("effect.after_call", 1))
    worker = bed.fleet.owner_of(hit.pid)
    worker.kill_group()
    bed.fleet.replace(worker)
    bed.sync.release(SLICE_POINTS, task_id)
    bed.check_completed(task_id, effects=2)


def test_parent_killed_its_child_writes_under_its_lease_or_not_at_all(bed: Bed) -> None:
    """An orphan that still holds its lease may finish; what it does counts once all the same."""
    task_id = bed.submit(*effects_script(bed), held=SLICE_POINTS)
    hit = bed.sync.walk(SLICE_POINTS, task_id, ("effect.after_begin", 1))
    worker = bed.fleet.owner_of(hit.pid)
    bed.kill(worker.pid)
    bed.sync.release(SLICE_POINTS, task_id)
    bed.check_completed(task_id, effects=2)
    worker.kill_group()
    bed.fleet.replace(worker)


@pytest.mark.parametrize(
    "stop", [("claim.after", 1), ("effect.after_call", 1), ("effect.after", 1)], ids=lambda s: s[0]
)
def test_killed_while_every_message_comes_thrice(
    bed: Bed, thrice: None, stop: tuple[str, int]
) -> None:
    """Repeated messages find the task taken, by the dead worker or by its successor."""
    task_id = bed.submit(*effects_script(bed), held=SLICE_POINTS)
    before = kill_at(bed, task_id, stop)
    bed.check_completed(task_id, effects=2)
    outside_oracles.check_runs(before, bed.progress(task_id))


def test_message_lost_with_the_worker_that_took_it(bed: Bed, literal: None) -> None:
    """Killed between taking the message and the claim: the message is gone, the task runs (P1)."""
    point = "claim.before"
    task_id = bed.submit(bed.say(impure=True), bed.effect("act"), held=point)
    hit = bed.sync.wait_hit(point, task_id)
    bed.kill(hit.pid)
    bed.sync.release(point, task_id)
    task = bed.check_completed(task_id, effects=1)
    assert task.recoveries_total == 0


def test_sweeper_killed_before_a_take_over_is_replaced_by_another(bed: Bed) -> None:
    """What a sweeper had seen and not done is seen again by the next one."""
    task_id = bed.submit(*effects_script(bed), held=SLICE_POINTS)
    hit = bed.sync.walk(SLICE_POINTS, task_id, ("effect.after_begin", 1))
    bed.sync.hold("reap.after_scan", task_id)
    bed.kill(hit.pid)
    swept = bed.sync.wait_hit("reap.after_scan", task_id)
    bed.kill(swept.pid)
    bed.sync.release(("reap.after_scan", *SLICE_POINTS), task_id)
    bed.fleet.replace_sweeper(swept.pid)
    task = bed.check_completed(task_id, effects=2)
    assert task.recoveries_total == 1
