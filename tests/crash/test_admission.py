"""The process that admits a task dies right after its commit."""

import json
from typing import Any

import pytest

from tasks_app.admission import tasks
from tasks_app.models import Task
from tests.crash.bed import Bed
from tests.support.workers import ProjectProcess

pytestmark = pytest.mark.crash


def admitting(bed: Bed, goal: dict[str, Any]) -> ProjectProcess:
    user = str(bed.submitter.user_id)
    command = ["-m", "tests.crash.admitting", str(bed.tenant.id), user, json.dumps(goal)]
    return ProjectProcess("admitting", bed.folder, command, bed.fleet.env)


def test_task_of_a_killed_admitting_process_runs_once(bed: Bed) -> None:
    """The commit is the admission: without the message and the caller the task still runs (S3)."""
    goal = {"script": [bed.say(impure=True), bed.effect("only")]}
    bed.sync.hold("claim.before")
    bed.sync.hold("admit.after_commit")
    process = admitting(bed, goal)
    rows = Task.objects.for_tenant(bed.tenant.id)
    bed.wait(lambda: rows.exists(), "the commit of the admission")
    task_id = rows.get().id
    bed.sync.wait_hit("admit.after_commit", task_id)
    process.kill_group()
    bed.flush_redis()
    bed.sync.release(("claim.before", "admit.after_commit"))
    bed.check_completed(task_id, effects=1)
    again = tasks.admit_task(
        bed.submitter, workflow="scripted", goal=goal, source="rest", idempotency_key="once"
    )
    assert (again.task_id, again.replayed) == (task_id, True)


def test_killed_before_the_commit_nothing_exists(bed: Bed) -> None:
    """What was not committed was not admitted, and nobody runs it."""
    bed.sync.hold("admit.before_insert")
    process = admitting(bed, {"script": [bed.effect("never")]})
    bed.sync.wait_hit("admit.before_insert")
    process.kill_group()
    assert not Task.objects.for_tenant(bed.tenant.id).exists()
