"""Python blocks of README and docs run as they stand."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings

from tasks_app.admission.approvals import decide_approval
from tasks_app.admission.schedules import Plan, create_schedule
from tasks_app.admission.tasks import admit_task
from tasks_app.admission.webhooks import create_endpoint
from tasks_app.api.inputs import ScheduleInput
from tasks_app.domain.schedules import Timing
from tasks_app.engine import lease
from tasks_app.engine.webhooks import send_all
from tasks_app.models import Approval
from tasks_app.testing import DurableTester
from tasks_app.testing.plugin import durable
from tasks_app.workflows import registry
from tasks_app.workflows.contracts.workflow import ReviewGoal
from tests.support.engine import Engine
from tests.support.receiver import Receiver

__all__ = ["durable"]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def engine(transactional_db: None) -> Iterator[Engine]:
    yield Engine()
    lease.stop_keeper()


def python_blocks(name: str) -> list[str]:
    """Return the Python blocks of a document."""
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)


def test_readme_workflow_runs_with_its_approval(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workflow of the README registers, asks, and sends once with its key."""
    monkeypatch.setattr(registry, "_known", dict(registry._known))
    sent: list[tuple[str, str]] = []
    office = SimpleNamespace(
        send=lambda letter, idempotency_key: sent.append((letter, idempotency_key))
    )
    block = python_blocks("README.md")[0]
    names: dict[str, Any] = {"post_office": office, "__name__": "readme"}
    exec(compile(block, "README.md", "exec"), names)  # noqa: S102 - our own document
    task_id = admit_task(
        engine.submitter, workflow="greet", goal={"customer": "Ms Wu"}, source="code"
    ).task_id
    assert engine.drive(task_id).status == "input_required"
    assert sent == []
    approval = Approval.objects.for_tenant(engine.tenant.id).get(task_id=task_id)
    decide_approval(
        engine.approver,
        approval_id=approval.id,
        decision="approve",
        args_sha256=approval.args_sha256,
        expected_version=approval.version,
        reason="polite enough",
        source="rest",
    )
    task = engine.drive(task_id)
    assert (task.status, task.result) == ("completed", "Dear Ms Wu, ...")
    assert sent == [("Dear Ms Wu, ...", f"{task_id}:send")]


