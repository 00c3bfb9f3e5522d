"""Repairing held tasks: what each verb changes, and that nothing happens a second time (E60, E61)."""

import json
from functools import wraps
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from pytest_django import Settings

from ledger_app.domain.effects import EffectState
from ledger_app.models import AuditEntry
from ledger_app.queries import EffectRow, find_receipt, list_effects
from tasks_app.domain.errors import (
    IdempotencyMismatchError,
    InvalidInputError,
    NotAllowedError,
    RuntimeFault,
    TaskTerminalError,
    VersionConflictError,
    VersionRequiredError,
)
from tasks_app.engine import lease
from tasks_app.models import Event, Membership, Repair
from tasks_app.queries.snapshot import get_snapshot
from tasks_app.workflows.scripted import Scripted
from tests.support import oracles
from tests.support.damage import damage_all, damage_newest, remove_newest
from tests.support.engine import Engine, lines


def effect_of(engine: Engine, task_id: UUID) -> EffectRow:
    (row,) = list_effects(tenant_id=engine.tenant.id, task_id=task_id)
    return row


def verbs(engine: Engine, task_id: UUID) -> tuple[str, ...]:
    hold = get_snapshot(engine.operator, task_id).hold
    assert hold is not None
    return hold.verbs


def refused(code: str) -> Any:
    return pytest.raises(RuntimeFault, check=lambda fault: fault.code == code)


@pytest.fixture
def damaged(engine: Engine, settings: Settings, tmp_path: Path) -> UUID:
    """Return a task that is held since the newer of its two checkpoints was changed."""
    settings.RUNTIME = {**settings.RUNTIME, "slice_steps": 5}
    task_id = engine.submit(*[{"op": "say", "append": str(tmp_path / "ran")} for _ in range(14)])
    assert [engine.run(task_id), engine.run(task_id)] == ["slice_spent"] * 2
    damage_newest(task_id)
    assert engine.run(task_id) == "dead_lettered"
    return task_id


@pytest.fixture
def doubtful(engine: Engine, tmp_path: Path) -> UUID:
    """Return a task that is held since nobody knows whether its act has happened."""
    task_id = engine.submit(
        {"op": "effect", "key": "k", "post": "http://127.0.0.1:9/"},
        {"op": "say", "append": str(tmp_path / "after")},
    )
    assert engine.drive(task_id).status == "dead_lettered"
    return task_id


@pytest.fixture
def worn(engine: Engine) -> UUID:
    """Return a task that is held since its workers vanished too often."""
    task_id = engine.submit({"op": "say"})
    wear_out(engine, task_id)
    return task_id


def wear_out(engine: Engine, task_id: UUID) -> None:
    """Let a task's workers vanish until it is held."""
    for _ in range(4):
        held = lease.claim(task_id)
        assert held is not None
        lease.release(held)
        engine.lose_lease(task_id)
    assert engine.task(task_id).status == "dead_lettered"


# --- continue_from --------------------------------------------------------------------------
def test_damaged_checkpoint_is_replaced_by_an_older_one(
    engine: Engine, damaged: UUID, tmp_path: Path
) -> None:
    """E60: a person chooses the one before; finished steps are not run again; all is audited."""
    assert verbs(engine, damaged) == ("continue_from", "fork", "close")
    done = engine.repair(damaged, "continue_from", checkpoint=1)
    task = engine.task(damaged)
    assert (done.status, task.status, task.error, task.held_at) == ("queued", "queued", None, None)
    assert task.checkpoint_seq == 3
    assert engine.drive(damaged).status == "completed"
    assert len(lines(tmp_path / "ran")) == 14
    (entry,) = [e for e in audit_of(damaged) if e["action"] == "task.repaired"]
    assert entry["actor"] == engine.operator.actor
    engine.assert_audit_verifies(damaged)


