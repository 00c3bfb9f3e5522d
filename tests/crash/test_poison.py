"""Steps that kill whoever runs them, and a world that would show a second act."""

from pathlib import Path

import pytest

from tests.crash.bed import SLICE_POINTS, Bed
from tests.support import oracles, outside_oracles
from tests.support.outside import Outside
from tests.support.workers import Fleet

pytestmark = pytest.mark.crash


def test_step_that_always_kills_its_process_ends_as_a_dead_letter(bed: Bed) -> None:
    """After max_recoveries a person is asked, and the workers go on serving others (P6)."""
    poison = bed.submit(bed.say(impure=True), {"op": "die"}, bed.say())
    others = [bed.submit(bed.say(impure=True), bed.effect("other")) for _ in range(4)]
    for other in others:
        bed.check_completed(other, effects=1)
    task = bed.wait_rest(poison)
    assert (task.status, task.error["code"]) == ("dead_lettered", "too_many_recoveries")
    assert task.recoveries_total == 4
    oracles.check_task(task)
    assert bed.outside.counts(str(poison)) == {}
    late = bed.submit(bed.effect("late"))
    bed.check_completed(late, effects=1)
    bed.check_alive()
    bed.steer(poison, "cancel")
    closed = bed.wait_rest(poison)
    assert closed.status == "cancelled"
    oracles.check_task(closed)


def test_a_forgetful_world_would_be_noticed(bed: Bed, fleet: Fleet, tmp_path: Path) -> None:
    """The oracle is able to fail: where the key means nothing, the second call is a second act."""
    with Outside(strict=True) as forgetful:
        bed = Bed(fleet, forgetful, tmp_path)
        task_id = bed.submit(bed.effect("act"), held=SLICE_POINTS)
        hit = bed.sync.walk(SLICE_POINTS, task_id, ("effect.after_call", 1))
        bed.kill(hit.pid)
        bed.sync.release(SLICE_POINTS, task_id)
        task = bed.wait_rest(task_id)
        with pytest.raises(AssertionError, match="acted on 2 times"):
            outside_oracles.check_outside(task, forgetful.counts(str(task_id)), expected=1)
