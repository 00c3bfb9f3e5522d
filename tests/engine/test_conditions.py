"""Steps that are left out: behind a condition, or after their last try."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tasks_app.models import Attempt, Event, Step
from tests.support import oracles
from tests.support.engine import Engine, lines


def statuses(engine: Engine, task_id: UUID) -> list[tuple[str, str]]:
    rows = Step.objects.for_tenant(engine.tenant.id).filter(task_id=task_id, retired_in=None)
    return list(rows.order_by("position").values_list("key", "status"))


def journal(engine: Engine, task_id: UUID) -> list[str]:
    rows = Event.objects.for_tenant(engine.tenant.id).filter(task_id=task_id, type="log")
    return [row.data["message"] for row in rows.order_by("seq")]


def script(go: Any, out: Path) -> list[dict[str, Any]]:
    """Every kind of step behind one condition."""
    return [
        {"op": "set", "values": {"go": go}},
        {"op": "say", "append": str(out), "when": "0.go"},
        {"op": "map", "count": 3, "append": str(out), "when": "0.go"},
        {"op": "effect", "key": "k", "append": str(out), "approve": True, "when": "0.go"},
        {"op": "interrupt", "when": "0.go"},
        {"op": "sleep", "s": 60, "when": "0.go"},
        {"op": "atomic", "append": str(out), "when": "0.go"},
        {"op": "set", "values": {"done": True}},
    ]


@pytest.mark.parametrize("go", [False, 0, None, "", [], {}])
def test_what_stands_behind_a_false_condition_is_skipped(
    engine: Engine, tmp_path: Path, go: Any
) -> None:
    """Whatever its kind: it does not run, the journal says so, and the task goes on behind it."""
    task_id = engine.submit(*script(go, tmp_path / "out"))
    task = engine.drive(task_id)
    assert (task.status, task.result) == ("completed", {"done": True})
    assert lines(tmp_path / "out") == []
    left_out = [key for key, status in statuses(engine, task_id) if status == "skipped"]
    assert len(left_out) == 9
    told = [m.split(" was skipped")[0] for m in journal(engine, task_id) if "condition" in m]
    assert told == left_out
    oracles.check_task(task)


def test_what_stands_behind_a_true_condition_is_done(engine: Engine, tmp_path: Path) -> None:
    """The condition is read when the step is reached."""
    task_id = engine.submit(*script("yes", tmp_path / "out"))
    assert engine.drive(task_id).status == "input_required"
    engine.approve(task_id)
    assert engine.drive(task_id).status == "input_required"
    engine.steer(task_id, "provide_input", payload={"answer": {}})
    assert engine.drive(task_id).status == "completed"
    assert {status for _, status in statuses(engine, task_id)} == {"succeeded"}
    assert len(lines(tmp_path / "out")) == 6


def test_result_of_a_skipped_step_is_none_to_those_behind_it(engine: Engine) -> None:
    """A condition on a skipped step does not hold either, also on a skipped map's."""
    task_id = engine.submit(
        {"op": "set", "values": {}},
        {"op": "map", "count": 3, "when": "0.go"},
        {"op": "say", "when": "1"},
    )
    task = engine.drive(task_id)
    assert (task.status, task.result) == ("completed", None)
    assert [status for _, status in statuses(engine, task_id)] == ["succeeded", *["skipped"] * 4]


def test_changed_condition_changes_the_steps_behind_it(engine: Engine, tmp_path: Path) -> None:
    """A new plan keeps a finished step only if its condition's origin is the same."""
    out = tmp_path / "out"
    behind = {"op": "say", "append": str(out), "when": "0.go"}
    asks = {"op": "interrupt"}
    task_id = engine.submit({"op": "set", "values": {"go": 1}}, behind, asks)
    assert engine.drive(task_id).status == "input_required"
    changed = [{"op": "set", "values": {"go": 2}}, behind, asks]
    engine.steer(task_id, "adjust_goal", payload={"script": changed})
    assert engine.drive(task_id).status == "input_required"
    assert len(lines(out)) == 2


# --- after the last try --------------------------------------------------------------------------


def test_step_that_may_be_skipped_is_skipped_after_its_last_try(
    engine: Engine, tmp_path: Path
) -> None:
    """E23: the error stays with the step, each try is a row, and the task goes on."""
    out = tmp_path / "out"
    task_id = engine.submit(
        {"op": "fail", "on_failure": "skip", "append": str(out)},
        {"op": "say", "when": "0"},
        {"op": "set", "values": {"done": True}},
    )
    task = engine.drive(task_id)
    assert (task.status, task.result) == ("completed", {"done": True})
    assert [status for _, status in statuses(engine, task_id)] == [*["skipped"] * 2, "succeeded"]
    assert len(lines(out)) == 3
    assert Attempt.objects.for_tenant(engine.tenant.id).filter(task_id=task_id).count() == 3
    failed = Step.objects.for_tenant(engine.tenant.id).get(task_id=task_id, position=0)
    assert "the script says so" in failed.error["message"]
    assert "fail_skipped was skipped: it failed" in journal(engine, task_id)
    oracles.check_task(task)


def test_step_that_asks_holds_the_task_and_runs_with_fresh_tries_afterwards(
    engine: Engine, tmp_path: Path
) -> None:
    """E23: a person decides; requeued, the step has all its tries again."""
    out = tmp_path / "out"
    task_id = engine.submit({"op": "fail", "on_failure": "ask", "append": str(out), "times": 5})
    task = engine.drive(task_id)
    assert (task.status, task.error["code"]) == ("dead_lettered", "step_failed")
    assert task.error["step"] == "fail_asking"
    assert "the script says so" in task.error["message"]
    assert len(lines(out)) == 3
    assert statuses(engine, task_id) == [("fail_asking", "planned")]
    engine.requeue(task_id)
    task = engine.drive(task_id)
    assert (task.status, task.result) == ("completed", {"tries": 6})
    assert Attempt.objects.for_tenant(engine.tenant.id).filter(task_id=task_id).count() == 5