def test_newest_good_checkpoint_is_the_default(engine: Engine, damaged: UUID) -> None:
    """Without a number the newest one that can be trusted is taken; a removed one is no hindrance."""
    remove_newest(damaged)
    engine.repair(damaged, "continue_from")
    assert engine.drive(damaged).status == "completed"


@pytest.mark.parametrize("number", [2, 99])
def test_unsound_checkpoint_cannot_be_chosen(engine: Engine, damaged: UUID, number: int) -> None:
    """The damaged one and one that does not exist are refused; nothing changes."""
    before = engine.task(damaged)
    with refused("checkpoint_damaged"):
        engine.repair(damaged, "continue_from", checkpoint=number)
    after = engine.task(damaged)
    assert (after.state_version, after.event_seq) == (before.state_version, before.event_seq)
    assert not Repair.objects.for_tenant(engine.tenant.id).exists()


def test_requeue_of_a_damaged_task_is_refused(engine: Engine, damaged: UUID) -> None:
    """It would only be found damaged again; without any good one there is nothing to go on from."""
    with refused("checkpoint_damaged"):
        engine.repair(damaged, "requeue")
    damage_all(damaged)
    assert verbs(engine, damaged) == ("fork", "close")
    with refused("no_good_checkpoint"):
        engine.repair(damaged, "continue_from")


# --- settle_effect --------------------------------------------------------------------------
def test_act_settled_as_done_is_not_called_again(
    engine: Engine, doubtful: UUID, tmp_path: Path
) -> None:
    """The given result is the step's; the ledger names who said so; the task goes on behind it."""
    assert verbs(engine, doubtful) == ("settle_effect", "close")
    calls = effect_of(engine, doubtful).attempts
    engine.repair(
        doubtful, "settle_effect", outcome="done", proof="portal: 4711", result={"key": "4711"}
    )
    row = effect_of(engine, doubtful)
    assert (row.state, row.response) == (EffectState.SUCCEEDED, {"key": "4711"})
    task = engine.drive(doubtful)
    assert task.status == "completed"
    assert len(lines(tmp_path / "after")) == 1
    assert effect_of(engine, doubtful).attempts == calls
    settled = [e for e in audit_of(doubtful) if e["action"] == "effect.succeeded"]
    assert [entry["actor"] for entry in settled] == [engine.operator.actor]
    oracles.check_task(task, at_rest=True)


def test_result_that_does_not_fit_the_act_is_refused(engine: Engine, doubtful: UUID) -> None:
    """Later steps could not take it: 422 at the field, the act stays in doubt."""
    with pytest.raises(InvalidInputError) as refusal:
        engine.repair(doubtful, "settle_effect", outcome="done", proof="p", result=[1])
    assert refusal.value.errors[0].pointer == "/payload/result"
    assert effect_of(engine, doubtful).state is EffectState.IN_DOUBT
    with refused("effect_not_in_doubt"):
        engine.repair(doubtful, "settle_effect", outcome="not_done", effect="another")


