"""Undoing what was done when a task is cancelled or fails (E71)."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from pydantic import BaseModel

from ledger_app.domain.effects import EffectState
from ledger_app.queries import EffectRow, find_receipt, list_effects
from tasks_app.admission import principal, tasks
from tasks_app.domain.errors import CommandRejectedError, SelfApprovalError
from tasks_app.engine import recovery, slice_runner
from tasks_app.models import Approval, Step
from tasks_app.queries.snapshot import get_snapshot
from tasks_app.workflows import FunctionContext, StepContext, durable_function, effect, registry
from tests import factories
from tests.support import oracles
from tests.support.engine import Engine, lines

GATED = {"approval_policy": {"before": ["undo_act"]}}


class CrashError(BaseException):
    """Ends a slice as a kill does."""


def undoable(out: Path, **rest: Any) -> dict[str, Any]:
    return {"op": "effect", "key": "k", "undo": True, "append": str(out), **rest}


def two_acts(out: Path, last: dict[str, Any], **rest: Any) -> list[dict[str, Any]]:
    """Two acts that can be undone and one that cannot, then something else."""
    plain = {"op": "effect", "key": "k", "append": str(out)}
    return [undoable(out, **rest), plain, undoable(out, **rest), last]


def acts_of(engine: Engine, task_id: UUID) -> list[EffectRow]:
    return list_effects(tenant_id=engine.tenant.id, task_id=task_id)


def states_of(engine: Engine, task_id: UUID) -> dict[str, str]:
    return {row.key.split(":")[1]: row.state.value for row in acts_of(engine, task_id)}


UNDONE = {
    "act_undoable": "compensated",
    "act": "succeeded",
    "act_undoable.2": "compensated",
    "undo_act@2": "succeeded",
    "undo_act.2@2": "succeeded",
}


def waiting(engine: Engine, out: Path, **rest: Any) -> UUID:
    """Return a task that has acted three times and now asks a question."""
    task_id = engine.submit(*two_acts(out, {"op": "interrupt"}), **rest)
    assert engine.drive(task_id).status == "input_required"
    return task_id


def test_cancelled_task_undoes_its_acts_newest_first(engine: Engine, tmp_path: Path) -> None:
    """E71: each compensation is an act with a key and a ledger row of its own."""
    out = tmp_path / "out"
    task_id = waiting(engine, out)
    assert engine.steer(task_id, "cancel", reason="wrong month").status == "applied"
    task = engine.task(task_id)
    assert (task.status, task.closing_as, task.plan_version) == ("queued", "cancelled", 2)
    snapshot = get_snapshot(engine.submitter, task_id)
    assert (snapshot.closing_as, snapshot.open_question) == ("cancelled", None)
    task = engine.drive(task_id)
    assert (task.status, task.stop_reason) == ("cancelled", "user_cancelled")
    assert states_of(engine, task_id) == UNDONE
    assert lines(out)[3:] == [f"{task_id}:undo_act@2", f"{task_id}:undo_act.2@2"]
    undone = Step.objects.for_tenant(engine.tenant.id).filter(task_id=task_id, method="undo_act")
    results = [row.result["inline"]["undone"] for row in undone.order_by("position")]
    assert results == [f"{task_id}:act_undoable.2", f"{task_id}:act_undoable"]
    receipt = find_receipt(tenant_id=engine.tenant.id, task_id=task_id)
    assert receipt is not None
    assert [effect["state"] for effect in receipt.effects].count("compensated") == 2
    oracles.check_task(task, at_rest=True)


def test_failed_task_undoes_its_acts_and_ends_with_its_error(
    engine: Engine, tmp_path: Path
) -> None:
    """What made it fail is what it says in the end."""
    task_id = engine.submit(*two_acts(tmp_path / "out", {"op": "fail"}))
    task = engine.drive(task_id)
    assert (task.status, task.stop_reason, task.error["step"]) == ("failed", "step_failed", "fail")
    assert states_of(engine, task_id) == UNDONE
    oracles.check_task(task, at_rest=True)


def test_task_without_anything_to_undo_ends_at_once(engine: Engine, tmp_path: Path) -> None:
    """Acts that declare no compensation stand, and the receipt tells of them."""
    act = {"op": "effect", "key": "k", "append": str(tmp_path / "out")}
    task_id = engine.submit(act, {"op": "interrupt"})
    assert engine.drive(task_id).status == "input_required"
    engine.steer(task_id, "cancel")
    task = engine.task(task_id)
    assert (task.status, task.plan_version, task.closing_as) == ("cancelled", 1, "")
    assert states_of(engine, task_id) == {"act": "succeeded"}


def test_act_of_a_replaced_plan_is_undone_too(engine: Engine, tmp_path: Path) -> None:
    """What it did stands outside, whatever the plan says now; its own result is passed."""
    a, b = tmp_path / "a", tmp_path / "b"
    asks = {"op": "interrupt"}
    task_id = engine.submit(undoable(a), asks)
    assert engine.drive(task_id).status == "input_required"
    engine.steer(task_id, "adjust_goal", payload={"script": [undoable(b), asks]})
    assert engine.drive(task_id).status == "input_required"
    engine.steer(task_id, "cancel")
    task = engine.drive(task_id)
    assert task.status == "cancelled"
    assert lines(a) == [f"{task_id}:act_undoable", f"{task_id}:undo_act.2@3"]
    assert lines(b) == [f"{task_id}:act_undoable@2", f"{task_id}:undo_act@3"]
    oracles.check_task(task, at_rest=True)


# --- approvals -----------------------------------------------------------------------------------


def test_compensation_waits_for_its_approval(engine: Engine, tmp_path: Path) -> None:
    """A compensation is an act like any other; who cancelled does not decide it (S59)."""
    out = tmp_path / "out"
    task_id = engine.submit(undoable(out), {"op": "interrupt"}, **GATED)
    engine.drive(task_id)
    both = factories.make_member(engine.tenant, ("operator", "approver"))
    canceller = principal.from_user(both, engine.tenant.id)
    engine.steer(task_id, "cancel", by=canceller)
    assert engine.drive(task_id).status == "input_required"
    asked = Approval.objects.for_tenant(engine.tenant.id).get(task_id=task_id, status="pending")
    assert (asked.tool, asked.display["show"]) == ("undo_act", {"key": f"{task_id}:act_undoable"})
    approver, engine.approver = engine.approver, canceller
    with pytest.raises(SelfApprovalError):
        engine.approve(task_id)
    engine.approver = approver
    engine.approve(task_id)
    task = engine.drive(task_id)
    assert task.status == "cancelled"
    assert states_of(engine, task_id)["act_undoable"] == "compensated"
    oracles.check_task(task, at_rest=True)


def test_denied_compensation_is_left_out(engine: Engine, tmp_path: Path) -> None:
    """The task ends as it was to end, and the ledger says that the act stands."""
    task_id = engine.submit(undoable(tmp_path / "out"), {"op": "interrupt"}, **GATED)
    engine.drive(task_id)
    engine.steer(task_id, "cancel")
    engine.drive(task_id)
    engine.approve(task_id, "deny")
    task = engine.drive(task_id)
    assert task.status == "cancelled"
    assert states_of(engine, task_id) == {"act_undoable": "succeeded"}
    oracles.check_task(task, at_rest=True)


# --- steering meanwhile --------------------------------------------------------------------------


def test_closing_task_can_be_paused_but_not_turned(engine: Engine, tmp_path: Path) -> None:
    """Pause and resume work; a new goal or a second cancel is refused with a code."""
    task_id = waiting(engine, tmp_path / "out")
    engine.steer(task_id, "cancel")
    for kind, payload in (("cancel", {}), ("adjust_goal", {"note": "x"})):
        with pytest.raises(CommandRejectedError) as caught:
            engine.steer(task_id, kind, payload=payload)
        assert caught.value.code == "task_closing"
    engine.steer(task_id, "pause")
    assert engine.task(task_id).status == "paused"
    engine.steer(task_id, "resume")
    task = engine.drive(task_id)
    assert task.status == "cancelled"
    assert states_of(engine, task_id) == UNDONE
    oracles.check_task(task, at_rest=True)


def test_paused_task_that_is_cancelled_undoes_at_once(engine: Engine, tmp_path: Path) -> None:
    """Cancelling ends the pause."""
    task_id = waiting(engine, tmp_path / "out")
    engine.steer(task_id, "pause")
    engine.steer(task_id, "cancel")
    assert engine.drive(task_id).status == "cancelled"
    assert states_of(engine, task_id) == UNDONE


def test_sleeping_task_that_is_cancelled_undoes_at_once(engine: Engine, tmp_path: Path) -> None:
    """The timer is void; the task is due now."""
    task_id = engine.submit(undoable(tmp_path / "out"), {"op": "sleep", "s": 3600})
    assert engine.run(task_id) == "sleeping"
    engine.steer(task_id, "cancel")
    assert engine.run(task_id) == "cancelled"
    assert states_of(engine, task_id)["act_undoable"] == "compensated"


def test_cancel_while_the_call_is_made_undoes_what_it_did(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call returns first; then the ledger says that there is something to undo."""
    task_id = engine.submit(undoable(tmp_path / "out"), {"op": "say"})
    steer_at(monkeypatch, "effect.after_begin", lambda: engine.steer(task_id, "cancel"))
    assert engine.run(task_id) == "cancelled"
    task = engine.task(task_id)
    assert states_of(engine, task_id) == {"act_undoable": "compensated", "undo_act@2": "succeeded"}
    oracles.check_task(task, at_rest=True)


