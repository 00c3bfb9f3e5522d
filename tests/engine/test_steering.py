"""The six commands: accepted against one version, applied at a safe point or at once."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from pytest_django import Settings

from tasks_app.domain.errors import (
    CommandRejectedError,
    IdempotencyMismatchError,
    InvalidInputError,
    NotAllowedError,
    NotFoundError,
    TaskTerminalError,
    VersionConflictError,
    VersionRequiredError,
)
from tasks_app.models import SteeringCommand
from tasks_app.workflows.scripted import Scripted
from tests.support.engine import Engine, lines

During = Callable[[int, Callable[[], object]], None]


def command(engine: Engine, task_id: UUID) -> SteeringCommand:
    return SteeringCommand.objects.for_tenant(engine.tenant.id).get(task_id=task_id)


@pytest.fixture
def during(monkeypatch: pytest.MonkeyPatch) -> During:
    """Let a test act in the middle of a step: `during(n, act)` at the n-th executed operation."""
    plans: dict[int, Callable[[], object]] = {}
    original = Scripted.run
    seen: list[str] = []

    @wraps(original)
    def run(self: Any, ctx: Any, operation: Any) -> Any:
        seen.append(ctx.step_key)
        act = plans.pop(len(seen), None)
        if act is not None:
            act()
        return original(self, ctx, operation)

    monkeypatch.setattr(Scripted, "run", run)
    return lambda number, act: plans.update({number: act})


def test_pause_in_the_middle_stops_before_the_next_step(engine: Engine, during: During) -> None:
    """E73: pausing is accepted at once, takes effect at the safe point, resume goes on."""
    task_id = engine.submit(*[{"op": "say"} for _ in range(6)])
    during(3, lambda: engine.steer(task_id, "pause"))
    assert engine.run(task_id) == "paused"
    task = engine.task(task_id)
    assert (task.status, task.next_position, task.lease_owner) == ("paused", 3, None)
    assert command(engine, task_id).status == "applied"
    engine.steer(task_id, "resume")
    assert engine.drive(task_id).status == "completed"


def test_pause_shows_pausing_while_the_step_runs(engine: Engine, during: During) -> None:
    """M4: between acceptance and safe point the task is pausing and the version has grown."""
    task_id = engine.submit(*[{"op": "say"} for _ in range(3)])
    seen: list[tuple[str, str, int]] = []

    def look() -> Any:
        before = engine.task(task_id).state_version
        done = engine.steer(task_id, "pause")
        seen.append((engine.task(task_id).status, done.status, done.state_version - before))

    during(2, look)
    engine.run(task_id)
    assert seen == [("pausing", "pending", 1)]


def test_cancel_in_the_middle_stops_at_the_safe_point(
    engine: Engine, during: During, tmp_path: Path
) -> None:
    """M16.8: cancel during execution stops at a safe point with the reason recorded."""
    task_id = engine.submit(*[{"op": "say", "append": str(tmp_path / "ran")} for _ in range(6)])
    during(2, lambda: engine.steer(task_id, "cancel", reason="wrong folder"))
    assert engine.run(task_id) == "cancelled"
    task = engine.task(task_id)
    assert (task.status, task.stop_reason) == ("cancelled", "user_cancelled")
    assert len(lines(tmp_path / "ran")) == 2
    assert task.receipt_id is not None
    engine.assert_audit_verifies(task_id)


@pytest.mark.parametrize("state", ["queued", "paused", "input_required"])
def test_cancel_of_a_waiting_task_is_applied_at_once(engine: Engine, state: str) -> None:
    """E70: on a waiting task a command takes effect in the transaction that accepts it."""
    task_id = engine.submit({"op": "interrupt", "value": "?"})
    if state == "paused":
        engine.steer(task_id, "pause")
    if state == "input_required":
        engine.run(task_id)
    assert engine.task(task_id).status == state
    done = engine.steer(task_id, "cancel")
    assert (done.status, engine.task(task_id).status) == ("applied", "cancelled")
    assert engine.run(task_id) == "idle"


def test_command_without_version_or_with_an_old_one_changes_nothing(engine: Engine) -> None:
    """E6, U38: missing version 428, stale version 409 with where the task stands."""
    task_id = engine.submit({"op": "say"})
    version = engine.task(task_id).state_version
    engine.steer(task_id, "set_priority", payload={"priority": 2})
    with pytest.raises(VersionConflictError) as caught:
        engine.steer(task_id, "pause", expected_version=version)
    assert caught.value.fields["currentVersion"] == engine.task(task_id).state_version
    assert caught.value.fields["change"] == "set_priority"
    from tasks_app.admission.commands import submit_command

    with pytest.raises(VersionRequiredError):
        submit_command(
            engine.operator,
            task_id=task_id,
            command_id=uuid4(),
            type="pause",
            payload={},
            expected_version=None,
            reason="r",
            source="rest",
        )
    assert engine.task(task_id).status == "queued"
    assert SteeringCommand.objects.for_tenant(engine.tenant.id).count() == 1


def test_same_command_id_is_the_same_command(engine: Engine) -> None:
    """M9: a repeated command returns its first outcome; another payload under the id is refused."""
    task_id = engine.submit({"op": "say"})
    command_id, version = uuid4(), engine.task(task_id).state_version
    same: dict[str, Any] = {"command_id": command_id, "expected_version": version}
    first = engine.steer(task_id, "pause", **same)
    again = engine.steer(task_id, "pause", **same)
    assert (first.replayed, again.replayed) == (False, True)
    assert again.command_id == first.command_id
    with pytest.raises(IdempotencyMismatchError):
        engine.steer(task_id, "resume", **same)
    assert SteeringCommand.objects.for_tenant(engine.tenant.id).count() == 1


def test_rights_decide_who_steers(engine: Engine) -> None:
    """Section 2: submitters steer their own, operators all, approvers none; strangers see nothing."""
    task_id = engine.submit({"op": "say"})
    engine.steer(task_id, "pause", by=engine.submitter)
    with pytest.raises(NotAllowedError):
        engine.steer(task_id, "resume", by=engine.approver)
    with pytest.raises(NotFoundError):
        engine.steer(task_id, "resume", by=engine.person("submitter"))
    with pytest.raises(InvalidInputError):
        engine.steer(task_id, "resume", reason="  ")


def test_terminal_task_takes_no_command(engine: Engine) -> None:
    """E74: a task that has ended refuses, with its code."""
    task_id = engine.submit({"op": "say"})
    engine.drive(task_id)
    with pytest.raises(TaskTerminalError):
        engine.steer(task_id, "pause")


def test_priority_decides_which_task_is_next(engine: Engine) -> None:
    """P25: set_priority acts on the queue although the old message still sits there."""
    first = engine.submit({"op": "say"})
    second = engine.submit({"op": "say"})
    engine.steer(second, "set_priority", payload={"priority": 0})
    engine.run(first)
    assert engine.task(second).status == "completed"
    assert engine.task(first).status == "queued"


def test_question_is_answered_by_provide_input(engine: Engine) -> None:
    """An answer must fit the schema; without a question the command is refused."""
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    task_id = engine.submit({"op": "interrupt", "value": "How many?", "answer": schema})
    with pytest.raises(CommandRejectedError) as caught:
        engine.steer(task_id, "provide_input", payload={"answer": {"n": 1}})
    assert caught.value.code == "no_open_question"
    assert engine.drive(task_id).status == "input_required"
    with pytest.raises(InvalidInputError) as wrong:
        engine.steer(task_id, "provide_input", payload={"answer": {"n": "x"}})
    assert wrong.value.errors[0].pointer == "/payload/answer/n"
    engine.steer(task_id, "provide_input", payload={"answer": {"n": 3}})
    assert engine.drive(task_id).result == {"n": 3}


def test_paused_question_is_still_asked_after_resume(engine: Engine) -> None:
    """E73, edge input_required ↔ paused: pausing a question does not answer it."""
    task_id = engine.submit({"op": "interrupt", "value": "?"})
    engine.drive(task_id)
    engine.steer(task_id, "pause")
    assert engine.task(task_id).status == "paused"
    engine.steer(task_id, "resume")
    assert engine.task(task_id).status == "input_required"


def test_paused_timer_keeps_its_time(engine: Engine) -> None:
    """A pause does not shorten or forget a sleep."""
    task_id = engine.submit({"op": "sleep", "s": 3600}, {"op": "say"})
    assert engine.run(task_id) == "sleeping"
    wake = engine.task(task_id).next_wake_at
    engine.steer(task_id, "pause")
    engine.steer(task_id, "resume")
    task = engine.task(task_id)
    assert (task.status, task.next_wake_at) == ("queued", wake)


def test_adjust_goal_keeps_finished_items_of_a_map(
    engine: Engine, settings: Settings, tmp_path: Path
) -> None:
    """E72: items that did not change keep their results; only new work is done."""
    settings.RUNTIME = {**settings.RUNTIME, "slice_steps": 40}
    ran = tmp_path / "ran"
    operation = {"op": "map", "count": 100, "append": str(ran)}
    task_id = engine.submit(operation)
    engine.run(task_id)
    done = len(lines(ran))
    assert 30 <= done < 100
    skipped = {**operation, "skip": [0, 1, 99]}
    engine.steer(task_id, "adjust_goal", payload={"script": [skipped]})
    task = engine.drive(task_id)
    expected = sum(n * n for n in range(100) if n not in {0, 1, 99})
    assert task.result == {"count": 97, "failed": 0, "total": expected}
    assert task.plan_version == 2
    counted = [int(line) for line in lines(ran)]
    assert len(counted) == len(set(counted)), "an item was processed twice"
    assert 99 not in counted


def test_adjust_goal_in_the_middle_keeps_finished_steps(
    engine: Engine, during: During, tmp_path: Path
) -> None:
    """E72: finished steps whose inputs are unchanged are not run again."""
    ran = str(tmp_path / "ran")
    script = [{"op": "say", "text": str(n), "append": ran} for n in range(6)]
    task_id = engine.submit(*script)
    changed = [*script[:5], {"op": "say", "text": "new", "append": ran}]
    during(3, lambda: engine.steer(task_id, "adjust_goal", payload={"script": changed}))
    task = engine.drive(task_id)
    assert (task.status, task.plan_version) == ("completed", 2)
    assert task.result == {"said": "new"}
    assert len(lines(tmp_path / "ran")) == 6


def test_adjust_goal_with_a_bad_goal_changes_nothing(engine: Engine) -> None:
    """The merged goal must fit the workflow; limits and rights are out of reach (S15)."""
    task_id = engine.submit({"op": "say"})
    for payload, error in (
        ({"script": 5}, InvalidInputError),
        ({"refuse_goal": True}, InvalidInputError),
        ({}, InvalidInputError),
        ({"budget": {"steps": 1}}, NotAllowedError),
    ):
        with pytest.raises(error):
            engine.steer(task_id, "adjust_goal", payload=payload)
    with pytest.raises(InvalidInputError) as caught:
        engine.steer(task_id, "adjust_goal", payload={"colour": 1})
    assert [problem.pointer for problem in caught.value.errors] == ["/payload/colour"]
    task = engine.task(task_id)
    assert (task.plan_version, task.goal["script"][0]["op"]) == (1, "say")


def test_adjust_goal_that_changes_nothing_in_the_plan_keeps_the_open_question(
    engine: Engine,
) -> None:
    """A note in the goal does not touch the plan: the question stays, under a new plan version."""
    task_id = engine.submit({"op": "interrupt", "value": "?"})
    engine.drive(task_id)
    engine.steer(task_id, "adjust_goal", payload={"note": "be brief"})
    task = engine.drive(task_id)
    assert (task.status, task.plan_version, task.goal["note"]) == ("input_required", 2, "be brief")


def test_versions_are_dense_in_the_audit(engine: Engine) -> None:
    """O3: every grown version is one step from the one before."""
    task_id = engine.submit({"op": "interrupt", "value": "?"})
    engine.drive(task_id)
    engine.steer(task_id, "pause")
    engine.steer(task_id, "resume")
    engine.steer(task_id, "provide_input", payload={"answer": {}})
    engine.drive(task_id)
    import json

    from ledger_app.models import AuditEntry

    grown = []
    for entry in AuditEntry.objects.filter(stream=f"task:{task_id}").order_by("seq"):
        envelope = json.loads(entry.envelope)
        if envelope["action"].startswith("task.") and envelope.get("new_version"):
            grown.append(envelope["new_version"])
    assert grown == sorted(grown)
    assert engine.task(task_id).state_version == grown[-1]
