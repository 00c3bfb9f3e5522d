"""Steps, maps, results, retries: what is stored once and never computed again."""

from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from ledger_app.queries import find_receipt
from tasks_app.domain.errors import InvalidInputError, UnknownWorkflowError
from tasks_app.models import Artifact, Attempt, Checkpoint, Event, Outbox, Slice, Step, Task
from tests.support.engine import Engine, lines


def test_script_runs_to_the_end(engine: Engine, tmp_path: Path) -> None:
    """E4: a task of every kind of step completes, with a receipt and a verified audit chain."""
    task_id = engine.submit(
        {"op": "say", "text": "hi"},
        {"op": "map", "count": 95, "fail": [3]},
        {"op": "effect", "key": "k", "append": str(tmp_path / "outside")},
        {"op": "write", "path": "a.txt", "text": "hello"},
        {"op": "sleep", "s": 60},
        {"op": "set", "values": {"x": 1}},
    )
    task = engine.drive(task_id)
    assert (task.status, task.result) == ("completed", {"x": 1})
    assert len(lines(tmp_path / "outside")) == 1
    receipt = find_receipt(tenant_id=engine.tenant.id, task_id=task_id)
    assert receipt is not None
    assert [item["name"] for item in receipt.items] == ["a.txt"]
    assert [effect["state"] for effect in receipt.effects] == ["succeeded"]
    engine.assert_audit_verifies(task_id)


def test_events_are_dense_and_fold_to_the_snapshot(engine: Engine) -> None:
    """M8: `seq` grows by one from 1; the last progress event says what the row says."""
    task_id = engine.submit(*[{"op": "say", "text": str(n)} for n in range(30)])
    task = engine.drive(task_id)
    events = list(
        Event.objects.for_tenant(engine.tenant.id).filter(task_id=task_id).order_by("seq")
    )
    assert [event.seq for event in events] == list(range(1, task.event_seq + 1))
    assert events[-1].type == "terminal"
    progress = [event.data["progress"] for event in events if event.type == "progress"]
    assert progress == sorted(progress)
    assert progress[-1] == 1.0


def test_progress_and_slices_leave_the_version_alone(engine: Engine, settings: Settings) -> None:
    """E31: neither slices nor steps nor checkpoints change what a person decides about."""
    settings.RUNTIME = {**settings.RUNTIME, "slice_steps": 5}
    task_id = engine.submit(*[{"op": "say"} for _ in range(30)])
    before = engine.task(task_id).state_version
    for _ in range(4):
        assert engine.run(task_id) == "slice_spent"
    assert engine.task(task_id).state_version == before
    assert Slice.objects.for_tenant(engine.tenant.id).filter(task_id=task_id).count() == 4


def test_slice_hands_on_and_owes_the_next_message(engine: Engine, settings: Settings) -> None:
    """E4: at the end of a slice the next message is owed in the same commit."""
    settings.RUNTIME = {**settings.RUNTIME, "slice_steps": 5}
    task_id = engine.submit(*[{"op": "say"} for _ in range(12)])
    assert engine.run(task_id) == "slice_spent"
    task = engine.task(task_id)
    assert (task.status, task.next_position, task.lease_owner) == ("queued", 5, None)
    assert Outbox.objects.for_tenant(engine.tenant.id).filter(task_id=task_id).exists()
    assert engine.drive(task_id).status == "completed"
    assert not Outbox.objects.for_tenant(engine.tenant.id).filter(task_id=task_id).exists()


def test_steps_run_once_over_many_slices(
    engine: Engine, settings: Settings, tmp_path: Path
) -> None:
    """E2: resuming goes on at the cursor; nothing that is done runs again."""
    settings.RUNTIME = {**settings.RUNTIME, "slice_steps": 3}
    task_id = engine.submit(*[{"op": "say", "append": str(tmp_path / "ran")} for _ in range(20)])
    assert engine.drive(task_id).status == "completed"
    assert len(lines(tmp_path / "ran")) == 20


