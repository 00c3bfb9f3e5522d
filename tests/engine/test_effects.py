"""Effects: entered before the call, settled with the result, never lost in doubt."""

import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ledger_app.domain.effects import EffectState
from ledger_app.domain.errors import EffectEdgeError
from ledger_app.queries import EffectRow, list_effects
from ledger_app.services import effects
from tasks_app import conf
from tasks_app.engine import lease
from tasks_app.models import Attempt, Step
from tasks_app.workflows.scripted import Scripted
from tests.support.engine import Engine, lines


def effects_of(engine: Engine, task_id: UUID) -> list[EffectRow]:
    return list_effects(tenant_id=engine.tenant.id, task_id=task_id)


class CrashError(BaseException):
    """Ends a slice as a kill does: nothing of the engine's own handling runs."""


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lose the answers of a method's first calls: the act happens, the caller sees an error."""

    def lose(method: str, error: BaseException, times: int = 1) -> None:
        original, left = getattr(Scripted, method), [error] * times

        @wraps(original)
        def flaky(self: Any, ctx: Any, operation: Any) -> Any:
            result = original(self, ctx, operation)
            if left:
                raise left.pop()
            return result

        monkeypatch.setattr(Scripted, method, flaky)

    return lose


def crash(engine: Engine, task_id: UUID) -> None:
    """Run a slice that is killed on its way, and have the task taken over."""
    with pytest.raises(CrashError):
        engine.run(task_id)
    engine.lose_lease(task_id)


def test_key_is_the_same_at_every_try(
    engine: Engine, tmp_path: Path, losing: Callable[..., None]
) -> None:
    """E-table keyed: after a failure that may have happened, the same key is sent again."""
    out = tmp_path / "out"
    losing("act", OSError("the answer was lost"))
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


