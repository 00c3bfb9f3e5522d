"""Effects: entered before the call, settled with the result, never lost in doubt."""

from functools import wraps
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ledger_app.domain.effects import EffectState
from ledger_app.queries import EffectRow, list_effects
from tasks_app.workflows.scripted import Scripted
from tests.support.engine import Engine, lines


def effects_of(engine: Engine, task_id: UUID) -> list[EffectRow]:
    return list_effects(tenant_id=engine.tenant.id, task_id=task_id)


def test_key_is_the_same_at_every_try(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E-table keyed: after a failure that may have happened, the same key is sent again."""
    out = tmp_path / "out"
    original = Scripted.act

    @wraps(original)
    def flaky(self: Any, ctx: Any, operation: Any) -> Any:
        result = original(self, ctx, operation)
        if len(lines(out)) == 1:
            raise OSError("the answer was lost")
        return result

    monkeypatch.setattr(Scripted, "act", flaky)
    task_id = engine.submit({"op": "effect", "key": "k", "append": str(out)})
    task = engine.drive(task_id)
    assert task.status == "completed"
    assert lines(out) == [f"{task_id}:act"] * 2
    assert [(row.state, row.attempts) for row in effects_of(engine, task_id)] == [
        (EffectState.SUCCEEDED, 2)
    ]


def test_refused_act_fails_the_task_with_its_code(engine: Engine, tmp_path: Path) -> None:
    """A certain no is a failure, not a doubt; nothing is tried again."""
    task_id = engine.submit({"op": "effect", "key": "k", "refuse": True})
    task = engine.drive(task_id)
    assert (task.status, task.stop_reason, task.error["code"]) == (
        "failed",
        "effect_failed",
        "refused",
    )
    assert [row.state for row in effects_of(engine, task_id)] == [EffectState.FAILED]


def test_act_whose_outcome_stays_unknown_goes_to_a_person(engine: Engine) -> None:
    """E60: after the last try the effect is in doubt and the task is held; nothing is rerun."""
    task_id = engine.submit({"op": "effect", "key": "k", "post": "http://127.0.0.1:9/"})
    task = engine.drive(task_id)
    assert (task.status, task.error["code"]) == ("dead_lettered", "effect_in_doubt")
    assert [row.state for row in effects_of(engine, task_id)] == [EffectState.IN_DOUBT]
    assert engine.run(task_id) == "idle"
    engine.steer(task_id, "cancel")
    assert engine.task(task_id).status == "cancelled"


def test_replanned_act_is_another_act(engine: Engine, tmp_path: Path) -> None:
    """A later plan's act with other arguments has its own key; a finished one is not repeated."""
    a, b = tmp_path / "a", tmp_path / "b"
    task_id = engine.submit(
        {"op": "effect", "key": "k", "append": str(a)}, {"op": "interrupt", "value": "?"}
    )
    assert engine.drive(task_id).status == "input_required"
    engine.steer(
        task_id,
        "adjust_goal",
        payload={"script": [{"op": "effect", "key": "k", "append": str(b)}]},
    )
    assert engine.drive(task_id).status == "completed"
    assert lines(a) == [f"{task_id}:act"]
    assert lines(b) == [f"{task_id}:act@2"]