def test_map_runs_each_item_once_and_collects_failures(
    engine: Engine, settings: Settings, tmp_path: Path
) -> None:
    """E-table map: results by item, a range cursor, failed items recorded."""
    settings.RUNTIME = {**settings.RUNTIME, "slice_steps": 25}
    task_id = engine.submit(
        {"op": "map", "count": 120, "fail": [7, 70], "append": str(tmp_path / "ran")}
    )
    task = engine.drive(task_id)
    assert task.status == "completed"
    expected = sum(n * n for n in range(120) if n not in {7, 70})
    assert task.result == {"count": 118, "failed": 2, "total": expected}
    assert sorted(map(int, lines(tmp_path / "ran"))) == [n for n in range(120) if n not in {7, 70}]


def test_map_stops_at_the_first_failure_unless_it_collects(engine: Engine) -> None:
    """A map without `on_error` fails its task; what was done before stays stored."""
    task_id = engine.submit({"op": "map", "count": 50, "fail": [], "max_failed": None})
    assert engine.drive(task_id).status == "completed"
    too_many = engine.submit({"op": "map", "count": 50, "fail": [3, 9], "max_failed": 1})
    task = engine.drive(too_many)
    assert (task.status, task.stop_reason) == ("failed", "step_failed")
    assert task.error["code"] == "TooManyFailedItemsError"


def test_empty_map_completes(engine: Engine) -> None:
    """A map over nothing is done at once."""
    task = engine.drive(engine.submit({"op": "map", "count": 0}))
    assert task.result == {"count": 0, "failed": 0, "total": 0}


def test_failing_step_is_tried_again_and_leaves_attempts(engine: Engine, tmp_path: Path) -> None:
    """E23: each failed try is a row with diagnostics; the step succeeds in the end."""
    task_id = engine.submit({"op": "fail", "times": 2, "append": str(tmp_path / "tries")})
    task = engine.drive(task_id)
    assert (task.status, task.result) == ("completed", {"tries": 3})
    rows = Attempt.objects.for_tenant(engine.tenant.id).filter(task_id=task_id)
    attempts = list(rows.order_by("number"))
    assert [attempt.number for attempt in attempts] == [1, 2]
    assert "the script says so" in attempts[0].error["message"]
    assert all(attempt.retry_at is not None for attempt in attempts)


def test_step_that_always_fails_fails_the_task(engine: Engine) -> None:
    """E23: after the last try the task fails, with the reason and a receipt."""
    task = engine.drive(engine.submit({"op": "fail"}, {"op": "say"}))
    assert (task.status, task.stop_reason) == ("failed", "step_failed")
    assert task.receipt_id is not None
    assert task.error["step"] == "fail"
    assert task.lease_owner is None


def test_checkpoint_follows_the_policy(engine: Engine) -> None:
    """E51: with `every_steps` 4 no more than 4 steps lie between two checkpoints."""
    task_id = engine.submit(
        *[{"op": "say"} for _ in range(21)], checkpoint_policy={"every_steps": 4}
    )
    assert engine.drive(task_id).status == "completed"
    rows = Checkpoint.objects.for_tenant(engine.tenant.id).filter(task_id=task_id).order_by("seq")
    positions = [__import__("json").loads(row.document)["next_position"] for row in rows]
    assert max(b - a for a, b in zip([0, *positions], positions, strict=False)) <= 4
    assert positions[-1] == 21


def test_large_result_is_stored_as_a_blob_and_read_back(engine: Engine) -> None:
    """Stack 2.2: results above 16 KiB leave the row; later steps read them all the same."""
    task_id = engine.submit({"op": "set", "values": {"text": "x" * 50_000}})
    task = engine.drive(task_id)
    step = Step.objects.for_tenant(engine.tenant.id).get(task_id=task_id)
    assert set(step.result) == {"blob", "size_bytes"}
    assert task.result == {"text": "x" * 50_000}


def test_text_that_postgresql_refuses_is_cleaned(engine: Engine) -> None:
    """A40: a result with NUL and lone surrogates does not fail the step again and again."""
    task = engine.drive(engine.submit({"op": "set", "values": {"text": "a"}}, {"op": "say"}))
    assert task.status == "completed"


def test_artifact_of_a_repeated_step_is_presented_once(engine: Engine) -> None:
    """The same content under the same name is one artifact, however often the step runs."""
    task_id = engine.submit({"op": "write", "path": "a.txt", "text": "hello"})
    assert engine.drive(task_id).status == "completed"
    rows = Artifact.objects.for_tenant(engine.tenant.id).filter(task_id=task_id)
    assert [(row.name, row.size_bytes) for row in rows] == [("a.txt", 5)]


