"""Parents and children against each other: nobody sleeps on, nobody holds the other up."""

from typing import Any
from uuid import UUID

from runtime_project.local.processes import wait_until
from tasks_app.engine import slice_runner
from tasks_app.models import Task
from tests.races.actors import PATIENCE_SECONDS, Actor, row_held, waiting
from tests.support.engine import Engine
from tests.support.syncdir import SyncDir


def family(engine: Engine, *script: dict[str, Any]) -> tuple[UUID, UUID]:
    """Return a parent that waits, and the child that it waits for."""
    parent_id = engine.submit({"op": "task", "script": list(script) or [{"op": "say"}]})
    assert engine.run(parent_id) == "child"
    child: Task = Task.objects.for_tenant(engine.tenant.id).get(parent_id=parent_id)
    return parent_id, child.id


def test_child_that_ends_while_its_parent_is_about_to_wait(engine: Engine, sync: SyncDir) -> None:
    """The parent has read its child at work and holds its row: the wake-up waits for that row."""
    parent_id, child_id = family(engine)
    engine.steer(parent_id, "pause")
    engine.steer(parent_id, "resume")
    passed = len(sync.hits("step.before_commit", parent_id))
    sync.hold("step.before_commit", parent_id)
    parent = Actor(lambda: slice_runner.run_slice(parent_id))
    sync.wait_hit("step.before_commit", parent_id, count=passed + 1)
    child = Actor(lambda: slice_runner.run_slice(child_id))
    assert wait_until(lambda: waiting() == 1, seconds=PATIENCE_SECONDS)
    assert engine.task(child_id).status == "completed"
    sync.release("step.before_commit", parent_id)
    assert (parent.result(), child.result()) == ("child", "completed")
    assert engine.task(parent_id).next_wake_at is not None
    assert engine.drive(parent_id).status == "completed"


def test_parent_cancelled_while_its_child_ends(engine: Engine) -> None:
    """Both want the parent's row, in either order; each ends, and nobody waits for the other."""
    for _ in range(3):
        parent_id, child_id = family(engine)
        with row_held(parent_id, until_waiting=2):
            steered = Actor(lambda task_id=parent_id: engine.steer(task_id, "cancel"))  # type: ignore[misc]
            ended = Actor(lambda task_id=child_id: slice_runner.run_slice(task_id))  # type: ignore[misc]
        assert steered.result().status == "applied"
        assert ended.result() == "completed"
        assert engine.task(parent_id).status == "cancelled"


def test_cancelling_parent_and_finishing_child_never_deadlock(engine: Engine) -> None:
    """The child's row is held while its parent is cancelled: the child is told after that commit."""
    parent_id, child_id = family(engine)
    with row_held(child_id, until_waiting=1):
        steered = Actor(lambda: engine.steer(parent_id, "cancel"))
        # Neither the command nor the parent's worker waits for the child's row.
        closing = wait_until(
            lambda: engine.task(parent_id).closing_as == "cancelled", seconds=PATIENCE_SECONDS
        )
        assert closing
        assert engine.run(parent_id) == "child"
    assert steered.result().status == "applied"
    assert engine.task(child_id).stop_reason == "parent_ended"
    assert engine.drive(parent_id).status == "cancelled"


def test_cancelled_parent_ends_after_the_child_that_a_worker_holds(
    engine: Engine, sync: SyncDir
) -> None:
    """R61: the child comes to its safe point first, and whoever waits sees no earlier end."""
    parent_id, child_id = family(engine)
    sync.hold("step.before", child_id)
    child = Actor(lambda: slice_runner.run_slice(child_id))
    sync.wait_hit("step.before", child_id)
    engine.steer(parent_id, "cancel")
    assert engine.run(parent_id) == "child"
    assert engine.task(parent_id).status == "queued"
    sync.release("step.before", child_id)
    assert child.result() == "cancelled"
    assert engine.drive(parent_id).status == "cancelled"
    assert engine.end_of(parent_id) > engine.end_of(child_id)
