"""The processes' database roles suffice for their work and for nothing else (S33, S106)."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.utils import ProgrammingError

from tasks_app.admission import firing, replays
from tasks_app.admission.approvals import decide_approval
from tasks_app.engine import recovery
from tasks_app.models import Approval, KeptAnswer
from tests.support.engine import Engine, lines


@contextmanager
def role(name: str) -> Iterator[None]:
    """Act as one of the roles on this connection."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET ROLE {name}")
        try:
            yield
        finally:
            cursor.execute("RESET ROLE")


def execute(statement: str) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


def test_web_admits_and_decides_while_a_worker_executes(engine: Engine, tmp_path: Path) -> None:
    """A whole task runs with no more rights than the two roles have."""
    out = tmp_path / "out"
    KeptAnswer.objects.create(
        tenant=engine.tenant, actor="user:1", key="k", fingerprint="", status=200,
        created_at=datetime(2020, 1, 1, tzinfo=UTC),
    )  # fmt: skip
    act: dict[str, Any] = {"op": "effect", "key": "k", "append": str(out), "approve": True}
    with role("rt_web"):
        task_id = engine.submit({"op": "map", "count": 5}, act, {"op": "fail", "times": 1})
    with role("rt_worker"):
        assert engine.run(task_id) == "input_required"
        recovery.sweep()
        firing.fire_due()
        assert replays.forget_old() == 1
    with role("rt_web"):
        approval = Approval.objects.visible_to(engine.approver).get(task_id=task_id)
        decide_approval(
            engine.approver,
            approval_id=approval.id,
            decision="approve",
            args_sha256=approval.args_sha256,
            expected_version=approval.version,
            reason="fine",
            source="rest",
        )
        engine.steer(task_id, "set_priority", payload={"priority": 1})
    with role("rt_worker"):
        engine.run(task_id)
    assert len(lines(out)) == 1
    with role("rt_web"):
        engine.steer(task_id, "cancel")


@pytest.mark.parametrize("name", ["rt_web", "rt_worker"])
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM tasks_app_task",
        "TRUNCATE tasks_app_event",
        "UPDATE tasks_app_event SET type = 'x'",
        "UPDATE tasks_app_checkpoint SET sha256 = 'x'",
        "DELETE FROM tasks_app_steeringcommand",
        "UPDATE tasks_app_approvaldecision SET decision = 'approve'",
        "INSERT INTO ledger_app_auditentry DEFAULT VALUES",
        "DELETE FROM ledger_app_effect",
        "ALTER TABLE tasks_app_task DISABLE TRIGGER ALL",
    ],
)
def test_roles_cannot_rewrite_history(transactional_db: None, name: str, statement: str) -> None:
    """P23, A33: changing or removing history is refused by the database."""
    with role(name), pytest.raises(ProgrammingError, match=r"permission denied|must be owner"):
        execute(statement)


def test_worker_cannot_change_who_may_do_what(transactional_db: None) -> None:
    """A worker reads memberships and keys and changes none."""
    with role("rt_worker"), pytest.raises(ProgrammingError, match="permission denied"):
        execute("UPDATE tasks_app_membership SET roles = '{admin}'")