def test_cancel_while_an_opaque_call_fails_stops_with_the_doubt(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows whether it happened: it is not undone, the task stops, the doubt is kept."""
    opaque = {"op": "effect", "key": "k", "kind": "opaque", "unattended": True}
    task_id = engine.submit(undoable(tmp_path / "out"), {**opaque, "post": "http://127.0.0.1:9/"})
    steer_at(monkeypatch, "effect.after_begin", lambda: engine.steer(task_id, "cancel"), times=(2,))
    assert engine.run(task_id) == "cancelled"
    assert states_of(engine, task_id) == {
        "act_undoable": "compensated",
        "act_unattended": "in_doubt",
        "undo_act@2": "succeeded",
    }
    oracles.check_task(engine.task(task_id), at_rest=True)


def steer_at(
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    act: Callable[[], Any],
    times: tuple[int, ...] = (1,),
) -> None:
    """Give a command at some of the passes of a sync point."""
    passes: list[str] = []

    def reach(name: str, *_: object) -> None:
        if name == point:
            passes.append(name)
            if len(passes) in times:
                act()

    monkeypatch.setattr("tasks_app.syncpoints.reach", reach)


# --- when undoing fails --------------------------------------------------------------------------


def test_compensation_that_is_refused_holds_the_task(engine: Engine, tmp_path: Path) -> None:
    """A person looks; requeued, it is tried again, and the task ends as it was to end."""
    out, refusal = tmp_path / "out", tmp_path / "refusal"
    refusal.touch()
    task_id = engine.submit(undoable(out, refuse_undo=str(refusal)), {"op": "fail"})
    task = engine.drive(task_id)
    assert (task.status, task.error["code"]) == ("dead_lettered", "compensation_failed")
    assert task.error["step"] == "undo_act"
    assert states_of(engine, task_id) == {"act_undoable": "succeeded", "undo_act@2": "failed"}
    refusal.unlink()
    engine.requeue(task_id)
    task = engine.drive(task_id)
    assert (task.status, task.error["step"]) == ("failed", "fail")
    assert states_of(engine, task_id) == {"act_undoable": "compensated", "undo_act@2": "succeeded"}
    oracles.check_task(task, at_rest=True)


@pytest.mark.parametrize(
    "point", ["effect.before", "effect.after_begin", "effect.after_call", "effect.after"]
)
def test_crash_while_undoing_undoes_once(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The compensation goes the way of its kind: the same key again."""
    out = tmp_path / "out"
    task_id = engine.submit(undoable(out), {"op": "interrupt"})
    engine.drive(task_id)
    engine.steer(task_id, "cancel")

    def crash() -> None:
        raise CrashError

    steer_at(monkeypatch, point, crash)
    with pytest.raises(CrashError):
        slice_runner.run_slice(task_id)
    engine.lose_lease(task_id)
    task = engine.drive(task_id)
    assert task.status == "cancelled"
    assert set(lines(out)) == {f"{task_id}:act_undoable", f"{task_id}:undo_act@2"}
    assert [row.state for row in acts_of(engine, task_id)] == [
        EffectState.COMPENSATED,
        EffectState.SUCCEEDED,
    ]
    oracles.check_task(task, at_rest=True)


def test_task_past_its_deadline_undoes_its_acts(engine: Engine, tmp_path: Path) -> None:
    """The sweeper fails it once; undoing takes the time that it takes."""
    task_id = waiting(engine, tmp_path / "out")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE tasks_app_task SET deadline_at = clock_timestamp() WHERE id = %s", [task_id]
        )
    assert recovery.fail_overdue() == 1
    assert recovery.fail_overdue() == 0
    task = engine.drive(task_id)
    assert (task.status, task.error["code"]) == ("failed", "deadline_passed")
    assert states_of(engine, task_id) == UNDONE
    oracles.check_task(task, at_rest=True)


