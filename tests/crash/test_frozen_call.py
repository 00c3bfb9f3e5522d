"""A worker freezes, or is cut off, inside the author's own code, right before its request."""

import os
import signal
from pathlib import Path

import pytest
from django.db import connection

from tests.crash.bed import Bed
from tests.support import outside_oracles

pytestmark = pytest.mark.crash


@pytest.mark.parametrize("kind", ["keyed", "queryable"])
def test_worker_frozen_before_its_request_does_not_send_it_when_it_wakes(
    bed: Bed, tmp_path: Path, kind: str
) -> None:
    """Another has asked, found nothing and acted meanwhile: a late request would be a second act."""
    go_on = tmp_path / "go-on"
    act = {**bed.effect("act"), "kind": kind, "after": str(go_on)}
    task_id = bed.submit(act)
    hit = bed.sync.wait_hit("step.before", task_id)
    os.kill(hit.pid, signal.SIGSTOP)
    try:
        bed.wait(lambda: bed.task(task_id).fence > hit.fence + 1, "the take-over")
        go_on.touch()
        task = bed.wait_rest(task_id)
    finally:
        os.kill(hit.pid, signal.SIGCONT)
    assert bed.wait_outcome(task_id, hit) == "lost"
    assert task.status == "completed", task.error
    counts = bed.outside.counts(str(task_id))
    outside_oracles.check_outside(task, counts, expected=1)
    assert [count.requests for count in counts.values()] == [1]


def test_worker_that_only_lost_its_lock_is_not_overtaken_in_a_call(
    bed: Bed, tmp_path: Path
) -> None:
    """The session that proves its life is cut; nobody asks about a call that it may still make."""
    go_on = tmp_path / "go-on"
    task_id = bed.submit({**bed.effect("act"), "kind": "queryable", "after": str(go_on)})
    hit = bed.sync.wait_hit("step.before", task_id)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN tasks_app_task t"
            " ON (l.classid::bigint << 32 | l.objid::bigint) = t.lease_lock"
            " WHERE t.id = %s AND l.locktype = 'advisory' AND l.objsubid = 1",
            [task_id],
        )
        assert cursor.fetchone() == (True,)
    bed.fleet.owner_of(hit.pid).wait_record(
        lambda record: record["event"] == "lease.renewal_failed", "that it was cut off"
    )
    go_on.touch()
    task = bed.check_completed(task_id, effects=1)
    counts = bed.outside.counts(str(task_id))
    assert [count.requests for count in counts.values()] == [1]
    assert task.recoveries_total == 0