@pytest.mark.parametrize("outcome", ["not_done", "call_again"])
def test_act_is_called_anew_under_its_key(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    """Not done, or ordered again: the same key is sent once more, with fresh tries."""
    out, down = tmp_path / "out", [True]
    original = Scripted.act

    @wraps(original)
    def flaky(self: Any, ctx: Any, operation: Any) -> Any:
        if down:
            raise OSError("no answer")
        return original(self, ctx, operation)

    monkeypatch.setattr(Scripted, "act", flaky)
    task_id = engine.submit({"op": "effect", "key": "k", "append": str(out)})
    assert engine.drive(task_id).status == "dead_lettered"
    down.clear()
    engine.repair(task_id, "settle_effect", outcome=outcome)
    assert engine.drive(task_id).status == "completed"
    assert lines(out) == [f"{task_id}:act"]
    assert effect_of(engine, task_id).state is EffectState.SUCCEEDED


def test_settled_act_may_leave_the_task_held(engine: Engine, doubtful: UUID) -> None:
    """`hold` records the truth and lets a person close or fork afterwards."""
    with refused("effect_in_doubt"):
        engine.repair(doubtful, "fork")
    version = engine.task(doubtful).state_version
    held = engine.repair(doubtful, "settle_effect", outcome="not_done", hold=True)
    assert (held.status, held.state_version) == ("dead_lettered", version + 1)
    assert verbs(engine, doubtful) == ("continue_from", "requeue", "fork", "close")
    assert engine.repair(doubtful, "close").status == "failed"


def test_opaque_act_is_never_ordered_again(engine: Engine, doubtful: UUID) -> None:
    """The other side knows no keys, so only done and not done can be said."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE ledger_app_effect DISABLE TRIGGER USER")
        cursor.execute("UPDATE ledger_app_effect SET kind = 'opaque'")
        cursor.execute("ALTER TABLE ledger_app_effect ENABLE TRIGGER USER")
    with refused("effect_not_repeatable"):
        engine.repair(doubtful, "settle_effect", outcome="call_again")
    assert effect_of(engine, doubtful).state is EffectState.IN_DOUBT


# --- requeue --------------------------------------------------------------------------------
def test_requeue_gives_fresh_recoveries(engine: Engine, worn: UUID) -> None:
    """The counter starts anew, the fence shuts out who is left, the total stays."""
    before = engine.task(worn)
    assert verbs(engine, worn) == ("requeue", "fork", "close")
    engine.repair(worn, "requeue")
    after = engine.task(worn)
    assert (after.recoveries, after.recoveries_total) == (0, before.recoveries_total)
    assert after.fence == before.fence + 1
    task = engine.drive(worn)
    assert task.status == "completed"
    oracles.check_task(task, at_rest=True)


def test_requeue_gives_the_step_fresh_tries(engine: Engine, tmp_path: Path) -> None:
    """A step that has used its tries gets all of them again; their rows stay."""
    task_id = engine.submit({"op": "fail", "times": 3, "append": str(tmp_path / "tries")})
    for _ in range(2):
        engine.make_due(task_id)
        assert engine.run(task_id) == "retry"
    engine.make_due(task_id)
    wear_out(engine, task_id)
    engine.repair(task_id, "requeue")
    assert engine.drive(task_id).status == "completed"
    assert len(lines(tmp_path / "tries")) == 4


def test_overdue_task_is_not_queued(engine: Engine, worn: UUID) -> None:
    """S75: a repair does not give more time; it can only be forked or closed."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE tasks_app_task SET deadline_at = clock_timestamp()")
    assert verbs(engine, worn) == ("fork", "close")
    with refused("deadline_passed"):
        engine.repair(worn, "requeue")


# --- fork and close -------------------------------------------------------------------------
def test_fork_replaces_the_task(engine: Engine, damaged: UUID) -> None:
    """A new task with a patched goal for the same person; both name each other; the old one ends."""
    done = engine.repair(damaged, "fork", goal={"script": [{"op": "say"}], "note": "second"})
    assert done.forked_task_id is not None
    old, new = engine.task(damaged), engine.task(done.forked_task_id)
    assert (old.status, old.stop_reason) == ("cancelled", "forked")
    assert (new.forked_from_id, new.initiator_id) == (damaged, engine.submitter.user_id)
    assert (new.goal["note"], new.title, new.priority) == ("second", old.title, old.priority)
    assert [e["actor"] for e in audit_of(new.id)] == [engine.operator.actor]
    assert engine.drive(new.id).status == "completed"


def test_fork_for_somebody_who_left_is_refused(engine: Engine, worn: UUID) -> None:
    """S11: a task runs for its initiator, who must still be allowed to start it."""
    members = Membership.objects.for_tenant(engine.tenant.id)
    members.filter(user_id=engine.submitter.user_id).update(status="disabled")
    with refused("initiator_revoked"):
        engine.repair(worn, "fork")
    assert engine.task(worn).status == "dead_lettered"


