"""Approvals: bound to one exact act, decided by other people, used once."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from ledger_app.queries import list_effects
from tasks_app.admission.approvals import Decided, decide_approval
from tasks_app.domain.errors import (
    ApprovalChangedError,
    ApprovalDecidedError,
    ApprovalDigestRequiredError,
    InvalidInputError,
    NotAllowedError,
    NotFoundError,
    SelfApprovalError,
    VersionRequiredError,
)
from tasks_app.engine import recovery
from tasks_app.models import Approval
from tasks_app.queries.snapshot import get_snapshot
from tests.support.engine import Engine, lines


def act(path: Path, **rest: Any) -> dict[str, Any]:
    return {"op": "effect", "key": "mail", "append": str(path), "approve": True, **rest}


def approval_of(engine: Engine, task_id: UUID, status: str = "pending") -> Approval:
    return Approval.objects.for_tenant(engine.tenant.id).get(task_id=task_id, status=status)


def decide(
    engine: Engine, approval: Approval, decision: str = "approve", by: Any = None, **changes: Any
) -> Decided:
    request: dict[str, Any] = {
        "approval_id": approval.id,
        "decision": decision,
        "args_sha256": approval.args_sha256,
        "expected_version": approval.version,
        "reason": "looks right",
        "source": "rest",
        **changes,
    }
    return decide_approval(by or engine.approver, **request)


def waiting(engine: Engine, path: Path, **rest: Any) -> UUID:
    task_id = engine.submit(act(path, **rest))
    assert engine.drive(task_id).status == "input_required"
    return task_id


def test_nothing_is_done_before_the_approval(engine: Engine, tmp_path: Path) -> None:
    """M16.5: the task waits without a lease; after the approval the act is done once."""
    out = tmp_path / "out"
    task_id = waiting(engine, out)
    task = engine.task(task_id)
    assert (lines(out), task.lease_owner) == ([], None)
    decide(engine, approval_of(engine, task_id))
    assert engine.drive(task_id).status == "completed"
    assert len(lines(out)) == 1
    assert approval_of(engine, task_id, "consumed").consumed_at is not None
    effect = list_effects(tenant_id=engine.tenant.id, task_id=task_id)[0]
    assert effect.args_sha256 == approval_of(engine, task_id, "consumed").args_sha256
    engine.assert_audit_verifies(task_id)


def test_denied_act_is_skipped_and_the_task_goes_on(engine: Engine, tmp_path: Path) -> None:
    """S62: deny leads to the planned branch, without a retry."""
    out = tmp_path / "out"
    task_id = engine.submit(act(out), {"op": "set", "values": {"after": True}})
    engine.drive(task_id)
    decide(engine, approval_of(engine, task_id), "deny")
    task = engine.drive(task_id)
    assert (task.status, task.result, lines(out)) == ("completed", {"after": True}, [])
    snapshot = get_snapshot(engine.operator, task_id)
    assert snapshot.status_message == "Completed without act: not approved."
    assert [(act.tool, act.status) for act in snapshot.refused_acts] == [("act", "denied")]


def test_expired_approval_counts_as_denied(engine: Engine, tmp_path: Path) -> None:
    """S61: nobody answered in time: not done; a late decision is refused."""
    task_id = waiting(engine, tmp_path / "out")
    approval = approval_of(engine, task_id)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE tasks_app_approval SET expires_at = clock_timestamp() - interval '1 s';"
            "UPDATE tasks_app_task SET next_wake_at = clock_timestamp() - interval '1 s'"
        )
    with pytest.raises(ApprovalDecidedError):
        decide(engine, approval)
    recovery.expire_questions()
    assert engine.drive(task_id).status == "completed"
    assert lines(tmp_path / "out") == []
    assert approval_of(engine, task_id, "expired").decided_at is not None


def test_expired_approval_may_fail_the_task(engine: Engine, tmp_path: Path) -> None:
    """on_timeout="fail": the task fails with the reason."""
    task_id = waiting(engine, tmp_path / "out", on_timeout="fail")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE tasks_app_approval SET expires_at = clock_timestamp() - interval '1 s';"
            "UPDATE tasks_app_task SET next_wake_at = clock_timestamp() - interval '1 s'"
        )
    recovery.expire_questions()
    task = engine.drive(task_id)
    assert (task.status, task.stop_reason) == ("failed", "approval_expired")


def test_who_asked_or_shaped_it_does_not_decide(engine: Engine, tmp_path: Path) -> None:
    """S59, A12, A13: not the initiator in any role, not who adjusted the goal."""
    both = engine.person("submitter", "approver", "operator")
    task_id = engine.submit(act(tmp_path / "out"), by=both)
    engine.drive(task_id)
    with pytest.raises(SelfApprovalError):
        decide(engine, approval_of(engine, task_id), by=both)
    shaper = engine.person("operator", "approver")
    changed = act(tmp_path / "elsewhere")
    engine.steer(task_id, "adjust_goal", by=shaper, payload={"script": [changed]})
    assert engine.drive(task_id).status == "input_required"
    with pytest.raises(SelfApprovalError):
        decide(engine, approval_of(engine, task_id), by=shaper)
    assert (lines(tmp_path / "out"), lines(tmp_path / "elsewhere")) == ([], [])


def test_rights_and_sight(engine: Engine, tmp_path: Path) -> None:
    """Section 2: operators see but do not decide; another tenant's person sees nothing."""
    from tasks_app.admission import principal
    from tests import factories

    task_id = waiting(engine, tmp_path / "out")
    approval = approval_of(engine, task_id)
    with pytest.raises(NotAllowedError):
        decide(engine, approval, by=engine.operator)
    other = factories.make_tenant()
    stranger = principal.from_user(factories.make_member(other, "approver"), other.id)
    with pytest.raises(NotFoundError):
        decide(engine, approval, by=stranger)


