"""What a person decided survives the death of the process that was to heed it."""

from typing import Any

import pytest

from tasks_app.models import Approval, SteeringCommand, Step
from tests.crash.bed import SLICE_POINTS, Bed
from tests.support import oracles

pytestmark = pytest.mark.crash

COMMANDS: list[tuple[str, dict[str, Any], str]] = [
    ("pause", {}, "paused"),
    ("cancel", {}, "cancelled"),
    ("adjust_goal", {"script": [{"op": "set", "values": {"new": True}}]}, "completed"),
]


@pytest.mark.parametrize(("kind", "payload", "status"), COMMANDS, ids=lambda value: str(value)[:12])
def test_accepted_command_outlives_the_worker(
    bed: Bed, kind: str, payload: dict[str, Any], status: str
) -> None:
    """Whoever takes the task over applies it before anything else runs."""
    task_id = bed.submit(bed.say(impure=True), bed.effect("never"), held=SLICE_POINTS)
    hit = bed.sync.walk(SLICE_POINTS, task_id, ("step.before", 1))
    assert bed.steer(task_id, kind, **payload).status == "pending"
    bed.kill(hit.pid)
    bed.sync.release(SLICE_POINTS, task_id)
    task = bed.wait_rest(task_id)
    assert task.status == status
    oracles.check_task(task)
    command = SteeringCommand.objects.for_tenant(bed.tenant.id).get(task_id=task_id)
    assert (command.status, task.steering_cursor) == ("applied", command.seq)
    assert bed.progress(task_id).runs == {}
    assert bed.outside.counts(str(task_id)) == {}


@pytest.mark.parametrize(
    "stop",
    [("effect.before", 1), ("effect.after_begin", 1), ("effect.after_call", 1)],
    ids=lambda stop: stop[0],
)
def test_approved_act_happens_once_through_a_crash(bed: Bed, stop: tuple[str, int]) -> None:
    """The approval is used up with the ledger's begin, and counts for the same act afterwards."""
    task_id = bed.submit({**bed.effect("asked"), "approve": True}, bed.say())
    assert bed.wait_rest(task_id).status == "input_required"
    approval = Approval.objects.for_tenant(bed.tenant.id).get(task_id=task_id)
    bed.sync.hold(SLICE_POINTS, task_id)
    seen = {name: len(bed.sync.hits(name, task_id)) for name in SLICE_POINTS}
    bed.approve(approval)
    hit = bed.sync.walk(SLICE_POINTS, task_id, stop, seen=seen)
    bed.kill(hit.pid)
    bed.sync.release(SLICE_POINTS, task_id)
    bed.check_completed(task_id, effects=1)
    found = Approval.objects.for_tenant(bed.tenant.id).get(task_id=task_id)
    assert (found.pk, found.status) == (approval.pk, "consumed")
    act = Step.objects.for_tenant(bed.tenant.id).get(task_id=task_id, kind="effect")
    assert act.status == "succeeded"
