"""Races in this process: real threads, each with a connection of its own, ordered by sync points."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks_app.engine import lease, session
from tests.support.engine import Engine
from tests.support.syncdir import SyncDir


@pytest.fixture
def engine(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    # Steps of tests take no time; a slice would look for commands only once.
    monkeypatch.setattr(session, "LOOK_SECONDS", 0.0)
    # A worker process has one keeper before it has a second thread that could make another.
    lease.keeper().wait_locked()
    yield Engine()
    lease.stop_keeper()


@pytest.fixture
def sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SyncDir]:
    """Sync points of this process."""
    folder = SyncDir(tmp_path / "sync")
    monkeypatch.setenv("RUNTIME_SYNCPOINT_DIR", str(folder.folder))
    yield folder
    folder.clear()
