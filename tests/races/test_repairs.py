"""A repair against workers and against its own death: it happens whole, or not at all."""

from uuid import UUID

import pytest

from tasks_app.admission.repairs import Repaired
from tasks_app.engine import lease
from tasks_app.models import Outbox, Repair, Task
from tasks_app.syncpoints import SyncPointFailureError
from tests.races.actors import Actor, together
from tests.support import oracles
from tests.support.engine import Engine
from tests.support.syncdir import SyncDir


@pytest.fixture
def worn(engine: Engine) -> UUID:
    """Return a task that is held since its workers vanished too often."""
    task_id = engine.submit({"op": "say"})
    for _ in range(4):
        held = lease.claim(task_id)
        assert held is not None
        lease.release(held)
        engine.lose_lease(task_id)
    assert engine.task(task_id).status == "dead_lettered"
    return task_id


@pytest.mark.parametrize("verb", ["requeue", "fork", "close"])
def test_repair_that_dies_before_its_commit_leaves_nothing(
    engine: Engine, sync: SyncDir, worn: UUID, verb: str
) -> None:
    """Task, journal, audit, message, the new task of a fork: none of it is there."""
    before = engine.task(worn)
    sync.fail("repair.before_commit", 1)
    with pytest.raises(SyncPointFailureError):
        engine.repair(worn, verb)
    after = engine.task(worn)
    assert (after.status, after.state_version) == (before.status, before.state_version)
    assert (after.event_seq, after.held_at) == (before.event_seq, before.held_at)
    assert not Repair.objects.for_tenant(engine.tenant.id).exists()
    assert not Outbox.objects.for_tenant(engine.tenant.id).filter(task_id=worn).exists()
    assert Task.objects.for_tenant(engine.tenant.id).count() == 1
    engine.repair(worn, verb)
    oracles.check_task(engine.task(worn))


def test_worker_takes_the_task_only_after_the_commit(
    engine: Engine, sync: SyncDir, worn: UUID
) -> None:
    """Until then nothing is due; right after it several workers find one task, once."""
    sync.hold("repair.before_commit", worn)
    operator = Actor(lambda: engine.repair(worn, "requeue"))
    sync.wait_hit("repair.before_commit", worn)
    assert engine.run(worn) == "idle"
    sync.release("repair.before_commit", worn)
    assert isinstance(operator.result(), Repaired)
    outcomes = together([lambda: engine.run(worn)] * 3)
    assert sorted(outcomes) == ["completed", "idle", "idle"]
    oracles.check_task(engine.task(worn), at_rest=True)