def test_held_task_that_is_cancelled_undoes_what_is_known(engine: Engine, tmp_path: Path) -> None:
    """From dead letter: the act in doubt stays in doubt, the others are undone."""
    out = tmp_path / "out"
    lost = {"op": "effect", "key": "k", "post": "http://127.0.0.1:9/"}
    task_id = engine.submit(undoable(out), lost)
    assert engine.drive(task_id).status == "dead_lettered"
    engine.steer(task_id, "cancel")
    task = engine.drive(task_id)
    assert task.status == "cancelled"
    assert states_of(engine, task_id) == {
        "act_undoable": "compensated",
        "act": "in_doubt",
        "undo_act@2": "succeeded",
    }
    oracles.check_task(task, at_rest=True)


# --- the function form ---------------------------------------------------------------------------

SENT: list[str] = []


class Letters(BaseModel):
    names: list[str]
    fails: bool = False


@effect(kind="keyed", compensate="call_back")
def send(ctx: StepContext, name: str) -> str:
    SENT.append(f"to {name}")
    return f"letter to {name}"


@effect(kind="keyed")
def call_back(ctx: StepContext, letter: str, name: str) -> None:
    assert letter == f"letter to {name}"
    SENT.append(f"back from {name}")


def write(ctx: FunctionContext, goal: Letters) -> str:
    for turn in ctx.loop("letters", limit=len(goal.names)):
        turn.effect("send", send, goal.names[turn.index])
    if goal.fails:
        raise RuntimeError("the function says so")
    ctx.sleep(timedelta(hours=1))
    return "done"


