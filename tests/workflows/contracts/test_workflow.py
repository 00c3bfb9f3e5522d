"""contracts.review on the real engine: admission, map, report, approval, one publication."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings

from ledger_app.queries import list_effects
from tasks_app.admission import approvals, tasks
from tasks_app.domain.errors import InvalidInputError
from tasks_app.engine import lease
from tasks_app.models import Approval, Artifact, Task
from tasks_app.workflows.contracts import reading, workflow
from tasks_app.workflows.contracts.text import DocumentText
from tests.support.engine import Engine
from tests.workflows.contracts import documents


@pytest.fixture
def engine(transactional_db: None) -> Iterator[Engine]:
    yield Engine()
    lease.stop_keeper()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three documents of which one cannot be read, in a folder that may be read."""
    monkeypatch.setitem(settings.RUNTIME, "input_roots", (tmp_path,))
    monkeypatch.setitem(settings.RUNTIME, "publish_roots", (tmp_path / "published",))
    monkeypatch.setitem(settings.RUNTIME, "artifact_root", tmp_path / "artifacts")
    return documents.write(
        tmp_path / "in",
        {
            "a.txt": documents.AGREEMENT,
            "b/合同.txt": documents.CHINESE_AGREEMENT,
            "c.pdf": "this is no pdf",
        },
    )


def submit(engine: Engine, folder: Path, goal: dict[str, Any] | None = None) -> UUID:
    return tasks.admit_task(
        engine.submitter,
        workflow="contracts.review",
        goal={"folder": str(folder)} | (goal or {}),
        source="code",
    ).task_id


def decide(engine: Engine, task: Task, decision: str) -> None:
    approval = Approval.objects.for_tenant(engine.tenant.id).get(task_id=task.id, status="pending")
    approvals.decide_approval(
        engine.approver,
        approval_id=approval.id,
        decision=decision,
        args_sha256=approval.args_sha256,
        expected_version=approval.version,
        reason="read it",
        source="rest",
    )


def test_review_without_publication_asks_nobody(engine: Engine, folder: Path) -> None:
    task = engine.drive(submit(engine, folder))
    assert task.status == "completed"
    report = workflow.ReviewReport.model_validate(task.result)
    assert (report.documents, report.reviewed, report.unreadable) == (3, 2, 1)
    assert report.publication is None
    assert report.top_risks[0].level == "critical"
    stored = Artifact.objects.for_tenant(engine.tenant.id).filter(task_id=task.id, presented=True)
    assert {row.name for row in stored} == {
        "report.html", "findings.csv", "documents.csv", "findings.jsonl",
    }  # fmt: skip


def test_what_cannot_be_read_is_named_and_counted(engine: Engine, folder: Path) -> None:
    """Pipes and names that are not valid text are in the figures that approvers see."""
    os.mkfifo(folder / "pipe.txt")
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.txt")).write_text("x")
    task = engine.drive(submit(engine, folder))
    report = workflow.ReviewReport.model_validate(task.result)
    assert (report.documents, report.reviewed, report.unreadable) == (5, 2, 3)
    (table,) = (item for item in report.files if item.name == "documents.csv")
    (stored,) = (folder.parent / "artifacts").rglob(f"*{table.sha256}*")
    text = stored.read_text("utf-8-sig")
    assert "pipe.txt" in text
    assert "not_a_file" in text
    assert r"caf\xe9.txt" in text
    assert "bad_name" in text


def test_approved_report_is_published_once(engine: Engine, folder: Path) -> None:
    target = folder.parent / "published" / "2026"
    task = engine.drive(submit(engine, folder, {"publish_to": str(target), "language": "zh"}))
    assert task.status == "input_required"
    assert not target.exists()
    decide(engine, task, "approve")
    task = engine.drive(task.id)
    assert task.status == "completed"
    report = workflow.ReviewReport.model_validate(task.result)
    assert report.publication is not None
    (published,) = target.iterdir()
    assert report.publication.target == str(published)
    assert {path.name for path in published.iterdir()} == {
        "report.html", "findings.csv", "documents.csv", "findings.jsonl", "manifest.json",
    }  # fmt: skip
    assert [
        row.state.value for row in list_effects(tenant_id=engine.tenant.id, task_id=task.id)
    ] == ["succeeded"]
    engine.assert_audit_verifies(task.id)


