"""Functions under other code, and continued from an older checkpoint."""

from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel
from pytest_django import Settings

from tasks_app.admission import tasks
from tasks_app.engine import rewind
from tasks_app.workflows import FunctionContext, StepContext, durable_function, registry
from tests.engine.test_checkpoints import continue_from, damage, rows_of
from tests.support.engine import Engine


class Turns(BaseModel):
    """How many turns the function takes."""

    turns: int = 5


ran: list[int] = []


def work(ctx: StepContext, number: int) -> int:
    ran.append(number)
    return number


def install(version: int, **declared: Any) -> None:
    @durable_function(name="turning", version=version, **declared)
    def turning(ctx: FunctionContext, goal: Turns) -> int:
        first = ctx.step("first", work, 100)
        for turn in ctx.loop("turn", limit=goal.turns):
            turn.step("work", work, turn.index)
        return first


@pytest.fixture
def half_done(engine: Engine, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> UUID:
    monkeypatch.setattr(registry, "_known", dict(registry._known))
    settings.RUNTIME = {**settings.RUNTIME, "slice_steps": 2}
    ran.clear()
    install(1)
    made = tasks.admit_task(engine.submitter, workflow="turning", goal={}, source="code")
    assert [engine.run(made.task_id) for _ in range(2)] == ["slice_spent"] * 2
    return made.task_id


def test_function_goes_on_under_other_code_only_if_declared(
    engine: Engine, half_done: UUID
) -> None:
    """E80: a function has no plan to compare, so its author says what fits."""
    install(2)
    task = engine.drive(half_done)
    assert (task.status, task.stop_reason) == ("paused", "version_hold")
    assert task.error is not None
    assert task.error["reason"] == "not_compatible"
    install(2, compatible_with=(1,))
    engine.steer(half_done, "resume")
    task = engine.drive(half_done)
    assert (task.status, task.result, task.workflow_version) == ("completed", 100, 2)
    assert ran == [100, 0, 1, 2, 3, 4]


def test_function_continues_from_an_older_checkpoint(engine: Engine, half_done: UUID) -> None:
    """E60: finished turns are not run again, whichever checkpoint was chosen."""
    damage(rows_of(engine, half_done)[-1])
    assert engine.run(half_done) == "dead_lettered"
    good = [row for row in rewind.list_verified(engine.tenant.id, half_done) if not row.fault]
    continue_from(engine, half_done, good[-1].seq)
    assert engine.drive(half_done).status == "completed"
    assert ran == [100, 0, 1, 2, 3, 4]
