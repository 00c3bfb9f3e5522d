"""Effects: entered before the call, settled with the result, never lost in doubt."""

from ledger_app.domain.effects import EffectState
from ledger_app.queries import list_effects
from tasks_app.workflows.scripted import Scripted


def lines(path):
    return path.read_text().splitlines() if path.exists() else []


def effects_of(engine, task_id):
    return list_effects(tenant_id=engine.tenant.id, task_id=task_id)


def test_key_is_the_same_at_every_try(engine, tmp_path, monkeypatch):
    """E-table keyed: after a failure that may have happened, the same key is sent again."""
    out = tmp_path / "out"
    original = Scripted.act

    def flaky(self, ctx, operation):
        result = original(self, ctx, operation)
        if len(lines(out)) == 1:
            raise OSError("the answer was lost")
        return result

    flaky.__wrapped__ = original
    flaky.__durable_step__ = original.__durable_step__
    monkeypatch.setattr(Scripted, "act", flaky)
    task_id = engine.submit({"op": "effect", "key": "k", "append": str(out)})
    task = engine.drive(task_id)
    assert task.status == "completed"
    assert lines(out) == [f"{task_id}:act"] * 2
    assert [(row.state, row.attempts) for row in effects_of(engine, task_id)] == [
        (EffectState.SUCCEEDED, 2)
    ]


def test_refused_act_fails_the_task_with_its_code(engine, tmp_path):
    """A certain no is a failure, not a doubt; nothing is tried again."""
    task_id = engine.submit({"op": "effect", "key": "k", "refuse": True})
    task = engine.drive(task_id)
    assert (task.status, task.stop_reason, task.error["code"]) == (
        "failed",
        "effect_failed",
        "refused",
    )
    assert [row.state for row in effects_of(engine, task_id)] == [EffectState.FAILED]


def test_act_whose_outcome_stays_unknown_goes_to_a_person(engine):
    """E60: after the last try the effect is in doubt and the task is held; nothing is rerun."""
    task_id = engine.submit({"op": "effect", "key": "k", "post": "http://127.0.0.1:9/"})
    task = engine.drive(task_id)
    assert (task.status, task.error["code"]) == ("dead_lettered", "effect_in_doubt")
    assert [row.state for row in effects_of(engine, task_id)] == [EffectState.IN_DOUBT]
    assert engine.run(task_id) == "idle"
    engine.steer(task_id, "cancel")
    assert engine.task(task_id).status == "cancelled"


def test_replanned_act_is_another_act(engine, tmp_path):
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