@pytest.mark.slow
def test_how_to_tests_run(durable: DurableTester, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests of the how-to hold for the workflow of the how-to."""
    monkeypatch.setattr(registry, "_known", dict(registry._known))
    invoices = [{"cents": 500}]
    sent: dict[str, str] = {}
    office = SimpleNamespace(
        sent=sent,
        forget=sent.clear,
        send=lambda text, idempotency_key: sent.setdefault(idempotency_key, text),
    )
    names: dict[str, Any] = {
        "__name__": "how_to",
        "books": SimpleNamespace(open_invoices=lambda month: invoices),
        "post_office": office,
    }
    workflow, *_ = python_blocks("docs/how-to/write-a-workflow.md")
    for block in (workflow, *python_blocks("docs/how-to/test-a-workflow.md")):
        exec(compile(block, "test-a-workflow.md", "exec"), names)  # noqa: S102 - our own document
    names["test_a_reminder_is_written"](durable)
    names["test_the_letter_goes_out_once"](durable)


def test_how_to_workflow_runs(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workflow of the how-to lists, maps, writes, asks and sends once."""
    monkeypatch.setattr(registry, "_known", dict(registry._known))
    sent: list[str] = []
    invoices = [{"cents": cents} for cents in (500, 0, 700)]
    names: dict[str, Any] = {
        "__name__": "how_to",
        "books": SimpleNamespace(open_invoices=lambda month: invoices),
        "post_office": SimpleNamespace(send=lambda text, idempotency_key: sent.append(text)),
    }
    block = python_blocks("docs/how-to/write-a-workflow.md")[0]
    exec(compile(block, "write-a-workflow.md", "exec"), names)  # noqa: S102 - our own document
    task_id = admit_task(
        engine.submitter, workflow="invoices.remind", goal={"month": "2026-11"}, source="code"
    ).task_id
    assert engine.drive(task_id).status == "input_required"
    approval = Approval.objects.for_tenant(engine.tenant.id).get(task_id=task_id)
    decide_approval(
        engine.approver,
        approval_id=approval.id,
        decision="approve",
        args_sha256=approval.args_sha256,
        expected_version=approval.version,
        reason="due",
        source="rest",
    )
    assert engine.drive(task_id).status == "completed"
    assert sent == ["2 open invoices, 1200 cents.\n"]


def test_how_to_start_tasks_runs(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page shows starts each month once, with the caller's rows or not at all."""
    monkeypatch.setattr(registry, "_known", dict(registry._known))
    closed: list[str] = []
    names: dict[str, Any] = {
        "__name__": "how_to_start",
        "books": SimpleNamespace(close=closed.append),
    }
    for page in ("write-a-workflow", "start-tasks-from-code"):
        block = python_blocks(f"docs/how-to/{page}.md")[0]
        exec(compile(block, page, "exec"), names)  # noqa: S102 - our own document
    user = User.objects.get(pk=engine.submitter.user_id or 0)
    first = names["close_month"](user, engine.tenant.id, "2026-11")
    months = ["2026-10", "2026-11", "2026-10"]
    ids = names["close_months"](user, engine.tenant.id, months)
    assert closed == ["2026-11"]
    assert ids[1] == first
    assert len(set(ids)) == 2


def test_how_to_effects_run(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bank's answer is lost after the transfer; it is found, and nothing is paid twice."""
    monkeypatch.setattr(registry, "_known", dict(registry._known))
    booked: list[SimpleNamespace] = []
    rung: list[str] = []

    def transfer(account: str, cents: int, reference: str) -> str:
        booked.append(SimpleNamespace(id=f"B{len(booked)}", account=account, reference=reference))
        raise OSError("the answer was lost")

    def search(account: str, reference: str) -> SimpleNamespace | None:
        found = [b for b in booked if (b.account, b.reference) == (account, reference)]
        return found[0] if found else None

    bank = SimpleNamespace(knows=lambda account: True, transfer=transfer, search=search)
    names: dict[str, Any] = {
        "__name__": "how_to_effects",
        "bank": bank,
        "pager": SimpleNamespace(ring=rung.append),
    }
    block = python_blocks("docs/how-to/write-a-workflow.md")[1]
    exec(compile(block, "write-a-workflow.md", "exec"), names)  # noqa: S102 - our own document
    goal = {"account": "DE1", "cents": 500}
    task_id = admit_task(
        engine.submitter, workflow="bank.pay_out", goal=goal, source="code"
    ).task_id
    task = engine.drive(task_id)
    assert (task.status, task.result) == ("completed", "B0")
    assert (len(booked), len(rung)) == (1, 1)


def test_how_to_agent_runs(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    """The agent of the how-to thinks in turns, survives a failed search, asks and sends once."""
    monkeypatch.setattr(registry, "_known", dict(registry._known))
    monkeypatch.setenv("MODEL_KEY", "open-sesame")
    settings.RUNTIME = {**settings.RUNTIME, "step_secrets": ("MODEL_KEY",)}
    asked: list[Any] = []
    sent: list[tuple[str, str]] = []

    def ask(topic: str, facts: list[str], key: str) -> Any:
        asked.append((topic, list(facts), key))
        if len(facts) == 2:
            return names["Reply"](text="; ".join(facts))
        call = names["Call"](id=f"call-{len(facts)}", query=f"q{len(facts)}")
        return names["Reply"](calls=[call])

    def find(query: str, reference: str) -> str:
        if query == "q1":
            raise LookupError("no such book")
        return f"{query} by {reference}"

    def send(reader: str, text: str, idempotency_key: str) -> str:
        sent.append((reader, text))
        return ""

    names: dict[str, Any] = {
        "__name__": "agent",
        "model": SimpleNamespace(ask=ask),
        "library": SimpleNamespace(find=find),
        "post_office": SimpleNamespace(send=send),
    }
    block = python_blocks("docs/how-to/write-an-agent-loop.md")[0]
    exec(compile(block, "write-an-agent-loop.md", "exec"), names)  # noqa: S102 - our own document
    goal = {"topic": "tides", "reader": "Ms Wu"}
    task_id = admit_task(
        engine.submitter, workflow="research.agent", goal=goal, source="code"
    ).task_id
    assert engine.drive(task_id).status == "input_required"
    approval = Approval.objects.for_tenant(engine.tenant.id).get(task_id=task_id)
    decide_approval(
        engine.approver,
        approval_id=approval.id,
        decision="approve",
        args_sha256=approval.args_sha256,
        expected_version=approval.version,
        reason="well found",
        source="rest",
    )
    task = engine.drive(task_id)
    draft = "q0 by call-0; not found: LookupError"
    assert (task.status, task.result) == ("completed", draft), task.error
    assert sent == [("Ms Wu", draft)]
    assert len(asked) == 3


def test_receiver_of_the_how_to_takes_a_message_once(
    engine: Engine, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is sent passes its check, twice is once, and what is old or altered does not."""
    names: dict[str, Any] = {"__name__": "receiver"}
    block = python_blocks("docs/how-to/receive-webhooks.md")[0]
    exec(compile(block, "receive-webhooks.md", "exec"), names)  # noqa: S102 - our own document
    with Receiver() as receiver:
        settings.RUNTIME = {**settings.RUNTIME, "webhook_private_hosts": (receiver.host,)}
        secret = create_endpoint(engine.person("admin"), url=receiver.url()).secret
        task_id = engine.submit({"op": "say", "text": "hello"})
        engine.drive(task_id)
        assert send_all() == 1
    [heard] = receiver.heard
    seen: set[str] = set()
    for _ in range(2):
        assert names["receive"](heard.headers, heard.body, secret, seen) == heard.key
    assert capsys.readouterr().out == f"{task_id} task.completed\n"
    old = {**heard.headers, "webhook-timestamp": str(int(heard.headers["webhook-timestamp"]) - 301)}
    for headers, body in ((old, heard.body), (heard.headers, heard.body + b" ")):
        with pytest.raises(ValueError, match=r"message is old|Somebody else"):
            names["read"](headers, body, secret)


def posted(name: str, folder: Path) -> dict[str, Any]:
    """Return the body of a page's one call as a shell in this folder would send it."""
    [body] = re.findall(r"-d ('\{.*\}')$", (ROOT / name).read_text(), re.MULTILINE)
    said = subprocess.run(
        ["/bin/sh", "-c", f"printf %s {body}"], cwd=folder, capture_output=True, check=True
    )
    sent: dict[str, Any] = json.loads(said.stdout)
    return sent


def test_schedule_of_the_how_to_is_accepted(
    engine: Engine, tmp_path: Path, settings: Settings
) -> None:
    """It goes through the door as it stands and has a next time."""
    folder = tmp_path / ".runtime/input/licences"
    folder.mkdir(parents=True)
    (folder / "one.txt").write_text("A licence.")
    settings.RUNTIME = {**settings.RUNTIME, "input_roots": (tmp_path,)}
    body = ScheduleInput.model_validate(posted("docs/how-to/start-tasks-at-times.md", tmp_path))
    timing = Timing(body.cron, body.interval_seconds, body.time_zone)
    made = create_schedule(engine.submitter, Plan(body.name, body.workflow, body.goal, timing))
    assert made.fires_at is not None


def test_readme_call_fits_the_demo(tmp_path: Path) -> None:
    """The folders of the README's call are those that the local stack reads and publishes to."""
    goal = ReviewGoal.model_validate(posted("README.md", tmp_path)["goal"])
    assert Path(goal.folder) == tmp_path / ".runtime/input/licences"
    assert Path(str(goal.publish_to)) == tmp_path / ".runtime/published"
