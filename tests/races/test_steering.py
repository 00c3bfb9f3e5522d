"""A person's command against a worker, at each moment where the order matters."""

from pathlib import Path
from uuid import UUID

import pytest

from tasks_app.domain.errors import TaskTerminalError
from tasks_app.models import Slice
from tests.races.actors import Actor
from tests.support import evidence, oracles
from tests.support.engine import Engine, lines
from tests.support.syncdir import SyncDir

RESTING = {"cancel": "cancelled", "pause": "paused"}


def submit(engine: Engine, folder: Path) -> UUID:
    return engine.submit(
        {"op": "say", "append": str(folder / "ran")},
        {"op": "effect", "key": "act", "append": str(folder / "acts")},
    )


@pytest.mark.parametrize("kind", RESTING)
def test_command_before_the_claim(engine: Engine, sync: SyncDir, tmp_path: Path, kind: str) -> None:
    """The message is on its way already; the claim finds nothing due (S4)."""
    task_id = submit(engine, tmp_path)
    sync.hold("claim.before")
    worker = Actor(lambda: engine.run(task_id))
    sync.wait_hit("claim.before", task_id)
    assert engine.steer(task_id, kind).status == "applied"
    sync.release("claim.before")
    assert worker.result() == "idle"
    task = engine.task(task_id)
    assert (task.status, task.fence) == (RESTING[kind], 0)
    assert lines(tmp_path / "ran") == []
    oracles.check_audit(evidence.of(task))
    oracles.check_ended(evidence.of(task))


@pytest.mark.parametrize("kind", RESTING)
def test_command_right_after_the_claim(
    engine: Engine, sync: SyncDir, tmp_path: Path, kind: str
) -> None:
    """The worker has the task but nothing has run: nothing runs (S5)."""
    task_id = submit(engine, tmp_path)
    sync.hold("claim.after")
    worker = Actor(lambda: engine.run(task_id))
    sync.wait_hit("claim.after", task_id)
    assert engine.steer(task_id, kind).status == "pending"
    sync.release("claim.after")
    assert worker.result() == RESTING[kind]
    task = engine.task(task_id)
    assert task.status == RESTING[kind]
    assert lines(tmp_path / "ran") == []
    assert sync.hits("step.before", task_id) == []
    oracles.check_task(task)


@pytest.mark.parametrize("kind", RESTING)
def test_command_before_an_act_stops_it(
    engine: Engine, sync: SyncDir, tmp_path: Path, kind: str
) -> None:
    """Accepted before the ledger's begin: the act is not begun (E20, E71)."""
    task_id = submit(engine, tmp_path)
    sync.hold("effect.before")
    worker = Actor(lambda: engine.run(task_id))
    sync.wait_hit("effect.before", task_id)
    engine.steer(task_id, kind)
    sync.release("effect.before")
    assert worker.result() == RESTING[kind]
    assert lines(tmp_path / "acts") == []
    assert sync.hits("effect.after_begin", task_id) == []
    oracles.check_task(engine.task(task_id))


@pytest.mark.parametrize("kind", RESTING)
def test_command_during_an_act_waits_for_its_end(
    engine: Engine, sync: SyncDir, tmp_path: Path, kind: str
) -> None:
    """Begun before the command: it happens once, is settled, and then the task stops (E71)."""
    task_id = submit(engine, tmp_path)
    sync.hold("effect.after_begin")
    worker = Actor(lambda: engine.run(task_id))
    sync.wait_hit("effect.after_begin", task_id)
    engine.steer(task_id, kind)
    sync.release("effect.after_begin")
    assert worker.result() == RESTING[kind]
    task = engine.task(task_id)
    assert task.status == RESTING[kind]
    assert len(lines(tmp_path / "acts")) == 1
    oracles.check_task(task)
    if kind == "pause":
        engine.steer(task_id, "resume")
        assert engine.drive(task_id).status == "completed"
        assert len(lines(tmp_path / "acts")) == 1


@pytest.mark.parametrize("kind", RESTING)
def test_command_before_completion_wins(
    engine: Engine, sync: SyncDir, tmp_path: Path, kind: str
) -> None:
    """Accepted means heeded: the task does not complete over a person's head (S7)."""
    task_id = submit(engine, tmp_path)
    sync.hold("finish.before_receipt")
    worker = Actor(lambda: engine.run(task_id))
    sync.wait_hit("finish.before_receipt", task_id)
    engine.steer(task_id, kind)
    sync.release("finish.before_receipt")
    assert worker.result() == RESTING[kind]
    task = engine.task(task_id)
    assert task.status == RESTING[kind]
    oracles.check_task(task)


def test_command_during_completion_is_refused(
    engine: Engine, sync: SyncDir, tmp_path: Path
) -> None:
    """The completing transaction holds the row; the person hears that the task has ended (S7)."""
    task_id = submit(engine, tmp_path)
    version = engine.task(task_id).state_version
    sync.hold("finish.before_terminal")
    worker = Actor(lambda: engine.run(task_id))
    sync.wait_hit("finish.before_terminal", task_id)
    person = Actor(lambda: engine.steer(task_id, "cancel", expected_version=version))
    sync.release("finish.before_terminal")
    assert worker.result() == "completed"
    assert isinstance(person.result(), TaskTerminalError)
    task = engine.task(task_id)
    assert task.status == "completed"
    oracles.check_task(task)
    assert Slice.objects.for_tenant(engine.tenant.id).get().outcome == "completed"
