"""What a run makes and hands over: its workspace, the verdict, the receipt (runs contract R64-R68)."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pytest_django import Settings

from ledger_app.queries import find_receipt
from tasks_app.admission import runs, threads
from tasks_app.domain.errors import InvalidInputError
from tasks_app.domain.run_bodies import parse
from tasks_app.domain.workspace import is_file, is_output
from tasks_app.models import Event, Run, Task
from tests.support.engine import Engine
from tests.support.syncdir import SyncDir

SAY = {"op": "say", "text": "hello"}


def write(path: str, text: str = "text") -> dict[str, Any]:
    return {"op": "write", "path": path, "text": text}


def present(*paths: str) -> dict[str, Any]:
    return {"op": "present", "paths": list(paths)}


@pytest.fixture(autouse=True)
def thread(engine: Engine) -> None:
    threads.create_thread(engine.submitter, key="talk", metadata={})


def start(engine: Engine, *script: dict[str, Any], **given: Any) -> UUID:
    body = {"assistant_id": "scripted", "input": {"script": list(script), **given}}
    return runs.create_run(engine.submitter, thread_key="talk", body=parse(body)).task_id


def driven(engine: Engine, *script: dict[str, Any], **given: Any) -> Task:
    return engine.drive(start(engine, *script, **given))


def delivery(task: Task) -> dict[str, Any]:
    """Return the one event that tells of a run's receipt."""
    events = Event.objects.for_tenant(task.tenant_id).filter(task_id=task.id)
    found: dict[str, Any] = events.get(type="delivery").data
    kinds = list(events.order_by("seq").values_list("type", flat=True))
    assert kinds[-3:] == ["status", "delivery", "terminal"]
    return found


def outcome(task: Task) -> tuple[str, str]:
    return task.status, task.stop_reason


def test_output_that_is_handed_over_is_delivered(engine: Engine) -> None:
    """The event names what was made and handed over; the ledger's receipt has its digest."""
    task = driven(engine, write("outputs/a.txt"), write("notes.txt"), present("outputs/a.txt"))
    assert outcome(task) == ("completed", "")
    told = delivery(task)
    assert told["producedPaths"] == told["matchedPaths"] == ["outputs/a.txt"]
    assert told["paths"] == ["notes.txt", "outputs/a.txt"]
    assert (told["presented"], told["satisfied"], told["outcome"]) == (2, True, "completed")
    receipt = find_receipt(tenant_id=task.tenant_id, task_id=task.id)
    assert receipt is not None
    digests = {str(item["name"]): item["sha256"] for item in receipt.items}
    assert digests == told["sha256"]


def test_output_that_is_kept_back_fails_the_run(engine: Engine) -> None:
    """R65: it made something for people, and nobody was given any of it."""
    task = driven(engine, write("outputs/a.txt"), write("notes.txt"))
    assert outcome(task) == ("failed", "delivery_incomplete")
    assert task.error is not None
    assert "no produced output artifact was presented" in task.error["message"]
    told = delivery(task)
    assert (told["satisfied"], told["producedPaths"], told["matchedPaths"]) == (
        False, ["outputs/a.txt"], [],
    )  # fmt: skip


@pytest.mark.parametrize("path", ["outputs", "outputs/", "outputs/deep", "outputs/deep/b.txt"])
def test_a_folder_hands_over_what_lies_in_it(engine: Engine, path: str) -> None:
    """R65: one path that covers one output is enough."""
    task = driven(engine, write("outputs/a.txt"), write("outputs/deep/b.txt"), present(path))
    assert task.status == "completed"
    assert "outputs/deep/b.txt" in delivery(task)["matchedPaths"]


@pytest.mark.parametrize(
    "path", ["outputs/b.txt", "outputs/empty.txt", "../a.txt", "/a.txt", "out"]
)
def test_what_is_not_there_cannot_be_handed_over(engine: Engine, path: str) -> None:
    """R65: it must exist, lie inside the workspace, and have something in it."""
    task = driven(engine, write("outputs/a.txt"), write("outputs/empty.txt", ""), present(path))
    assert outcome(task) == ("failed", "step_failed")
    assert task.error is not None
    assert task.error["code"] == "not_deliverable"


def test_names_in_the_request_must_be_handed_over(engine: Engine) -> None:
    """`input.deliverables`: by path, below outputs, or by the file's name; also if nothing was made."""
    script = [write("outputs/deep/a.txt"), write("outputs/b.txt"), present("outputs")]
    asked = ["outputs/deep/a.txt", "b.txt", "deep", "a.txt"]
    assert driven(engine, *script, deliverables=asked).status == "completed"
    task = driven(engine, *script, deliverables=["c.txt"])
    assert outcome(task) == ("failed", "delivery_incomplete")
    assert task.error is not None
    assert "c.txt" in task.error["message"]
    assert outcome(driven(engine, SAY, deliverables=["b.txt"]))[1] == "delivery_incomplete"
    with pytest.raises(InvalidInputError):
        start(engine, SAY, deliverables="b.txt")