def test_denied_report_is_kept_and_not_published(engine: Engine, folder: Path) -> None:
    target = folder.parent / "published"
    task = engine.drive(submit(engine, folder, {"publish_to": str(target)}))
    decide(engine, task, "deny")
    task = engine.drive(task.id)
    assert task.status == "completed"
    assert workflow.ReviewReport.model_validate(task.result).publication is None
    assert not target.exists()


@pytest.mark.parametrize(
    ("change", "reviewed"),
    [({"focus": ["confidentiality", "term"]}, 2), ({"exclude": ["b"]}, 1)],
)
def test_changed_goal_reviews_no_finished_document_again(
    engine: Engine,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
    reviewed: int,
) -> None:
    """adjust_goal writes the report anew; only what could not be read is tried again."""
    read: list[str] = []

    def counting(root: Path, path: str) -> DocumentText:
        read.append(path)
        return reading.read_document(root, path)

    monkeypatch.setattr(workflow, "read_document", counting)
    target = folder.parent / "published"
    task = engine.drive(submit(engine, folder, {"publish_to": str(target)}))
    assert sorted(read) == ["a.txt", "b/合同.txt", "c.pdf"]
    engine.steer(task.id, "adjust_goal", payload=change)
    task = engine.drive(task.id)
    assert set(read[3:]) <= {"c.pdf"}
    decide(engine, task, "approve")
    task = engine.drive(task.id)
    assert workflow.ReviewReport.model_validate(task.result).reviewed == reviewed
    assert len(list(target.iterdir())) == 1


@pytest.mark.parametrize(
    ("goal", "pointer", "code"),
    [
        ({"folder": "/nonexistent-folder"}, "/folder", "folder_not_allowed"),
        ({"folder": "relative"}, "/folder", "folder_not_absolute"),
        ({"exclude": ["*a" * 20]}, "/exclude", "bad_pattern"),
        ({"exclude": ["**"]}, "/folder", "no_documents"),
        ({"focus": ["term", "nonsense"]}, "/focus/1", "unknown_focus"),
        ({"publish_to": "/etc"}, "/publish_to", "target_not_allowed"),
        ({"publish_to": "https://evil.example/"}, "/publish_to", "host_not_allowed"),
    ],
)
def test_bad_goal_is_refused_at_its_field(
    engine: Engine, folder: Path, goal: dict[str, Any], pointer: str, code: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        submit(engine, folder, goal)
    (problem,) = caught.value.errors
    assert problem.pointer.endswith(pointer)
    assert problem.code == code
    allowed = {
        "folder_not_allowed": str(folder.parent),
        "target_not_allowed": str(folder.parent / "published"),
    }
    assert problem.detail.endswith(f": {allowed[code]}." if code in allowed else "")
    assert not Task.objects.for_tenant(engine.tenant.id).exists()


@pytest.mark.parametrize(
    ("goal", "roots", "setting"),
    [
        ({}, "input_roots", "RUNTIME_INPUT_ROOTS"),
        ({"publish_to": "/srv/published"}, "publish_roots", "RUNTIME_PUBLISH_ROOTS"),
    ],
)
def test_refusal_names_the_setting_when_no_folder_is_allowed(
    engine: Engine,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    goal: dict[str, Any],
    roots: str,
    setting: str,
) -> None:
    monkeypatch.setitem(settings.RUNTIME, roots, ())
    with pytest.raises(InvalidInputError) as caught:
        submit(engine, folder, goal)
    (problem,) = caught.value.errors
    assert problem.detail.endswith(f"by setting {setting}.")