def test_act_that_the_ledger_knows_otherwise_leaves_no_result(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E21: the ledger comes first: without the act's end nothing of its commit is written."""
    task_id = engine.submit({"op": "effect", "key": "k"})

    def reach(name: str, *_: object) -> None:
        if name == "effect.after_call":
            [row] = effects_of(engine, task_id)
            effects.fail(
                tenant_id=row.tenant_id,
                task_id=task_id,
                key=row.key,
                fence=row.fence,
                error={"code": "never"},
            )

    monkeypatch.setattr("tasks_app.syncpoints.reach", reach)
    with pytest.raises(EffectEdgeError):
        engine.run(task_id)
    assert [row.state for row in effects_of(engine, task_id)] == [EffectState.FAILED]
    [step] = Step.objects.for_tenant(engine.tenant.id).filter(task_id=task_id)
    assert (step.status, step.result) == ("planned", None)
    assert engine.task(task_id).next_position == 0
    engine.assert_audit_verifies(task_id)


# --- after a crash, and after an error that leaves open whether it happened ----------------------

BEFORE_THE_CALL = "effect.after_begin"
LOST_ANSWERS = (CrashError(), OSError("the answer was lost"))


def act(kind: str, out: Path, **rest: Any) -> dict[str, Any]:
    return {"op": "effect", "key": "k", "kind": kind, "append": str(out), **rest}


@pytest.mark.parametrize("error", LOST_ANSWERS, ids=lambda error: type(error).__name__)
def test_queryable_act_that_happened_is_found_and_not_repeated(
    engine: Engine, tmp_path: Path, losing: Callable[..., None], error: BaseException
) -> None:
    """E5, E23: the other side is asked first; what it did is the result."""
    out = tmp_path / "out"
    losing("act_queryable", error)
    task_id = engine.submit(act("queryable", out))
    if isinstance(error, CrashError):
        crash(engine, task_id)
    task = engine.drive(task_id)
    assert (task.status, task.result) == ("completed", {"key": f"{task_id}:act_queryable"})
    assert len(lines(out)) == 1
    assert [row.state for row in effects_of(engine, task_id)] == [EffectState.SUCCEEDED]
    engine.assert_audit_verifies(task_id)


@pytest.mark.parametrize("kind", ["keyed", "queryable"])
def test_act_that_was_begun_and_never_made_is_made(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A crash between the ledger's begin and the call loses nothing."""
    out = tmp_path / "out"
    task_id = engine.submit(act(kind, out))
    crash_once_at(monkeypatch, BEFORE_THE_CALL)
    crash(engine, task_id)
    assert [row.state for row in effects_of(engine, task_id)] == [EffectState.BEGUN]
    assert engine.drive(task_id).status == "completed"
    assert len(lines(out)) == 1


def crash_once_at(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    left = [CrashError()]

    def reach(name: str, *_: object) -> None:
        if name == point and left:
            raise left.pop()

    monkeypatch.setattr("tasks_app.syncpoints.reach", reach)


def test_queryable_act_that_never_happens_fails_without_doubt(engine: Engine) -> None:
    """After the last call the other side is asked once more: its no is certain."""
    task_id = engine.submit(act("queryable", Path("/nowhere/out")))
    task = engine.drive(task_id)
    assert (task.status, task.stop_reason, task.error["code"]) == (
        "failed",
        "effect_failed",
        "not_done",
    )
    assert "/nowhere/out" in task.error["message"]
    assert [row.state for row in effects_of(engine, task_id)] == [EffectState.FAILED]


def test_queryable_act_is_in_doubt_when_the_other_side_cannot_tell(
    engine: Engine, tmp_path: Path, losing: Callable[..., None]
) -> None:
    """`find` is asked again with pauses; without an answer nothing is called and a person decides."""
    out = tmp_path / "out"
    losing("act_queryable", OSError("the answer was lost"))
    losing("find_act", OSError("nobody answers"), times=9)
    task_id = engine.submit(act("queryable", out))
    task = engine.drive(task_id)
    assert (task.status, task.error["code"]) == ("dead_lettered", "effect_in_doubt")
    assert len(lines(out)) == 1
    assert [row.state for row in effects_of(engine, task_id)] == [EffectState.IN_DOUBT]
    tries = Attempt.objects.for_tenant(engine.tenant.id).filter(task_id=task_id).order_by("number")
    messages = [row.error["message"] for row in tries]
    assert messages == ["the answer was lost", "nobody answers", "nobody answers"]


@pytest.mark.parametrize("error", LOST_ANSWERS, ids=lambda error: type(error).__name__)
def test_opaque_act_is_never_called_again(
    engine: Engine, tmp_path: Path, losing: Callable[..., None], error: BaseException
) -> None:
    """E5: nobody can tell whether it happened, so the task is held and the ledger says so."""
    out = tmp_path / "out"
    losing("act_unattended", error)
    task_id = engine.submit(act("opaque", out, unattended=True))
    if isinstance(error, CrashError):
        crash(engine, task_id)
    task = engine.drive(task_id)
    assert (task.status, task.error["code"]) == ("dead_lettered", "effect_in_doubt")
    assert len(lines(out)) == 1
    assert [row.state for row in effects_of(engine, task_id)] == [EffectState.IN_DOUBT]
    engine.assert_audit_verifies(task_id)


def test_opaque_act_begun_and_not_made_is_in_doubt_all_the_same(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From here it cannot be told from one that was made."""
    task_id = engine.submit(act("opaque", tmp_path / "out", unattended=True))
    crash_once_at(monkeypatch, BEFORE_THE_CALL)
    crash(engine, task_id)
    task = engine.drive(task_id)
    assert (task.status, task.error["code"]) == ("dead_lettered", "effect_in_doubt")
    assert lines(tmp_path / "out") == []
    assert [row.state for row in effects_of(engine, task_id)] == [EffectState.IN_DOUBT]


def test_opaque_act_waits_for_an_approval(engine: Engine, tmp_path: Path) -> None:
    """An act that nobody can check afterwards is asked about before, unless it is unattended."""
    task_id = engine.submit(act("opaque", tmp_path / "out"))
    assert engine.drive(task_id).status == "input_required"
    assert lines(tmp_path / "out") == []
    engine.approve(task_id)
    assert engine.drive(task_id).status == "completed"
    assert len(lines(tmp_path / "out")) == 1


# --- how much lease an act needs -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "begun"), [("effect.before", False), ("effect.after_begin", True)]
)
def test_act_does_not_start_on_the_last_of_a_lease(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, begun: bool
) -> None:
    """E42: with less lease left than its margin an act is neither begun nor called."""
    out = tmp_path / "out"
    task_id = engine.submit(act("keyed", out))

    def reach(name: str, *_: object) -> None:
        held = lease.keeper()._lease
        if name == point and held is not None:
            held.deadline = time.monotonic() + conf.runtime().lease_seconds / 3 - 0.1

    monkeypatch.setattr("tasks_app.syncpoints.reach", reach)
    assert engine.run(task_id) == "lost"
    assert lines(out) == []
    assert [row.state for row in effects_of(engine, task_id)] == [EffectState.BEGUN] * begun
    monkeypatch.undo()
    engine.lose_lease(task_id)
    assert engine.drive(task_id).status == "completed"
    assert len(lines(out)) == 1
