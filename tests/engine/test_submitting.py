"""Rules: many tasks are taken in like one: all checks, all or none, one row for each key."""

from typing import Any
from uuid import UUID

import pytest
from celery import current_app
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from ledger_app.services import audit
from tasks_app.admission import principal, tasks
from tasks_app.domain.errors import (
    BudgetInsufficientError,
    BudgetRequiredError,
    IdempotencyMismatchError,
    InvalidInputError,
    NotAllowedError,
    ReservedKeyError,
)
from tasks_app.engine import continuation, intake
from tasks_app.models import Budget, Outbox, Reservation, Step, Task
from tasks_app.workflows import registry
from tests import factories
from tests.support.engine import Engine

SAY: dict[str, Any] = {"op": "say"}


def submit_many(engine: Engine, *goals: dict[str, Any], **rest: Any) -> list[UUID]:
    definition = registry.get_definition("scripted")
    return tasks.submit_many(definition, goals, by=rest.pop("by", engine.submitter), **rest)


def goals(*texts: str) -> list[dict[str, Any]]:
    return [{"script": [{**SAY, "text": text}, SAY]} for text in texts]


def rows(engine: Engine) -> Any:
    return Task.objects.for_tenant(engine.tenant.id)


def test_many_tasks_are_stored_in_order_and_complete(engine: Engine) -> None:
    """Each goal gets a task with plan, owed message and audit entry, and it runs like any other."""
    ids = submit_many(engine, *goals("a", "b", "c"))
    assert [engine.task(one).goal["script"][0]["text"] for one in ids] == ["a", "b", "c"]
    assert Outbox.objects.for_tenant(engine.tenant.id).count() == 3
    assert [engine.drive(one).status for one in ids] == ["completed"] * 3
    assert all(audit.verify(f"task:{one}").ok for one in ids)


def test_many_tasks_are_one_statement(engine: Engine) -> None:
    """The number of statements does not grow with the number of tasks."""
    submit_many(engine, *goals("first"))

    def statements(*texts: str) -> int:
        with CaptureQueriesContext(connection) as captured:
            submit_many(engine, *goals(*texts))
        return len(captured)

    assert statements("a", "b") == statements(*map(str, range(50)))