def test_damaged_artifact_never_ends_in_success(engine: Engine, settings: Settings) -> None:
    """M40: presented outputs are checked by digest before the task may be completed."""
    task_id = engine.submit(
        {"op": "write", "path": "a.txt", "text": "hello"}, {"op": "interrupt", "value": "?"}
    )
    assert engine.drive(task_id).status == "input_required"
    row = Artifact.objects.for_tenant(engine.tenant.id).get(task_id=task_id)
    root = settings.RUNTIME["artifact_root"]
    stored = root / "tenant" / str(engine.tenant.id) / row.sha256[:2] / row.sha256
    stored.write_text("hallo")
    engine.steer(task_id, "provide_input", payload={"answer": {}})
    task = engine.drive(task_id)
    assert (task.status, task.error["code"]) == ("dead_lettered", "artifact_damaged")


@pytest.mark.parametrize(
    ("change", "error", "pointer"),
    [
        ({"workflow": "nope"}, UnknownWorkflowError, None),
        ({"goal": {"script": "x"}}, InvalidInputError, "/goal/script"),
        ({"goal": {"script": [], "color": 1}}, InvalidInputError, "/goal/color"),
        ({"goal": {"script": [], "refuse_goal": True}}, InvalidInputError, "/goal/refuse_goal"),
        ({"priority": 11}, InvalidInputError, "/priority"),
        ({"title": "a\x1b[31m"}, InvalidInputError, "/title"),
        ({"checkpoint_policy": {"every_steps": 0}}, InvalidInputError, None),
        ({"approval_policy": {"before": ["nothing"]}}, InvalidInputError, None),
        ({"idempotency_key": " "}, InvalidInputError, ""),
    ],
)
def test_bad_request_stores_nothing(
    engine: Engine, change: dict[str, Any], error: type[InvalidInputError], pointer: str | None
) -> None:
    """Bad input gets a clear error with a pointer and changes nothing."""
    from tasks_app.admission.tasks import admit_task

    request = {"workflow": "scripted", "goal": {"script": []}, "source": "rest", **change}
    with pytest.raises(error) as caught:
        admit_task(engine.submitter, **request)
    if pointer is not None:
        assert [problem.pointer for problem in caught.value.errors] == [pointer]
    assert Task.objects.for_tenant(engine.tenant.id).count() == 0


def test_admission_joins_the_callers_transaction(engine: Engine) -> None:
    """E11: what the caller rolls back was never admitted."""
    from django.db import transaction

    class UndoError(Exception):
        pass

    def undone() -> Any:
        with transaction.atomic():
            engine.submit({"op": "say"})
            raise UndoError

    with pytest.raises(UndoError):
        undone()
    assert Task.objects.for_tenant(engine.tenant.id).count() == 0
    assert Outbox.objects.for_tenant(engine.tenant.id).count() == 0


def test_idempotency_key_replays_and_refuses_another_request(engine: Engine) -> None:
    """M33: the same request returns the first task, another one is a conflict."""
    from tasks_app.domain.errors import IdempotencyMismatchError

    first = engine.submit({"op": "say"}, idempotency_key="k1")
    assert engine.submit({"op": "say"}, idempotency_key="k1") == first
    with pytest.raises(IdempotencyMismatchError):
        engine.submit({"op": "say", "text": "other"}, idempotency_key="k1")
    assert Task.objects.for_tenant(engine.tenant.id).count() == 1


def test_steps_tell_when_they_began_and_ended(engine: Engine) -> None:
    """Every finished step has both times by the database's clock, also a held back one."""
    task_id = engine.submit(
        {"op": "sleep", "s": 0.05, "block": True}, {"op": "map", "count": 3}, {"op": "say"}
    )
    assert engine.drive(task_id).status == "completed"
    steps = Step.objects.for_tenant(engine.tenant.id).filter(task_id=task_id).order_by("position")
    assert all(step.started_at <= step.finished_at for step in steps)
    assert (steps[0].finished_at - steps[0].started_at).total_seconds() >= 0.05