def test_fork_with_an_unfit_goal_is_refused(engine: Engine, worn: UUID) -> None:
    """The goal is checked as at admission; the held task stays as it is; limits stay limits."""
    with pytest.raises(InvalidInputError):
        engine.repair(worn, "fork", goal={"script": "no list"})
    with pytest.raises(NotAllowedError):
        engine.repair(worn, "fork", goal={"budget": {"tokens": 1}})
    assert engine.task(worn).status == "dead_lettered"


def test_closed_task_has_failed_with_a_receipt(engine: Engine, doubtful: UUID) -> None:
    """The receipt tells the open doubt; the cause stays readable; the end is absorbing."""
    engine.repair(doubtful, "close")
    task = engine.task(doubtful)
    assert (task.status, task.stop_reason) == ("failed", "closed")
    assert task.error["code"] == "effect_in_doubt"
    receipt = find_receipt(tenant_id=engine.tenant.id, task_id=doubtful)
    assert receipt is not None
    assert receipt.effects[0]["state"] == "in_doubt"
    with pytest.raises(TaskTerminalError):
        engine.repair(doubtful, "requeue")


# --- who, when, how often -------------------------------------------------------------------
def test_repair_is_one_row_one_event_one_version(engine: Engine, worn: UUID) -> None:
    """E31, E32: each repair is kept with reason and cause, bumps once, and is told in the journal."""
    before = engine.task(worn).state_version
    done = engine.repair(worn, "requeue")
    row = Repair.objects.for_tenant(engine.tenant.id).get()
    assert (row.verb, row.cause, row.status) == ("requeue", "too_many_recoveries", "queued")
    assert (row.old_version, row.new_version) == (before, before + 1)
    told = Event.objects.for_tenant(engine.tenant.id).get(task_id=worn, type="repaired")
    assert told.data["repairId"] == str(done.repair_id)


def test_same_repair_again_is_the_first_answer(engine: Engine, worn: UUID) -> None:
    """A retry with the same id changes nothing; another repair under it is refused."""
    repair_id, version = uuid4(), engine.task(worn).state_version
    first = engine.repair(worn, "requeue", repair_id=repair_id, expected_version=version)
    again = engine.repair(worn, "requeue", repair_id=repair_id, expected_version=version)
    assert (again.replayed, again.state_version) == (True, first.state_version)
    with pytest.raises(IdempotencyMismatchError):
        engine.repair(worn, "close", repair_id=repair_id)


def test_repair_needs_the_present_version(engine: Engine, worn: UUID) -> None:
    """E6: who looked at an older state is told who changed it, and nothing happens."""
    old = engine.task(worn).state_version
    engine.steer(worn, "set_priority", payload={"priority": 1})
    with pytest.raises(VersionConflictError) as conflict:
        engine.repair(worn, "requeue", expected_version=old)
    assert conflict.value.fields["change"] == "set_priority"
    with pytest.raises(VersionRequiredError):
        engine.repair(worn, "requeue", expected_version=None)


def test_only_a_held_task_is_repaired(engine: Engine) -> None:
    """A task that runs or waits needs no repair."""
    task_id = engine.submit({"op": "say"})
    with refused("task_not_held"):
        engine.repair(task_id, "requeue")
    assert get_snapshot(engine.operator, task_id).hold is None


def test_submitter_sees_the_hold_and_no_verb(engine: Engine, worn: UUID) -> None:
    """Who may not repair is told why the task stands still, and is refused."""
    hold = get_snapshot(engine.submitter, worn).hold
    assert hold is not None
    assert (hold.code, hold.verbs, hold.since) == (
        "too_many_recoveries",
        (),
        engine.task(worn).held_at,
    )
    with pytest.raises(NotAllowedError):
        engine.repair(worn, "requeue", by=engine.submitter)


def audit_of(task_id: UUID) -> list[dict[str, Any]]:
    entries = AuditEntry.objects.filter(stream=f"task:{task_id}").order_by("seq")
    return [json.loads(entry.envelope) for entry in entries]
