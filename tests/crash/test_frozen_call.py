"""A worker freezes inside the author's own code, between the last look and the request."""

import os
import signal
from pathlib import Path

import pytest

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
