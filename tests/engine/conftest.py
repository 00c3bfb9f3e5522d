"""Engine tests drive real slices in this process, on real PostgreSQL, with real commits."""

from collections.abc import Iterator

import pytest

from tasks_app.engine import lease, session
from tasks_app.workflows import registry
from tests.support import functions
from tests.support.engine import Engine


@pytest.fixture(autouse=True)
def _look_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    # Steps of tests take no time; a slice would look for commands only once.
    monkeypatch.setattr(session, "LOOK_SECONDS", 0.0)


@pytest.fixture
def engine(transactional_db: None) -> Iterator[Engine]:
    yield Engine()
    lease.stop_keeper()


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what the test registers, and what ran before it."""
    monkeypatch.setattr(registry, "_known", dict(registry._known))
    functions.RUNS.clear()
