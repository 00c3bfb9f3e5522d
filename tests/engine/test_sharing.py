"""E47: a slice ends soon while others wait, and late while nobody does."""

import time

import pytest
from pytest_django import Settings

from tasks_app.engine import lease, queue, session, slice_runner
from tasks_app.engine.session import SliceSession
from tasks_app.models import Slice
from tasks_app.workflows.scripted import Scripted
from tests.engine.test_claim_order import SAY, wait_since
from tests.support.engine import Engine


@pytest.fixture
def own(engine: Engine) -> SliceSession:
    """A slice that runs for two seconds already."""
    engine.submit(SAY)
    held = lease.claim(None)
    assert held is not None
    running = SliceSession(held, Scripted)
    running.spending.started_at -= 2
    running._asked_who_waits_at -= 2
    running.spending.steps = 1
    return running


def test_slice_goes_on_while_nobody_waits(engine: Engine, own: SliceSession) -> None:
    """A sleeping task does not wait."""
    wait_since(engine.submit(SAY), -60)
    assert not own.is_spent


def test_slice_ends_soon_while_somebody_waits(engine: Engine, own: SliceSession) -> None:
    """And it stays spent until it has handed on."""
    engine.submit(SAY)
    assert own.is_spent
    assert own.is_spent


def test_slice_without_a_step_does_not_share(engine: Engine, own: SliceSession) -> None:
    """Two tasks that give way to each other would never get on."""
    engine.submit(SAY)
    own.spending.steps = 0
    assert not own.is_spent


def test_young_slice_does_not_share(engine: Engine, own: SliceSession, settings: Settings) -> None:
    """Everybody has a second, however many wait."""
    engine.submit(SAY)
    settings.RUNTIME = {**settings.RUNTIME, "busy_slice_seconds": 3.0}
    assert not own.is_spent


def test_looking_costs_little(
    engine: Engine, own: SliceSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many safe points a slice passes, it looks twice a second."""
    looks = []
    monkeypatch.setattr(queue, "is_anybody_waiting", lambda **_: looks.append(1))
    until = time.monotonic() + 0.1
    while time.monotonic() < until:
        assert not own.is_spent
    assert len(looks) == 1


def test_two_long_tasks_take_turns(
    engine: Engine, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker, no second to spare: each task goes on by one step in its turn."""
    monkeypatch.setattr(session, "WAITING_LOOK_SECONDS", 0.0)
    settings.RUNTIME = {**settings.RUNTIME, "busy_slice_seconds": 0.0}
    first, second = [engine.submit(SAY, SAY, SAY) for _ in range(2)]
    while slice_runner.run_slice() != "idle":
        pass
    rows = Slice.objects.for_tenant(engine.tenant.id).order_by("id")
    assert [row.task_id for row in rows][:4] == [first, second, first, second]
    assert {engine.task(task_id).status for task_id in (first, second)} == {"completed"}
