"""Two people, or one person twice, at the same moment."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from tasks_app.admission import approvals, tasks
from tasks_app.admission.approvals import Decided
from tasks_app.admission.commands import Submitted
from tasks_app.admission.tasks import Admitted
from tasks_app.domain.errors import (
    ApprovalDecidedError,
    IdempotencyMismatchError,
    VersionConflictError,
)
from tasks_app.domain.principal import Principal
from tasks_app.engine import lease
from tasks_app.models import Approval, ApprovalDecision, SteeringCommand, Task
from tests.races.actors import Actor, row_held, together
from tests.support import evidence, oracles
from tests.support.engine import Engine
from tests.support.syncdir import SyncDir


def working(engine: Engine) -> UUID:
    task_id = engine.submit({"op": "say"})
    assert lease.claim(task_id) is not None
    return task_id


def paused(engine: Engine) -> UUID:
    task_id = engine.submit({"op": "say"})
    engine.steer(task_id, "pause")
    return task_id


def asking(engine: Engine) -> UUID:
    task_id = engine.submit({"op": "interrupt", "value": "which?"})
    assert engine.drive(task_id).status == "input_required"
    return task_id


COMMANDS: list[tuple[str, Callable[[Engine], UUID], dict[str, Any]]] = [
    ("pause", working, {}),
    ("resume", paused, {}),
    ("cancel", working, {}),
    ("adjust_goal", working, {"note": "another"}),
    ("provide_input", asking, {"answer": {"choice": "this"}}),
    ("set_priority", working, {"priority": 1}),
]


@pytest.mark.parametrize(
    ("kind", "prepared", "payload"), COMMANDS, ids=[command[0] for command in COMMANDS]
)
def test_two_operators_with_one_version(
    engine: Engine, kind: str, prepared: Callable[[Engine], UUID], payload: dict[str, Any]
) -> None:
    """One is accepted, the other is told that the task moved on; one command is stored (E6)."""
    task_id = prepared(engine)
    version = engine.task(task_id).state_version
    before = SteeringCommand.objects.for_tenant(engine.tenant.id).count()
    operators = [engine.operator, engine.person("operator")]

    def give(by: Principal) -> Submitted:
        return engine.steer(task_id, kind, by=by, payload=payload, expected_version=version)

    with row_held(task_id, until_waiting=2):
        actors = [Actor(lambda by=by: give(by)) for by in operators]  # type: ignore[misc]
    results = [actor.result() for actor in actors]
    accepted = [result for result in results if isinstance(result, Submitted)]
    refused = [result for result in results if isinstance(result, VersionConflictError)]
    assert (len(accepted), len(refused)) == (1, 1), results
    assert refused[0].fields["currentVersion"] == accepted[0].state_version
    assert SteeringCommand.objects.for_tenant(engine.tenant.id).count() == before + 1
    oracles.check_audit(evidence.of(engine.task(task_id)))
    oracles.check_versions(evidence.of(engine.task(task_id)))


def test_one_command_sent_eight_times_at_once(engine: Engine) -> None:
    """The same command id is one command, and every sender hears of the same outcome."""
    task_id = working(engine)
    version = engine.task(task_id).state_version
    command = UUID("11111111-2222-4333-8444-555555555555")

    def give() -> Submitted:
        return engine.steer(task_id, "pause", command_id=command, expected_version=version)

    results = together([give] * 8)
    assert [result.replayed for result in results].count(False) == 1
    assert {(result.command_id, result.status) for result in results} == {(command, "pending")}
    assert SteeringCommand.objects.for_tenant(engine.tenant.id).count() == 1


def test_one_idempotency_key_admitted_by_eight(engine: Engine, sync: SyncDir) -> None:
    """All looked for the key before anybody stored it: one task, eight answers (S2)."""
    sync.hold("admit.before_insert")
    actors = [Actor(lambda: admit(engine, "one")) for _ in range(8)]
    sync.wait_hit("admit.before_insert", count=8)
    sync.release("admit.before_insert")
    results = [actor.result() for actor in actors]
    assert all(isinstance(result, Admitted) for result in results), results
    assert len({result.task_id for result in results}) == 1
    assert [result.replayed for result in results].count(False) == 1
    assert Task.objects.for_tenant(engine.tenant.id).count() == 1


def test_one_idempotency_key_for_two_goals(engine: Engine, sync: SyncDir) -> None:
    """The later of two different requests is refused, never answered with the other's task."""
    sync.hold("admit.before_insert")
    actors = [Actor(lambda: admit(engine, "one")), Actor(lambda: admit(engine, "another"))]
    sync.wait_hit("admit.before_insert", count=2)
    sync.release("admit.before_insert")
    assert {type(actor.result()) for actor in actors} == {Admitted, IdempotencyMismatchError}
    assert Task.objects.for_tenant(engine.tenant.id).count() == 1


def admit(engine: Engine, text: str) -> Admitted:
    return tasks.admit_task(
        engine.submitter,
        workflow="scripted",
        goal={"script": [{"op": "say", "text": text}]},
        source="rest",
        idempotency_key="the key",
    )


def waiting_for_approval(engine: Engine, **options: Any) -> Approval:
    task_id = engine.submit({"op": "effect", "key": "act", "approve": True}, **options)
    assert engine.drive(task_id).status == "input_required"
    found: Approval = Approval.objects.for_tenant(engine.tenant.id).get(task_id=task_id)
    return found


def decide(approval: Approval, by: Principal, decision: str) -> Decided:
    return approvals.decide_approval(
        by,
        approval_id=approval.id,
        decision=decision,
        args_sha256=approval.args_sha256,
        expected_version=approval.version,
        reason="seen",
        source="rest",
    )


def test_two_approvers_decide_at_once(engine: Engine) -> None:
    """The first decision stands, the second hears so; never both (S57, S62)."""
    approval = waiting_for_approval(engine)
    other = engine.person("approver")
    with row_held(approval.task_id, until_waiting=2):
        actors = [
            Actor(lambda: decide(approval, engine.approver, "approve")),
            Actor(lambda: decide(approval, other, "deny")),
        ]
    results = [actor.result() for actor in actors]
    (decided,) = [result for result in results if isinstance(result, Decided)]
    assert sum(isinstance(result, ApprovalDecidedError) for result in results) == 1, results
    rows = ApprovalDecision.objects.for_tenant(engine.tenant.id)
    assert rows.count() == 1
    task = engine.drive(approval.task_id)
    outcome = Approval.objects.for_tenant(engine.tenant.id).get(pk=approval.pk).status
    assert outcome == ("consumed" if decided.status == "approved" else "denied")
    oracles.check_audit(evidence.of(task))


def test_one_approver_clicks_twice(engine: Engine) -> None:
    """Two tabs, one person: one decision is stored."""
    approval = waiting_for_approval(engine)
    with row_held(approval.task_id, until_waiting=2):
        actors = [Actor(lambda: decide(approval, engine.approver, "approve")) for _ in range(2)]
    kinds = {type(actor.result()) for actor in actors}
    assert kinds == {Decided, ApprovalDecidedError}
    assert ApprovalDecision.objects.for_tenant(engine.tenant.id).count() == 1