def test_files_live_on_in_the_thread(engine: Engine) -> None:
    """R64: what an earlier run left is there, can be handed over, and is not made anew."""
    driven(engine, write("notes.txt", "one"), write("outputs/a.txt", "one"), present("outputs"))
    unchanged = driven(engine, write("outputs/a.txt", "one"))
    assert unchanged.status == "completed"
    assert delivery(unchanged)["producedPaths"] == []
    shown = driven(engine, present("outputs/a.txt"))
    assert (shown.status, delivery(shown)["paths"]) == ("completed", ["outputs/a.txt"])
    changed = driven(engine, write("outputs/a.txt", "two"))
    assert outcome(changed) == ("failed", "delivery_incomplete")


def test_rollback_takes_files_back(engine: Engine) -> None:
    """R62: the next run finds the file as it was before."""
    driven(engine, write("notes.txt", "one"))
    before = run_of(engine, driven(engine, SAY)).final_state.workspace
    rolled = start(engine, write("notes.txt", "two"), {"op": "interrupt"})
    engine.drive(rolled)
    runs.cancel_run(engine.operator, task_id=rolled, action="rollback")
    assert run_of(engine, engine.task(rolled)).final_state.workspace == before


def run_of(engine: Engine, task: Task) -> Run:
    found: Run = Run.objects.for_tenant(engine.tenant.id).get(pk=task.id)
    return found


def test_snapshot_is_made_once(engine: Engine, settings: Settings) -> None:
    """R64: a run that recovers compares with what it began with, not with what it did since."""
    settings.RUNTIME = {**settings.RUNTIME, "slice_steps": 1}
    driven(engine, write("outputs/a.txt", "one"), present("outputs"))
    task_id = start(engine, write("outputs/a.txt", "two"), SAY, SAY)
    engine.run(task_id)
    assert engine.task(task_id).status == "queued"
    task = engine.drive(task_id)
    assert delivery(task)["producedPaths"] == ["outputs/a.txt"]


@pytest.mark.parametrize("kind", ["cancelled", "never_started", "failed", "closed"])
def test_every_end_has_one_receipt(engine: Engine, kind: str) -> None:
    """R63, R66: also without success; its outcome says how the run ended."""
    last = {"failed": {"op": "fail"}, "closed": {"op": "fail", "on_failure": "ask"}}
    task_id = start(engine, write("outputs/a.txt"), last.get(kind, {"op": "interrupt"}))
    if kind != "never_started":
        engine.drive(task_id)
    if kind in {"cancelled", "never_started"}:
        runs.cancel_run(engine.submitter, task_id=task_id, action="interrupt")
    if kind == "closed":
        engine.repair(task_id, "close")
    task = engine.task(task_id)
    expected = "cancelled" if kind in {"cancelled", "never_started"} else "failed"
    assert task.status == expected
    told = delivery(task)
    assert (told["outcome"], told["presented"]) == (expected, 0)
    receipt = find_receipt(tenant_id=task.tenant_id, task_id=task.id)
    assert receipt is not None
    assert receipt.outcome == expected


def test_acts_are_on_the_receipt(engine: Engine, tmp_path: Path) -> None:
    """R62: a rollback undoes no act, and says which were done."""
    act = {"op": "effect", "key": "k", "append": str(tmp_path / "acts")}
    task_id = start(engine, act, {"op": "interrupt"})
    engine.drive(task_id)
    runs.cancel_run(engine.operator, task_id=task_id, action="rollback")
    (effect,) = delivery(engine.task(task_id))["effects"]
    assert effect["state"] == "succeeded"


@pytest.mark.slow
def test_s20_receipt_that_cannot_be_made_is_no_success(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S20, R67: twice is tried again; the third failure is the run's."""
    sync = SyncDir(tmp_path / "sync")
    monkeypatch.setenv("RUNTIME_SYNCPOINT_DIR", str(sync.folder))
    script = (write("outputs/a.txt"), present("outputs"))
    sync.fail("finish.before_receipt", 2)
    assert driven(engine, *script).status == "completed"
    sync.fail("finish.before_receipt", 3)
    task = driven(engine, *script)
    assert outcome(task) == ("failed", "delivery_receipt_failed")
    assert delivery(task)["outcome"] == "failed"


def test_tasks_without_a_thread_hand_over_too(engine: Engine) -> None:
    """The verdict is the same; only runs tell of it in their journal."""
    task = engine.drive(engine.submit(write("outputs/a.txt")))
    assert outcome(task) == ("failed", "delivery_incomplete")
    task = engine.drive(engine.submit(write("outputs/a.txt"), present("outputs")))
    assert task.status == "completed"
    kinds = Event.objects.for_tenant(task.tenant_id).filter(task_id=task.id, type="delivery")
    assert not kinds.exists()


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/a",
        "../a",
        "a/../b",
        "a//b",
        "a/",
        ".tool-results/a",
        "a/__pycache__/b",
        "x.tmp",
        "tmp/x",
    ],
)
def test_what_is_no_file_of_a_workspace(path: str) -> None:
    """R64: paths lead nowhere else, and passing things do not count."""
    assert not is_file(path)
    assert not is_output(f"outputs/{path}")
