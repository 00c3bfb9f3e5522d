"""What a checkpoint holds, how large it may be, and how an older one is continued from."""

from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, connection, transaction
from pytest_django import Settings

from tasks_app.domain import checkpoint
from tasks_app.domain.checkpoint import MAX_BYTES, CheckpointDocument
from tasks_app.domain.errors import CorruptCheckpointError
from tasks_app.domain.states import TaskStatus
from tasks_app.engine import checkpoints, continuation, rewind, transitions
from tasks_app.models import Checkpoint, Task
from tests.engine.test_roles import role
from tests.support import oracles
from tests.support.engine import Engine, lines


def rows_of(engine: Engine, task_id: UUID) -> list[Checkpoint]:
    rows = Checkpoint.objects.for_tenant(engine.tenant.id).filter(task_id=task_id)
    return list(rows.order_by("seq"))


def newest(engine: Engine, task_id: UUID) -> CheckpointDocument:
    row = rows_of(engine, task_id)[-1]
    return checkpoint.parse(row.document, row.sha256)


def damage(row: Checkpoint) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE tasks_app_checkpoint DISABLE TRIGGER USER")
        cursor.execute(
            "UPDATE tasks_app_checkpoint SET document = document || ' ' WHERE id = %s", [row.pk]
        )
        cursor.execute("ALTER TABLE tasks_app_checkpoint ENABLE TRIGGER USER")


def continue_from(engine: Engine, task_id: UUID, seq: int) -> rewind.Rewind:
    """Do what the dead letter's verb does: rewind, then back to the queue."""
    with transaction.atomic():
        task = Task.objects.for_tenant(engine.tenant.id).select_for_update().get(pk=task_id)
        found = rewind.rewind(task, seq)
        source = TaskStatus(task.status)
        transitions.move(task.id, task.tenant_id, source, TaskStatus.QUEUED, due="now")
        continuation.owe(task.id, task.tenant_id, "repair")
    return found


@pytest.mark.parametrize("positions", [range(0), range(1), range(7), range(2, 4)])
def test_whole_range_is_compressed_like_its_members(positions: range) -> None:
    """A plan up to its cursor is told without counting its steps."""
    assert checkpoint.compress(positions) == checkpoint.compress(list(positions))


def document(**changes: Any) -> CheckpointDocument:
    values: dict[str, Any] = {
        "task_id": str(uuid4()),
        "checkpoint_seq": 10_000,
        "plan_version": 3,
        "next_step": "s" * 100,
        "next_position": 99_999,
        "completed_steps": [*checkpoint.compress(range(99_999)), f"{'s' * 100}[0..99999]"],
        "variables": {"next_item": 100_000},
        "artifacts": [],
        "side_effects": [],
        "steering_cursor": 100_000,
        "fence": 2**40,
        "created_at": "2026-11-30T05:32:49.843857+00:00",
        "workflow": "w" * 100 + "@1",
        **changes,
    }
    return CheckpointDocument(**values)


def test_checkpoint_names_what_was_made_and_done(engine: Engine, tmp_path: Path) -> None:
    """E50: outputs and acts by reference, of this slice and of those before, with their states."""
    act = {"op": "effect", "key": "k", "append": str(tmp_path / "out")}
    write = [{"op": "write", "path": name, "text": name} for name in ("a", "b")]
    task_id = engine.submit(write[0], act, {"op": "interrupt"}, write[1])
    engine.drive(task_id)
    engine.steer(task_id, "provide_input", payload={"answer": {}})
    engine.drive(task_id)
    last = newest(engine, task_id)
    assert [row["name"] for row in last.artifacts] == ["b", "a"]
    assert last.side_effects == [{"key": f"{task_id}:act", "state": "succeeded"}]
    assert (last.workflow, last.continued_from) == ("scripted@1", None)


