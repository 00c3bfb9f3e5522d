"""The schedules that expose a wrong run, with processes that are killed or frozen (S8, S15, S18)."""

from typing import Any
from uuid import UUID

import pytest

from ledger_app.queries import total_usage
from tasks_app.admission import runs, threads
from tasks_app.domain.run_bodies import parse
from tasks_app.models import Event
from tests.crash.bed import Bed
from tests.support import evidence, oracles, outside_oracles

pytestmark = pytest.mark.crash

SPEND = {"op": "say", "tokens": [10, 2], "call_id": "one", "impure": True}
SAY = {"op": "say", "text": "hello", "impure": True}


@pytest.fixture(autouse=True)
def thread(bed: Bed) -> None:
    threads.create_thread(bed.submitter, key="talk", metadata={})


def start(bed: Bed, *script: dict[str, Any], **more: Any) -> UUID:
    body = {"assistant_id": "scripted", "input": {"script": list(script)}, **more}
    return runs.create_run(bed.submitter, thread_key="talk", body=parse(body)).task_id


def tokens(bed: Bed, task_id: UUID) -> int:
    used = total_usage(tenant_id=bed.tenant.id, task_ids=[task_id])
    return sum(row.input_tokens + row.output_tokens for row in used)


def test_s08_f2_a_frozen_worker_changes_nothing_after_the_take_over(bed: Bed) -> None:
    """S8: it wakes after its successor has finished, and not one row of the run differs."""
    bed.sync.hold("step.before_commit", at=[1])
    task_id = start(
        bed, SPEND, bed.effect("act"), {"op": "write", "path": "outputs/a.txt", "text": "a"},
        {"op": "present", "paths": ["outputs"]},
    )  # fmt: skip
    hit = bed.sync.wait_hit("step.before_commit", task_id)
    with bed.frozen(hit.pid):
        bed.sync.release("step.before_commit")
        task = bed.check_completed(task_id, effects=1)
        rows = evidence.rows_of(task_id)
    # The server may have ended its transaction meanwhile, which the slice takes for a crash.
    assert bed.wait_outcome(task_id, hit) in {"lost", "crashed"}
    assert evidence.rows_of(task_id) == rows
    assert task.fence > hit.fence
    assert tokens(bed, task_id) == 12
    events = Event.objects.for_tenant(bed.tenant.id).filter(task_id=task_id)
    assert events.filter(type="terminal").count() == events.filter(type="delivery").count() == 1
    outside_oracles.check_outside(task, bed.outside.counts(str(task_id)), expected=1)


@pytest.mark.parametrize("point", ["step.before_commit", "step.after_commit"])
def test_s15_usage_counts_once_whatever_is_run_again(bed: Bed, point: str) -> None:
    """S15: killed before or after the commit that records it; the total is the same."""
    bed.sync.hold(point, at=[1])
    task_id = start(bed, SPEND, SAY)
    bed.kill(bed.sync.wait_hit(point, task_id).pid)
    bed.sync.release(point)
    task = bed.check_completed(task_id, effects=0)
    assert task.recoveries_total == 1
    assert tokens(bed, task_id) == 12


def test_s18_the_slot_outlives_the_worker(bed: Bed) -> None:
    """S18: the worker dies right after the end of its run; those who wait go on in order."""
    bed.sync.hold("finish.after_terminal", at=[1])
    first, second, third, fourth = (start(bed, SAY, multitask_strategy="enqueue") for _ in range(4))
    hit = bed.sync.wait_hit("finish.after_terminal", first)
    runs.cancel_run(bed.submitter, task_id=third, action="interrupt")
    bed.kill(hit.pid)
    bed.sync.release("finish.after_terminal")
    ended = [bed.wait_rest(task_id) for task_id in (first, second, fourth)]
    assert [task.status for task in ended] == ["completed"] * 3
    times = [task.finished_at for task in ended]
    assert times == sorted(times)  # type: ignore[type-var]
    assert bed.sync.hits("build.before", third) == []
    oracles.check_all(bed.tenant.id)