@pytest.mark.parametrize("fails", [True, False])
def test_acts_of_a_function_are_undone(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Acts inside loops too, the newest first, by a plan like any other's."""
    monkeypatch.setattr(registry, "_known", dict(registry._known))
    durable_function(name="letters", version=1)(write)
    SENT.clear()
    goal = {"names": ["Ada", "Bo"], "fails": fails}
    task_id = tasks.admit_task(
        engine.submitter, workflow="letters", goal=goal, source="code"
    ).task_id
    if not fails:
        assert engine.run(task_id) == "sleeping"
        engine.steer(task_id, "cancel")
    task = engine.drive(task_id)
    assert task.status == ("failed" if fails else "cancelled")
    assert SENT == ["to Ada", "to Bo", "back from Bo", "back from Ada"]
    states = [row.state.value for row in acts_of(engine, task_id)]
    assert states == ["compensated", "compensated", "succeeded", "succeeded"]
    oracles.check_task(task, at_rest=True)


def test_held_task_that_is_closed_undoes_its_acts(engine: Engine, tmp_path: Path) -> None:
    """E61: giving up a held task ends it as failed, with compensation."""
    asks = {"op": "fail", "on_failure": "ask"}
    task_id = engine.submit(undoable(tmp_path / "out"), asks)
    assert engine.drive(task_id).status == "dead_lettered"
    engine.repair(task_id, "close")
    task = engine.drive(task_id)
    assert (task.status, task.stop_reason) == ("failed", "closed")
    assert states_of(engine, task_id) == {"act_undoable": "compensated", "undo_act@2": "succeeded"}
    oracles.check_task(task, at_rest=True)


def test_pause_that_waits_when_a_task_fails_is_kept(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failing task begins to undo, paused first, as a person has asked."""
    task_id = engine.submit(
        undoable(tmp_path / "out"), {"op": "effect", "key": "k", "refuse": True}
    )
    steer_at(monkeypatch, "effect.after_begin", lambda: engine.steer(task_id, "pause"), times=(2,))
    assert engine.run(task_id) == "paused"
    task = engine.task(task_id)
    assert (task.status, task.closing_as) == ("paused", "failed")
    assert states_of(engine, task_id)["act_undoable"] == "succeeded"
    engine.steer(task_id, "resume")
    task = engine.drive(task_id)
    assert (task.status, task.error["code"]) == ("failed", "refused")
    assert states_of(engine, task_id)["act_undoable"] == "compensated"
    oracles.check_task(task, at_rest=True)