def test_only_what_was_seen_can_be_decided(engine: Engine, tmp_path: Path) -> None:
    """S58: wrong digest or version is a conflict; missing ones are asked for; nothing changes."""
    task_id = waiting(engine, tmp_path / "out")
    approval = approval_of(engine, task_id)
    for changes, error in (
        ({"args_sha256": "0" * 64}, ApprovalChangedError),
        ({"expected_version": 7}, ApprovalChangedError),
        ({"args_sha256": ""}, ApprovalDigestRequiredError),
        ({"expected_version": None}, VersionRequiredError),
        ({"reason": " "}, InvalidInputError),
        ({"decision": "maybe"}, InvalidInputError),
    ):
        with pytest.raises(error):
            decide(engine, approval, **changes)
    assert approval_of(engine, task_id).version == 1


def test_a_decision_is_final(engine: Engine, tmp_path: Path) -> None:
    """S62: a second decision is a conflict."""
    task_id = waiting(engine, tmp_path / "out")
    approval = approval_of(engine, task_id)
    decide(engine, approval, "deny")
    with pytest.raises(ApprovalDecidedError):
        decide(engine, approval, by=engine.person("approver"))


def test_changed_arguments_void_the_approval(engine: Engine, tmp_path: Path) -> None:
    """A14: an approval of other arguments lets nothing through and the question is asked anew."""
    old, new = tmp_path / "old", tmp_path / "new"
    task_id = waiting(engine, old)
    first = approval_of(engine, task_id)
    decide(engine, first)
    engine.steer(task_id, "adjust_goal", payload={"script": [act(new)]})
    assert engine.drive(task_id).status == "input_required"
    second = approval_of(engine, task_id)
    assert second.args_sha256 != first.args_sha256
    assert approval_of(engine, task_id, "superseded").id == first.id
    decide(engine, second)
    engine.drive(task_id)
    assert (len(lines(old)), len(lines(new))) == (0, 1)


def test_approval_changed_in_the_database_is_not_used(engine: Engine, tmp_path: Path) -> None:
    """S57: the digest is compared when the approval is used, not only when it is given."""
    task_id = waiting(engine, tmp_path / "out")
    decide(engine, approval_of(engine, task_id))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE tasks_app_approval SET args_sha256 = repeat('0', 64)")
    assert engine.drive(task_id).status == "input_required"
    assert lines(tmp_path / "out") == []


def test_pause_while_waiting_does_not_cross_the_approval(engine: Engine, tmp_path: Path) -> None:
    """M16.5: paused, approved, still paused; the act comes only after the resume."""
    task_id = waiting(engine, tmp_path / "out")
    engine.steer(task_id, "pause")
    decide(engine, approval_of(engine, task_id))
    assert engine.task(task_id).status == "paused"
    assert lines(tmp_path / "out") == []
    engine.steer(task_id, "resume")
    assert engine.drive(task_id).status == "completed"
    assert len(lines(tmp_path / "out")) == 1


def test_task_wants_its_own_approval_before_an_act(engine: Engine, tmp_path: Path) -> None:
    """M6: `approvalPolicy.before` puts an approval in front of an act that has none."""
    operation = {"op": "effect", "key": "k", "append": str(tmp_path / "out")}
    task_id = engine.submit(operation, approval_policy={"before": ["act"]})
    assert engine.drive(task_id).status == "input_required"
    decide(engine, approval_of(engine, task_id))
    assert engine.drive(task_id).status == "completed"
    assert len(lines(tmp_path / "out")) == 1


def test_cancelled_task_takes_its_question_along(engine: Engine, tmp_path: Path) -> None:
    """A cancelled task's approval is closed; deciding it is refused."""
    task_id = waiting(engine, tmp_path / "out")
    approval = approval_of(engine, task_id)
    engine.steer(task_id, "cancel")
    with pytest.raises(ApprovalDecidedError):
        decide(engine, approval)
    assert lines(tmp_path / "out") == []


def test_used_approval_lets_no_second_act_through(engine: Engine, tmp_path: Path) -> None:
    """S57: an approval is for one call; another act with equal arguments is asked about anew."""
    out = tmp_path / "out"
    task_id = engine.submit(act(out), {"op": "interrupt", "value": "?"})
    engine.drive(task_id)
    decide(engine, approval_of(engine, task_id))
    assert engine.drive(task_id).status == "input_required"
    assert len(lines(out)) == 1
    with connection.cursor() as cursor:
        # What a later plan makes: the same act as a step of its own, behind the same approval.
        cursor.execute(
            "UPDATE tasks_app_step SET plan_version = 2, status = 'planned', result = NULL"
            " WHERE task_id = %s AND kind = 'effect'",
            [task_id],
        )
        cursor.execute(
            "UPDATE tasks_app_task SET plan_version = 2, next_position = 1 WHERE id = %s",
            [task_id],
        )
    engine.steer(task_id, "provide_input", payload={"answer": {}})
    assert engine.drive(task_id).status == "input_required"
    assert approval_of(engine, task_id).status == "pending"
    assert len(lines(out)) == 1