def test_references_in_memory_equal_the_rows(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Checkpoints read no references: the session knows what a query would have found."""
    monkeypatch.setattr(checkpoints, "_NEWEST", 4)
    script: list[dict[str, Any]] = []
    for number in range(6):
        script.append({"op": "write", "path": f"file {number}", "text": f"text {number % 3}"})
        script.append({"op": "effect", "key": f"k{number}", "append": str(tmp_path / "out")})
    task_id = engine.submit(*script)
    engine.drive(task_id)
    stored = checkpoints.References.load(engine.tenant.id, task_id)
    last = newest(engine, task_id)
    assert last.artifacts == stored.artifact_list()
    assert last.side_effects == stored.effect_list()
    assert (len(last.artifacts), len(last.side_effects)) == (4, 4)


def test_checkpoint_stays_within_64_kib_however_large_the_task(engine: Engine) -> None:
    """E50: 100,000 steps and items, thousands of outputs with the longest names, of four bytes."""
    references = checkpoints.References()
    for number in range(5_000):
        name = f"{number:05}" + "\N{GRINNING FACE}" * 250
        references.note_artifact(uuid4(), name, "f" * 64)
        references.note_effect(f"{uuid4()}:{'s' * 100}@{number}", "succeeded")
    full = document(artifacts=references.artifact_list(), side_effects=references.effect_list())
    assert len(full.text().encode()) > MAX_BYTES
    text = full.fitted_text()
    kept = checkpoint.parse(text, checkpoint.digest(text))
    assert 32_768 < len(text.encode()) <= MAX_BYTES
    assert kept.artifacts == full.artifacts[: len(kept.artifacts)]
    assert kept.side_effects == full.side_effects[-len(kept.side_effects) :]
    assert kept.completed_steps == full.completed_steps


def test_data_in_the_wrong_place_is_refused() -> None:
    """A document that is too large without any reference holds what belongs into rows."""
    with pytest.raises(CorruptCheckpointError, match="64 KiB"):
        document(variables={"notes": "x" * MAX_BYTES}).fitted_text()


@pytest.fixture
def held(engine: Engine, settings: Settings, tmp_path: Path) -> UUID:
    """Return a dead letter: three slices done, the newest checkpoint damaged."""
    settings.RUNTIME = {**settings.RUNTIME, "slice_steps": 3}
    say = {"op": "say", "append": str(tmp_path / "ran")}
    act = {"op": "effect", "key": "k", "append": str(tmp_path / "out")}
    task_id = engine.submit(*[say] * 3, act, *[say] * 8)
    assert [engine.run(task_id) for _ in range(3)] == ["slice_spent"] * 3
    damage(rows_of(engine, task_id)[-1])
    assert engine.run(task_id) == "dead_lettered"
    return task_id


def test_person_chooses_the_previous_good_checkpoint(
    engine: Engine, held: UUID, tmp_path: Path
) -> None:
    """E60: no finished step runs again, no act is done twice, the new document says what it is."""
    task = engine.task(held)
    listed = rewind.list_verified(task.tenant_id, task.id)
    assert [bool(row.fault) for row in listed] == [True, *[False] * (len(listed) - 1)]
    good = listed[-1]
    found = rewind.preview(task, good.seq)
    assert found.next_step == "run.9"
    assert found.kept_count == len(found.kept) == 6
    assert found.effects == {f"{held}:act": "succeeded"}
    assert continue_from(engine, held, good.seq) == found
    document = newest(engine, held)
    assert (document.continued_from, document.checkpoint_seq) == (good.seq, listed[0].seq + 1)
    assert document.next_position == found.next_position
    assert engine.drive(held).status == "completed"
    assert (len(lines(tmp_path / "ran")), len(lines(tmp_path / "out"))) == (11, 1)
    engine.assert_audit_verifies(held)


def test_removed_newest_checkpoint_can_be_passed_over(engine: Engine, held: UUID) -> None:
    """A missing one is no obstacle either: numbers go on behind the one that the row knows."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE tasks_app_checkpoint DISABLE TRIGGER USER")
        newest_id = rows_of(engine, held)[-1].pk
        cursor.execute("DELETE FROM tasks_app_checkpoint WHERE id = %s", [newest_id])
        cursor.execute("ALTER TABLE tasks_app_checkpoint ENABLE TRIGGER USER")
    continue_from(engine, held, rows_of(engine, held)[-1].seq)
    assert engine.drive(held).status == "completed"


@pytest.mark.parametrize("which", ["damaged", "missing"])
def test_unsound_checkpoint_is_refused_and_changes_nothing(
    engine: Engine, held: UUID, which: str
) -> None:
    """What a slice would not trust, a person cannot choose by mistake."""
    before = (engine.task(held).checkpoint_seq, len(rows_of(engine, held)))
    seq = before[0] if which == "damaged" else 99
    for act in (rewind.preview, rewind.rewind):
        with pytest.raises(CorruptCheckpointError):
            act(engine.task(held), seq)
    assert (engine.task(held).checkpoint_seq, len(rows_of(engine, held))) == before


