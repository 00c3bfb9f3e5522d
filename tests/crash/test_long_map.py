"""A map of 100,000 items whose worker is killed half-way: what it costs to go on (E94)."""

import time

import pytest
from django.db.models import Max, Sum

from tasks_app.domain.checkpoint import MAX_BYTES
from tasks_app.engine.lease import database_now
from tasks_app.models import Checkpoint, Slice, StepRange
from tests.crash.bed import Bed
from tests.support import oracles

pytestmark = [
    pytest.mark.crash,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("long_slices"),
]

ITEMS = 100_000
CHUNK = 50
HALF = ITEMS // CHUNK // 2
RESUME_SECONDS = 0.250
# Each one is a recovery in which nothing was done; three of them are allowed in a row.
TRIES = 3
PATIENCE_SECONDS = 120.0
SPIN_SECONDS = 0.05


def test_map_of_100_000_items_killed_half_way_goes_on_at_once(bed: Bed) -> None:
    """Another worker's first new item comes 250 ms after its claim; only the open range repeats."""
    commit, item = "step.before_commit", "step.before"
    script = [{"op": "map", "count": ITEMS, "chunk": CHUNK}]
    task_id = bed.submit(*script, held=commit, held_at=(HALF,))
    hit = bed.sync.wait_hit(commit, task_id, count=HALF, seconds=PATIENCE_SECONDS)
    done = committed_items(bed)
    assert 0.45 * ITEMS < done < 0.55 * ITEMS
    earlier = len(bed.sync.hits(item, task_id))
    # The list, what was committed, and what the held worker has run of its open range.
    assert 0 < earlier - 1 - done <= CHUNK
    # Before the kill: the other worker may be there in no time.
    bed.sync.hold(item, task_id, at=range(earlier + 1, earlier + 1 + TRIES))
    bed.fleet.dismiss(bed.fleet.owner_of(hit.pid))
    bed.sync.release(commit, task_id)

    overheads, taken = [], Slice()
    for known in range(earlier, earlier + TRIES):
        began_at = bed.sync.wait_next(item, task_id, known)
        clocks_differ = time.time() - database_now().timestamp()
        taken = Slice.objects.for_tenant(bed.tenant.id).latest("fence")
        waited = began_at - clocks_differ - taken.started_at.timestamp()
        overheads.append(waited / slowness())
        if overheads[-1] <= RESUME_SECONDS:
            break
        # What else the machine does makes everything slower, and nothing faster.
        bed.kill(bed.sync.hits(item, task_id)[-1].pid)
    told = ", ".join(f"{seconds * 1000:.0f}" for seconds in overheads)
    print(f"\nat item {done}: {told} ms from claim to first item")  # noqa: T201 - a measurement
    assert taken.recovered
    assert 0 < min(overheads) <= RESUME_SECONDS

    bed.sync.release(item, task_id)
    bed.wait(lambda: not bed.open_tasks([task_id]), "the end of the map", seconds=PATIENCE_SECONDS)
    task = bed.task(task_id)
    assert task.status == "completed", task.error
    squares = sum(n**2 for n in range(ITEMS))
    assert task.result == {"count": ITEMS, "failed": 0, "total": squares}
    # The rest of the items, and the step that adds them up.
    again = [hit for hit in bed.sync.hits(item, task_id) if hit.fence == taken.fence]
    assert len(again) == ITEMS - done + 1
    assert largest_checkpoint(bed) <= MAX_BYTES
    oracles.check_task(task, at_rest=True)


def slowness() -> float:
    """Return how much longer than its processor time a process takes just now; 1 when alone."""
    began, used = time.perf_counter(), time.process_time()
    while time.process_time() - used < SPIN_SECONDS:
        pass
    return max(1.0, (time.perf_counter() - began) / SPIN_SECONDS)


def committed_items(bed: Bed) -> int:
    ranges = StepRange.objects.for_tenant(bed.tenant.id)
    items = ranges.aggregate(n=Sum("end_item") - Sum("first_item"))["n"]
    assert items == ranges.aggregate(n=Max("end_item"))["n"]
    return int(items)


def largest_checkpoint(bed: Bed) -> int:
    documents = Checkpoint.objects.for_tenant(bed.tenant.id).values_list("document", flat=True)
    return max(len(document.encode()) for document in documents)
