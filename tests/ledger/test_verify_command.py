"""`manage.py verify_audit_chain`: what it prints and how it ends (S109)."""

import json
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError

from tests.ledger.conftest import Subject

pytestmark = pytest.mark.django_db


def run(*arguments: str) -> tuple[int, str, str]:
    out, err = StringIO(), StringIO()
    try:
        call_command("verify_audit_chain", *arguments, stdout=out, stderr=err)
    except SystemExit as ended:
        return int(str(ended.code)), out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


@pytest.fixture
def broken(subject: Subject, tamper: Callable[..., None]) -> Subject:
    for _ in range(3):
        subject.append()
    tamper("DELETE FROM ledger_app_auditentry WHERE stream = %s AND seq = 2", subject.stream)
    return subject


def test_command_counts_what_it_checked(subject: Subject, other: Subject) -> None:
    """In order: one line, exit status 0."""
    subject.append()
    subject.append()
    other.append()
    assert run() == (0, "2 streams, 3 entries: in order\n", "")


def test_command_prints_the_first_fault_of_each_stream(broken: Subject, other: Subject) -> None:
    """A fault: stream, seq and code, exit status 1."""
    other.append()
    assert run() == (
        1,
        f"FAULT {broken.stream} seq 2: gap: the next entry is 3\n2 streams, 2 entries: 1 faults\n",
        "",
    )


def test_command_checks_one_tenant_or_one_task(broken: Subject, other: Subject) -> None:
    """The scope decides what is looked at, and so the exit status."""
    other.append()
    assert run("--tenant", str(other.tenant_id))[0] == 0
    assert run("--tenant", str(broken.tenant_id))[0] == 1
    assert run("--task", str(other.task_id))[0] == 0
    assert run("--task", str(broken.task_id))[0] == 1


def test_command_prints_one_json_document(broken: Subject, other: Subject) -> None:
    """For machines: faults and notices as data, the same exit status."""
    other.begin()
    status, text, _ = run("--json")
    assert status == 1
    assert json.loads(text) == {
        "ok": False,
        "streams": 2,
        "entries": 2,
        "faults": [
            {"stream": broken.stream, "seq": 2, "code": "gap", "detail": "the next entry is 3"}
        ],
        "notices": [{"stream": other.stream, "detail": "1 effects begun"}],
    }


def test_command_tells_an_open_effect_as_a_note(subject: Subject) -> None:
    """A call that is under way is no fault of a task that is not over."""
    subject.begin()
    status, text, _ = run()
    assert status == 0
    assert text.startswith(f"note {subject.stream}: 1 effects begun\n")


def test_command_that_cannot_check_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """No database is neither in order nor a fault: exit status 2."""

    def fail(*_: Any) -> None:
        raise OperationalError("server closed the connection")

    monkeypatch.setattr("ledger_app.services.verification._stream_names", fail)
    assert run() == (2, "", "could not check: server closed the connection\n")


def test_command_refuses_what_is_no_uuid() -> None:
    """A slug is not known here; the message says what is expected."""
    with pytest.raises(CommandError, match="'acme' is no UUID"):
        run("--tenant", "acme")