def test_checkpoint_of_an_older_plan_goes_on_in_the_newer_one(
    engine: Engine, settings: Settings, tmp_path: Path
) -> None:
    """The goal was changed since: the newer plan counts, at its first step without a result."""
    settings.RUNTIME = {**settings.RUNTIME, "slice_steps": 2}
    say = {"op": "say", "append": str(tmp_path / "ran")}
    task_id = engine.submit(*[say] * 6)
    engine.run(task_id)
    script = [say, say, {"op": "set", "values": {}}, say, say]
    engine.steer(task_id, "adjust_goal", payload={"script": script})
    engine.run(task_id)
    damage(rows_of(engine, task_id)[-1])
    assert engine.run(task_id) == "dead_lettered"
    older = rewind.list_verified(engine.tenant.id, task_id)[-1]
    assert (older.plan_version, older.same_plan) == (1, False)
    found = continue_from(engine, task_id, older.seq)
    assert (found.next_step, found.kept_count) == ("run.5", 4)
    assert engine.drive(task_id).status == "completed"
    assert len(lines(tmp_path / "ran")) == 4


# --- pruning -------------------------------------------------------------------------------------
def test_newest_ten_and_named_checkpoints_are_kept(engine: Engine) -> None:
    """E53: a long task keeps what it may go on from and what people look back at."""
    script = [{"op": "say"}] * 5 + [{"op": "interrupt"}] + [{"op": "say"}] * 25
    task_id = engine.submit(*script, checkpoint_policy={"every_steps": 1})
    engine.drive(task_id)
    engine.steer(task_id, "provide_input", payload={"answer": {}})
    engine.drive(task_id)
    kept = {row.seq: row.reason for row in rows_of(engine, task_id)}
    last = engine.task(task_id).checkpoint_seq
    assert last == 32
    assert sorted(kept) == [6, *range(last - 9, last + 1)]
    assert (kept[6], kept[last]) == ("question", "end")
    oracles.check_task(engine.task(task_id))


def test_ten_checkpoints_are_all_kept(engine: Engine) -> None:
    """The eleventh is the first that pushes one out."""
    for steps, kept in ((9, 10), (10, 10), (11, 10)):
        task_id = engine.submit(*[{"op": "say"}] * steps, checkpoint_policy={"every_steps": 1})
        engine.drive(task_id)
        assert len(rows_of(engine, task_id)) == kept


@pytest.mark.parametrize("name", ["rt_web", "rt_worker"])
def test_roles_remove_only_old_checkpoints_without_a_name(engine: Engine, name: str) -> None:
    """P23: the right to prune is no right to remove what a task goes on from."""
    script = [{"op": "say"}] * 2 + [{"op": "interrupt"}] + [{"op": "say"}] * 3
    with role("rt_worker"):
        task_id = engine.submit(*script, checkpoint_policy={"every_steps": 1})
        engine.drive(task_id)
    for seq in (1, 3):
        with (
            role(name),
            pytest.raises(IntegrityError, match="is kept"),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute("DELETE FROM tasks_app_checkpoint WHERE seq = %s", [seq])
    with connection.cursor() as cursor:
        cursor.execute("UPDATE tasks_app_task SET checkpoint_seq = 20 WHERE id = %s", [task_id])
    with role(name), pytest.raises(IntegrityError), connection.cursor() as cursor:
        cursor.execute("DELETE FROM tasks_app_checkpoint WHERE seq = 3")
    with role(name), connection.cursor() as cursor:
        cursor.execute("DELETE FROM tasks_app_checkpoint WHERE seq = 1")
        assert cursor.rowcount == 1


def test_worker_and_web_roles_prune(engine: Engine, settings: Settings) -> None:
    """The statements of both processes have the right that they need."""
    settings.RUNTIME = {**settings.RUNTIME, "slice_steps": 14}
    with role("rt_worker"):
        task_id = engine.submit(*[{"op": "say"}] * 20, checkpoint_policy={"every_steps": 1})
        engine.run(task_id)
    damage(rows_of(engine, task_id)[-1])
    assert engine.run(task_id) == "dead_lettered"
    before = [row.seq for row in rows_of(engine, task_id)]
    with role("rt_web"):
        continue_from(engine, task_id, before[-2])
    assert [row.seq for row in rows_of(engine, task_id)] == [*before[1:], before[-1] + 1]
