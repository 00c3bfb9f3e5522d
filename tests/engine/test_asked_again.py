"""An approval that ran out after it was given is asked for again, whoever dies meanwhile."""

from pathlib import Path

import pytest
from django.db import connection

from tasks_app.admission.approvals import decide_approval
from tasks_app.engine import waits
from tasks_app.models import Approval
from tests.support import oracles
from tests.support.engine import Engine, lines


class Death(BaseException):
    """Ends the slice where it stands, as SIGKILL would."""


def approve(engine: Engine) -> Approval:
    asked = Approval.objects.for_tenant(engine.tenant.id).get(status="pending")
    decide_approval(
        engine.approver,
        approval_id=asked.id,
        decision="approve",
        args_sha256=asked.args_sha256,
        expected_version=asked.version,
        reason="looks right",
        source="rest",
    )
    return asked


def test_worker_that_dies_before_it_asks_again_leaves_the_question_open(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next worker asks; it does not pass over the act as refused (found by model seed 14)."""
    out = tmp_path / "out"
    task_id = engine.submit({"op": "effect", "key": "k", "append": str(out), "approve": True})
    assert engine.drive(task_id).status == "input_required"
    given = approve(engine)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE tasks_app_approval SET expires_at = clock_timestamp() - interval '1 s'"
            " WHERE id = %s",
            [given.id],
        )

    def die(*_: object) -> None:
        raise Death

    with monkeypatch.context() as patched:
        patched.setattr(waits, "_ask", die)
        with pytest.raises(Death):
            engine.run(task_id)
    engine.lose_lease(task_id)
    assert engine.drive(task_id).status == "input_required"
    assert lines(out) == []
    approve(engine)
    task = engine.drive(task_id)
    assert (task.status, len(lines(out))) == ("completed", 1)
    oracles.check_task(task, at_rest=True)
