"""What the step path costs in statements: structure, not time (P11, P12, E95)."""

import time
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pydantic import BaseModel

from tasks_app.engine import budgets, lease, session, sql, values
from tasks_app.models import Budget, Reservation
from tasks_app.workflows import StepContext
from tests.support.engine import Engine

SAY: dict[str, Any] = {"op": "say", "impure": True}


@pytest.fixture(autouse=True)
def _look_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    # As in production, where quick steps share one look for commands.
    monkeypatch.setattr(session, "LOOK_SECONDS", 60.0)


def statements_of(engine: Engine, *script: dict[str, Any]) -> list[str]:
    """Return what one slice sends that runs this script to its end; hot statements are empty."""
    task_id = engine.submit(*script)
    with CaptureQueriesContext(connection) as captured:
        assert engine.run(task_id) == "completed"
    return [str(query["sql"] or "") for query in captured]


def test_durable_step_is_one_statement_and_one_commit(engine: Engine) -> None:
    """P12: twenty more committed steps with two checkpoints are twenty more statements, no more."""
    few, many = (statements_of(engine, *[SAY] * count) for count in (10, 30))
    assert len(many) - len(few) == 20
    assert many.count("BEGIN") == few.count("BEGIN")


def test_pure_steps_share_a_statement(engine: Engine) -> None:
    """Ten pure steps with their checkpoint are one statement."""
    few, many = (statements_of(engine, *[{"op": "say"}] * count) for count in (10, 50))
    assert len(many) - len(few) == 4


def test_act_is_two_statements_and_two_commits(engine: Engine) -> None:
    """An act is begun and settled, each in one statement that holds the task's row."""
    acts = [{"op": "effect", "key": str(number)} for number in range(6)]
    few, many = (statements_of(engine, *acts[:count]) for count in (2, 6))
    assert many.count("BEGIN") == few.count("BEGIN")
    assert len(many) - len(few) == 4 * 2


def test_short_task_takes_few_statements(engine: Engine) -> None:
    """Claim, plan and end of a task without acts and artifacts, besides its two steps."""
    statements_of(engine, SAY)
    assert len(statements_of(engine, SAY, SAY)) - 2 <= 15


def test_renewals_are_heap_only(engine: Engine) -> None:
    """P11: no index mentions what a heartbeat writes, so nine of ten renewals touch none."""
    task_id = engine.submit(SAY)
    held = lease.claim(task_id)
    assert held is not None
    renewal: dict[str, Any] = {"task_id": task_id, "fence": held.task.fence, "lease_seconds": 30}
    with connection.cursor() as cursor:
        # The page that the row stands on has room as it has in a table that was vacuumed.
        cursor.execute("SET synchronous_commit = off")
        before = _updates()
        for _ in range(1000):
            cursor.execute(sql.RENEW, renewal)
        after = _updates()
        cursor.execute("RESET synchronous_commit")
    all_updates, heap_only = (now - then for now, then in zip(after, before, strict=True))
    assert all_updates >= 1000
    assert heap_only / all_updates >= 0.9


def _updates() -> tuple[int, int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables"
            " WHERE relname = 'tasks_app_task'"
        )
        updates, heap_only = cursor.fetchone()
    return updates, heap_only


def test_reservation_of_another_tenant_is_not_settled(engine: Engine) -> None:
    """The statements of budgets name the tenant besides the task."""
    task_id = engine.submit(SAY)
    Budget.objects.create(
        tenant_id=engine.tenant.id, task_id=task_id, kind="tokens", limit_amount=9, reserved=5
    )
    Reservation.objects.create(
        tenant_id=engine.tenant.id, task_id=task_id, source="call", kind="tokens", amount=5
    )
    settle = (task_id, "call", "tokens", "settled", 3)
    assert budgets.settle_reservation(Engine().tenant.id, *settle) is None
    assert budgets.settle_reservation(engine.tenant.id, *settle) == (3, 9)


def test_check_of_a_result_costs_nothing_noticeable(engine: Engine) -> None:
    """A result is checked against its annotation in a small part of the time that its step takes."""

    class Answer(BaseModel):
        label: str
        score: float
        found: list[str]

    def answer(ctx: StepContext) -> Answer:
        raise NotImplementedError

    value = Answer(label="a", score=0.5, found=["b"] * 5)
    values.to_json(answer, value)
    task_id = engine.submit(*[SAY] * 100)
    began = time.perf_counter()
    assert engine.run(task_id) == "completed"
    of_step = (time.perf_counter() - began) / 100
    began = time.perf_counter()
    for _ in range(1000):
        values.to_json(answer, value)
    of_check = (time.perf_counter() - began) / 1000
    assert of_check <= 0.1 * of_step, (of_check, of_step)
