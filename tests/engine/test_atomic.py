"""Atomic steps: the author's own rows, the result and the cursor are one commit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import Group
from django.db import DatabaseError, connection
from pytest_django import Settings

from tasks_app.models import Artifact, Attempt, Event, Step
from tasks_app.workflows import Retry, StepContext, step
from tasks_app.workflows.scripted import Scripted
from tests.support import oracles
from tests.support.engine import Engine, lines


class CrashError(BaseException):
    """Ends a slice as a kill does."""


def rows_of(task_id: UUID) -> list[str]:
    return list(Group.objects.filter(name__startswith=str(task_id)).values_list("name", flat=True))


def atomic(**rest: Any) -> dict[str, Any]:
    return {"op": "atomic", **rest}


def replace_body(
    monkeypatch: pytest.MonkeyPatch, body: Callable[[StepContext], Any], **declared: Any
) -> None:
    """Have the script's atomic step run another body."""

    @step(retry=Retry(max=1), **{"atomic": True, **declared})
    def add_row(self: Any, ctx: StepContext, operation: Any) -> Any:
        return body(ctx)

    monkeypatch.setattr(Scripted, "add_row", add_row)


def test_rows_and_result_are_committed_together(engine: Engine) -> None:
    """E-table atomic: the row is there and the result names it."""
    task_id = engine.submit({"op": "say"}, atomic(write="a.txt"), {"op": "say"}, atomic())
    task = engine.drive(task_id)
    assert task.status == "completed"
    assert len(rows_of(task_id)) == 2
    assert task.result["row"] in rows_of(task_id)
    assert Artifact.objects.for_tenant(engine.tenant.id).filter(task_id=task_id).count() == 1
    oracles.check_task(task)


def test_failing_body_leaves_no_rows_but_an_attempt(engine: Engine, tmp_path: Path) -> None:
    """Each failed try is undone as a whole; its log line stays, its artifact does not."""
    task_id = engine.submit(atomic(fail=2, append=str(tmp_path / "runs"), write="a.txt"))
    task = engine.drive(task_id)
    assert task.status == "completed"
    assert rows_of(task_id) == [task.result["row"]]
    assert len(lines(tmp_path / "runs")) == 3
    tries = Attempt.objects.for_tenant(engine.tenant.id).filter(task_id=task_id)
    assert [row.error["message"] for row in tries] == ["the script says so"] * 2
    assert Artifact.objects.for_tenant(engine.tenant.id).filter(task_id=task_id).count() == 1
    events = Event.objects.for_tenant(engine.tenant.id).filter(task_id=task_id)
    assert events.filter(type="artifact").count() == 1
    assert events.filter(type="log", data__message="a row was added").count() == 3
    oracles.check_task(task)


def test_body_that_always_fails_leaves_nothing(engine: Engine, tmp_path: Path) -> None:
    """After the last try the task fails as with any other step."""
    task_id = engine.submit(atomic(fail=9, append=str(tmp_path / "runs")))
    task = engine.drive(task_id)
    assert (task.status, task.stop_reason) == ("failed", "step_failed")
    assert rows_of(task_id) == []


@pytest.mark.parametrize(
    ("point", "runs"), [("step.before", 1), ("step.before_commit", 2), ("step.after_commit", 1)]
)
def test_crash_around_the_commit_leaves_one_row(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, runs: int
) -> None:
    """Before the commit all is undone and the body runs again; after it nothing runs again."""
    task_id = engine.submit(atomic(append=str(tmp_path / "runs")))
    left = [CrashError()]

    def reach(name: str, *_: object) -> None:
        if name == point and left:
            raise left.pop()

    monkeypatch.setattr("tasks_app.syncpoints.reach", reach)
    with pytest.raises(CrashError):
        engine.run(task_id)
    engine.lose_lease(task_id)
    task = engine.drive(task_id)
    assert task.status == "completed"
    assert rows_of(task_id) == [task.result["row"]]
    assert len(lines(tmp_path / "runs")) == runs
    oracles.check_task(task)


def break_a_deferred_rule(ctx: StepContext) -> None:
    group = Group.objects.create(name=f"{ctx.task_id}")
    Group.permissions.through.objects.create(group=group, permission_id=2_000_000_000)


def swallow_an_error(ctx: StepContext) -> None:
    Group.objects.create(name=f"{ctx.task_id}")
    try:
        Group.objects.create(name=f"{ctx.task_id}")
    except DatabaseError:
        ctx.log("never mind")


@pytest.mark.parametrize("body", [break_a_deferred_rule, swallow_an_error])
def test_what_the_database_refuses_is_the_bodys_failure(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, body: Callable[[StepContext], Any]
) -> None:
    """Errors that come late do not look like a fault of the engine: the step fails, once."""
    replace_body(monkeypatch, body)
    task_id = engine.submit(atomic())
    task = engine.drive(task_id)
    assert (task.status, task.stop_reason) == ("failed", "step_failed")
    assert task.recoveries_total == 0
    assert rows_of(task_id) == []


def test_result_that_cannot_be_stored_undoes_the_rows(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No rows without a result."""
    replace_body(monkeypatch, lambda ctx: Group.objects.create(name=f"{ctx.task_id}"))
    task_id = engine.submit(atomic())
    assert engine.drive(task_id).error["code"] == "result_invalid"
    assert rows_of(task_id) == []


@pytest.mark.parametrize("is_atomic", [True, False])
def test_query_that_takes_too_long_is_ended_by_the_time_out(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, is_atomic: bool
) -> None:
    """The time-out also ends a body that waits for the database; the worker goes on."""

    def wait(ctx: StepContext) -> None:
        Group.objects.create(name=f"{ctx.task_id}")
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(20)")

    replace_body(monkeypatch, wait, timeout_seconds=0.2, atomic=is_atomic)
    task_id = engine.submit(atomic())
    task = engine.drive(task_id)
    assert (task.status, task.error["code"]) == ("failed", "StepTimeoutError")
    assert task.recoveries_total == 0
    assert len(rows_of(task_id)) == (0 if is_atomic else 1)
    assert engine.drive(engine.submit({"op": "say"})).status == "completed"


def test_body_may_compute_longer_than_other_transactions_may_idle(
    engine: Engine, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inside the body the server's limit is the step's time-out, for the commit it is as always."""
    seen: list[str] = []

    def look(name: str, *_: object) -> None:
        if name in {"step.before", "step.before_commit"} and connection.in_atomic_block:
            with connection.cursor() as cursor:
                cursor.execute("SHOW idle_in_transaction_session_timeout")
                seen.append(cursor.fetchone()[0])

    monkeypatch.setattr("tasks_app.syncpoints.reach", look)
    with connection.cursor() as cursor:
        cursor.execute("SHOW idle_in_transaction_session_timeout")
        usual = cursor.fetchone()[0]
    assert engine.drive(engine.submit(atomic())).status == "completed"
    assert seen[:2] == ["2s", usual]


def test_held_results_are_committed_before_the_body(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E20: a failing body takes nothing along that was done before."""
    replace_body(monkeypatch, lambda ctx: 1 / 0)
    task_id = engine.submit({"op": "say"}, {"op": "say"}, atomic())
    assert engine.drive(task_id).status == "failed"
    rows = Step.objects.for_tenant(engine.tenant.id).filter(task_id=task_id).order_by("position")
    assert [row.status for row in rows] == ["succeeded", "succeeded", "failed"]