def test_more_than_a_batch_is_still_all_or_none(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fits into no single statement is stored by several in one transaction."""
    monkeypatch.setattr(intake, "BATCH", 2)
    assert len(submit_many(engine, *goals(*"abcde"))) == rows(engine).count() == 5
    calls: list[int] = []
    real = vars(intake)["fetch_rows"]

    def breaks(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("the process dies here")
        return real(*given)

    monkeypatch.setattr(intake, "fetch_rows", breaks)
    with pytest.raises(RuntimeError):
        submit_many(engine, *goals(*"fghij"))
    assert rows(engine).count() == Outbox.objects.for_tenant(engine.tenant.id).count() == 5


def test_a_stored_row_has_the_models_defaults(engine: Engine) -> None:
    """The statement writes what the ORM would write for what nobody names."""
    [task_id] = submit_many(engine, *goals("a"))
    task = engine.task(task_id)
    by_hand = factories.make_task(tenant=engine.tenant)
    given = {
        "id", "workflow", "workflow_version", "title", "goal", "initiator_id", "agent_id",
        "agent_version", "source", "plan_result", "progress_total", "idempotency_fingerprint",
        "next_wake_at", "deadline_at", "created_at", "updated_at", "traceparent",
    }  # fmt: skip
    names = {field.attname for field in Task._meta.concrete_fields} - given
    assert {n: getattr(task, n) for n in names} == {n: getattr(by_hand, n) for n in names}
    assert task.deadline_at is not None
    assert task.next_wake_at is not None
    assert task.created_at <= task.deadline_at
    steps = Step.objects.for_tenant(engine.tenant.id).filter(task_id=task_id).order_by("position")
    assert [(s.status, s.scope, s.attempts, s.plan_version) for s in steps] == [
        ("planned", None, 0, 1)
    ] * 2


def test_a_refused_goal_names_its_row_and_stores_nothing(engine: Engine) -> None:
    """A goal that does not fit, or says what only the server knows, is refused by its place."""
    with pytest.raises(InvalidInputError) as wrong:
        submit_many(engine, *goals("a", "b"), {"script": [], "refuse_goal": True})
    assert wrong.value.fields["row"] == 2
    assert [problem.pointer for problem in wrong.value.errors] == ["/2/goal/refuse_goal"]
    with pytest.raises(ReservedKeyError) as reserved:
        submit_many(engine, *goals("a"), {"script": [], "tenant_id": "x"})
    assert [problem.pointer for problem in reserved.value.errors] == ["/1/tenant_id"]
    assert rows(engine).count() == 0


def test_only_who_may_start_tasks_starts_many(engine: Engine) -> None:
    """The capability is asked for once, before anything is looked at."""
    with pytest.raises(NotAllowedError):
        submit_many(engine, {"no": "goal"}, by=engine.approver)


def test_keys_replay_across_and_inside_lists(engine: Engine) -> None:
    """A key stands for one task, whether it was used before or earlier in the list."""
    first = engine.submit({**SAY, "text": "a"}, SAY, idempotency_key="k1")
    keys = ["k2", "k1", None, "k2"]
    ids = submit_many(engine, *goals("b", "a", "c", "b"), idempotency_keys=keys)
    assert ids[1] == first
    assert ids[0] == ids[3]
    assert rows(engine).count() == 3
    assert submit_many(engine, *goals("b", "a"), idempotency_keys=["k2", "k1"]) == ids[:2]


@pytest.mark.parametrize("used_before", [True, False])
def test_a_key_of_another_goal_is_refused_by_row(engine: Engine, used_before: bool) -> None:
    """The same key for another goal is a conflict, and nothing of the list is stored."""
    if used_before:
        engine.submit({**SAY, "text": "a"}, SAY, idempotency_key="k1")
    with pytest.raises(IdempotencyMismatchError) as caught:
        submit_many(engine, *goals("x", "a", "b"), idempotency_keys=[None, "k1", "k1"])
    assert caught.value.fields["row"] == 2
    assert rows(engine).count() == int(used_before)


def test_a_key_that_another_process_uses_meanwhile_replays(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody is faster after the look: the list is stored with that task in its place."""
    made: list[UUID] = []

    def overtake(name: str, *_: Any) -> None:
        if name == "admit.before_insert" and not made:
            made.append(UUID(int=0))
            made[0] = engine.submit({**SAY, "text": "b"}, SAY, idempotency_key="k2")

    monkeypatch.setattr("tasks_app.syncpoints.scheduler", overtake)
    ids = submit_many(engine, *goals("a", "b"), idempotency_keys=["k1", "k2"])
    assert ids[1] == made[0]
    assert rows(engine).count() == 2


def test_budgets_are_asked_for_together(engine: Engine) -> None:
    """What stands above is taken once for all; if it is not enough, nothing is stored."""
    tenant_id = engine.tenant.id
    above = Budget.objects.create(tenant_id=tenant_id, kind="steps", limit_amount=5)
    with pytest.raises(BudgetRequiredError):
        submit_many(engine, *goals("a"))
    definition = registry.get_definition("scripted")
    limits = definition.budget
    try:
        definition.budget = type(limits)(steps=2)
        with pytest.raises(BudgetInsufficientError):
            submit_many(engine, *goals("a", "b", "c"))
        assert rows(engine).count() == 0
        ids = submit_many(engine, *goals("a", "b"))
    finally:
        definition.budget = limits
    granted = Reservation.objects.for_tenant(tenant_id).filter(kind="steps")
    assert {row.task_id for row in granted} == set(ids)
    assert Budget.objects.for_tenant(tenant_id).get(pk=above.pk).reserved == 4


def test_many_join_the_callers_transaction(engine: Engine) -> None:
    """E11: what the caller rolls back was never admitted."""
    with transaction.atomic():
        submit_many(engine, *goals("a", "b"))
        transaction.set_rollback(True)
    assert rows(engine).count() == 0


def test_no_more_messages_than_wake_workers(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is awake takes one task after the other, so a list sends few messages."""
    sent: list[Any] = []
    monkeypatch.setattr(current_app, "send_task", lambda *a, **_: sent.append(a))
    for waiting, expected in ((0, continuation.ENOUGH_WAITING), (5, 3), (100, 0)):
        sent.clear()
        monkeypatch.setattr(continuation, "count_waiting", lambda n=waiting: n)
        submit_many(engine, *goals(*map(str, range(20))))
        assert len(sent) == expected


def test_one_submission_is_two_statements(engine: Engine) -> None:
    """E95: one look, one statement that stores everything and commits by itself."""
    engine.submit(SAY)
    with CaptureQueriesContext(connection) as captured:
        engine.submit(SAY, SAY, idempotency_key="once")
    assert len(captured) == 2


def test_disabled_agent_refuses(engine: Engine) -> None:
    """A tenant whose agent is disabled starts nothing."""
    factories.make_agent(engine.tenant, status="disabled")
    by = principal.from_user(factories.make_member(engine.tenant, ["submitter"]), engine.tenant.id)
    with pytest.raises(NotAllowedError):
        submit_many(engine, *goals("a"), by=by)
