"""Many tasks while worker processes are killed again and again, wherever they happen to be."""

import random

import pytest

from tasks_app.models import Event
from tests.crash.bed import Bed
from tests.support import oracles, outside_oracles

pytestmark = pytest.mark.crash

KILLS = 10


@pytest.mark.parametrize("seed", [1])
def test_all_tasks_finish_through_a_storm_of_kills(bed: Bed, seed: int, thrice: None) -> None:
    """Ten kills among twenty tasks, every message thrice: each act once, each row in order."""
    chance = random.Random(seed)  # noqa: S311 - which process is hit, not a secret
    script = [bed.say(impure=True), bed.effect("first"), {"op": "map", "count": 25}, bed.say()]
    ids = [bed.submit(*script, bed.effect("second"), bed.say()) for _ in range(20)]
    events = Event.objects.for_tenant(bed.tenant.id)
    for _ in range(KILLS):
        seen = events.count()
        more = chance.randint(1, 12)
        bed.wait(lambda seen=seen, more=more: events.count() >= seen + more, "progress")  # type: ignore[misc]
        bed.kill_some_child(chance)
        if not bed.open_tasks(ids):
            break
    tasks = bed.wait_all_rest(ids)
    assert sum(task.recoveries_total for task in tasks) > 0
    for task in tasks:
        assert task.status == "completed", task.error
        oracles.check_task(task)
        counts = bed.outside.counts(str(task.id))
        outside_oracles.check_outside(task, counts, expected=2, faults=KILLS)
