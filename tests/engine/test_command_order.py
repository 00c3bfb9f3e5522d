"""Commands keep their order through a worker's death: found by seeded schedules (tests/model)."""

from pathlib import Path
from uuid import UUID

from pytest_django import Settings

from tasks_app.admission.approvals import decide_approval
from tasks_app.engine import lease
from tasks_app.models import Approval, SteeringCommand
from tests.support import oracles
from tests.support.engine import Engine


def in_a_workers_hands(engine: Engine) -> UUID:
    """Return a task whose worker has claimed it and does nothing more."""
    task_id = engine.submit({"op": "say"})
    assert lease.claim(task_id) is not None
    return task_id


def decided(engine: Engine, task_id: UUID) -> list[tuple[str, str]]:
    rows = SteeringCommand.objects.for_tenant(engine.tenant.id).filter(task_id=task_id)
    return list(rows.order_by("seq").values_list("type", "status"))


def test_priority_does_not_hide_a_command_that_waits(engine: Engine) -> None:
    """It acts at once and comes later; the waiting command outlives the worker (model seed 1)."""
    task_id = in_a_workers_hands(engine)
    engine.steer(task_id, "cancel")
    engine.steer(task_id, "set_priority", payload={"priority": 1})
    assert engine.task(task_id).steering_cursor == 0
    engine.lose_lease(task_id)
    task = engine.drive(task_id)
    assert (task.status, task.steering_cursor) == ("cancelled", 2)
    assert decided(engine, task_id) == [("cancel", "applied"), ("set_priority", "applied")]
    oracles.check_task(task, at_rest=True)


def test_command_of_a_dead_worker_comes_before_the_next_one(engine: Engine) -> None:
    """While the task waits for another worker, nothing overtakes what was said (model seed 114)."""
    task_id = in_a_workers_hands(engine)
    engine.steer(task_id, "adjust_goal", payload={"note": "first"})
    engine.lose_lease(task_id)
    assert engine.task(task_id).status == "recovering"
    engine.steer(task_id, "adjust_goal", payload={"note": "second"})
    assert engine.task(task_id).goal["note"] == "second"
    task = engine.drive(task_id)
    assert (task.status, task.goal["note"]) == ("completed", "second")
    oracles.check_task(task, at_rest=True)


def test_command_after_a_waiting_cancel_is_told_that_the_task_has_ended(engine: Engine) -> None:
    """The earlier one ends the task; the later one is kept, and refused with its code."""
    task_id = in_a_workers_hands(engine)
    engine.steer(task_id, "cancel")
    engine.lose_lease(task_id)
    late = engine.steer(task_id, "pause")
    assert (late.status, late.rejection) == ("rejected", "task_terminal")
    task = engine.task(task_id)
    assert task.status == "cancelled"
    oracles.check_task(task, at_rest=True)


def test_cancel_that_waits_ends_a_task_that_would_be_held(
    engine: Engine, settings: Settings
) -> None:
    """E70: nobody holds the task any more, so what its person said is applied at once, in order."""
    settings.RUNTIME = {**settings.RUNTIME, "max_recoveries": 0}
    task_id = in_a_workers_hands(engine)
    engine.steer(task_id, "adjust_goal", payload={"note": "too late"})
    engine.steer(task_id, "cancel")
    engine.lose_lease(task_id)
    task = engine.task(task_id)
    assert (task.status, task.stop_reason, task.held_at) == ("cancelled", "user_cancelled", None)
    assert decided(engine, task_id) == [
        ("adjust_goal", "rejected"),
        ("cancel", "applied"),
    ]
    oracles.check_task(task, at_rest=True)


def test_other_commands_wait_for_the_repair_of_a_held_task(
    engine: Engine, settings: Settings
) -> None:
    """A person who only wanted something changed has not said how a broken task goes on."""
    settings.RUNTIME = {**settings.RUNTIME, "max_recoveries": 0}
    task_id = in_a_workers_hands(engine)
    engine.steer(task_id, "adjust_goal", payload={"note": "still wanted"})
    engine.lose_lease(task_id)
    assert engine.task(task_id).status == "dead_lettered"
    assert decided(engine, task_id) == [("adjust_goal", "pending")]
    engine.repair(task_id, "requeue")
    task = engine.drive(task_id)
    assert (task.status, task.goal["note"]) == ("completed", "still wanted")
    oracles.check_task(task, at_rest=True)


def test_decision_on_a_paused_task_is_audited_with_its_version(
    engine: Engine, tmp_path: Path
) -> None:
    """Every version has an entry that made it, also when nothing moves (model seed 121)."""
    task_id = engine.submit(
        {"op": "effect", "key": "k", "append": str(tmp_path / "out"), "approve": True}
    )
    engine.drive(task_id)
    engine.steer(task_id, "pause")
    asked = Approval.objects.for_tenant(engine.tenant.id).get(task_id=task_id)
    decide_approval(
        engine.approver,
        approval_id=asked.id,
        decision="approve",
        args_sha256=asked.args_sha256,
        expected_version=asked.version,
        reason="looks right",
        source="rest",
    )
    engine.steer(task_id, "resume")
    task = engine.drive(task_id)
    assert task.status == "completed"
    oracles.check_task(task, at_rest=True)
