"""A worker process freezes past its lease, another takes over, and the frozen one wakes up."""

from uuid import UUID

import pytest

from tests.crash.bed import SLICE_POINTS, Bed
from tests.support import evidence
from tests.support.syncdir import Hit

pytestmark = pytest.mark.crash

# Here the fence of the row is what stops a zombie: time is moved by changing the row.
FENCED = [
    ("claim.after", 1),
    ("step.before_commit", 1),
    ("step.after_commit", 1),
    ("effect.before", 1),
    ("effect.after_call", 1),
    ("effect.after", 1),
    ("finish.before_receipt", 1),
]
# Here only the process's own clock stands between it and the outside.
ON_ITS_OWN = [("step.before", 1), ("effect.after_begin", 1), ("step.before", 2)]
# Here it holds the row's lock, until the server ends its session.
LOCKING = [("step.before_commit", 2), ("finish.before_terminal", 1)]


def let_lease_end(bed: Bed, task_id: UUID, hit: Hit, stop: tuple[str, int]) -> None:
    """Have the task taken over."""
    if stop in FENCED:
        bed.expire_lease(task_id)
    bed.wait(lambda: bed.task(task_id).fence > hit.fence, "the take-over")


@pytest.mark.parametrize(
    "stop", [*FENCED, *ON_ITS_OWN, *LOCKING], ids=lambda stop: f"{stop[0]}-{stop[1]}"
)
def test_zombie_writes_nothing_and_calls_nothing(bed: Bed, stop: tuple[str, int]) -> None:
    """Its fence is old: after it wakes, no row differs and no request was made (S8, P7)."""
    script = [bed.say(impure=True), bed.effect("act"), bed.say()]
    task_id = bed.submit(*script, held=SLICE_POINTS)
    hit = bed.sync.walk(SLICE_POINTS, task_id, stop)
    with bed.frozen(hit.pid):
        let_lease_end(bed, task_id, hit, stop)
        bed.sync.release(SLICE_POINTS, task_id)
        bed.check_completed(task_id, effects=1)
        rows, calls = evidence.rows_of(task_id), bed.outside.counts(str(task_id))
        runs = bed.progress(task_id).runs
    assert bed.wait_outcome(task_id, hit) in {"lost", "crashed"}
    assert evidence.rows_of(task_id) == rows
    assert bed.outside.counts(str(task_id)) == calls
    assert bed.progress(task_id).runs == runs
