"""What the local verbs and the demo say and read, without a stack."""

import os
from pathlib import Path

import httpx
import pytest

from runtime_project.local import cli, ports, state
from runtime_project.local.demo import decision_of
from runtime_project.local.demo_client import say_problem
from runtime_project.local.demo_crash import find_next_claim, pid_of_owner
from runtime_project.local.processes import ProcessIdentity


@pytest.fixture
def running_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which a stack is announced; this process supervises it."""
    monkeypatch.setenv("RUNTIME_HOME", str(tmp_path))
    identity = ProcessIdentity.of(os.getpid())
    assert identity is not None
    state.announce(tmp_path, state.RunningStack(identity, "http://127.0.0.1:1", "Open it", {}))
    return tmp_path


@pytest.mark.usefixtures("running_home")
def test_demo_exit_refuses_beside_a_running_stack(capsys: pytest.CaptureFixture[str]) -> None:
    """A script that asks for the story must not hear 0 when the story was not told."""
    assert cli.main(["demo", "--exit"]) == 2
    error = capsys.readouterr().err
    assert "A stack runs here already" in error
    assert "python3 manage.py down" in error


@pytest.mark.usefixtures("running_home")
def test_demo_without_exit_shows_the_running_stack(capsys: pytest.CaptureFixture[str]) -> None:
    """A person is told where it answers."""
    assert cli.main(["demo"]) == 0
    assert "Open it" in capsys.readouterr().out


@pytest.mark.usefixtures("running_home")
@pytest.mark.parametrize("argument", ["--port=80", "--fresh"])
def test_up_refuses_to_be_another_stack_than_the_running_one(
    argument: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was asked for does not happen, so the exit code is not 0."""
    assert cli.main(["up", argument, "--no-input"]) == 2
    assert "runs here already, on http://127.0.0.1:1" in capsys.readouterr().err


@pytest.mark.usefixtures("running_home")
def test_up_on_the_running_port_shows_the_running_stack() -> None:
    """It is there already."""
    assert cli.main(["up", "--port=1"]) == 0


@pytest.mark.parametrize(
    ("status", "decision"),
    [("approved", "approve"), ("consumed", "approve"), ("denied", "deny"), ("expired", "deny")],
)
def test_decision_of_somebody_else_is_told_as_it_was(status: str, decision: str) -> None:
    """An approval is used within a moment; used means that it was approved."""
    assert decision_of(status) == decision


@pytest.mark.parametrize("text", ["99999", "0", "-1", "65536", "http", "８０８０"])
def test_port_outside_the_range_is_a_usage_error(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is started; the sentence names the range."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["up", f"--port={text}"])
    assert ended.value.code == 2
    assert f"{text} is not a port: 1 to 65535" in capsys.readouterr().err


def test_port_may_be_the_first_and_the_last() -> None:
    """Both ends of the range are ports."""
    assert [ports.parse("1"), ports.parse("65535")] == [1, 65535]


def test_input_that_is_no_folder_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file, a circle of links and an unknown person's home are told alike."""
    (tmp_path / "file").touch()
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for text in (str(tmp_path / "file"), str(tmp_path / "circle"), "~nobody-of-this-name/x"):
        with pytest.raises(SystemExit) as ended:
            cli.main(["demo", "--input", text])
        assert ended.value.code == 2
        assert f"{text} is not a folder" in capsys.readouterr().err


def test_problem_is_told_in_the_sentence_of_its_first_field() -> None:
    """The field's sentence says more than the general one; JSON is not for people."""
    body = {"detail": "The goal does not fit.", "errors": [{"detail": "No document to review."}]}
    assert say_problem(httpx.Response(422, json=body)) == "No document to review"


def test_problem_without_fields_is_told_in_its_own_sentence() -> None:
    """Most refusals concern no field."""
    assert say_problem(httpx.Response(404, json={"detail": "Not found."})) == "Not found"


@pytest.mark.parametrize("text", ["<html>", "[]", '{"errors": []}'])
def test_answer_that_is_no_problem_is_told_as_it_is(text: str) -> None:
    """A proxy in between may answer anything."""
    assert say_problem(httpx.Response(502, text=text)) == f"The answer was 502: {text}"


def test_next_claim_is_the_first_move_to_working() -> None:
    """Later claims and other events do not count."""
    events = [
        {"type": "checkpoint", "data": {"seq": 3}},
        {"type": "status", "data": {"source": "working", "target": "recovering"}},
        {"type": "status", "data": {"source": "recovering", "target": "working", "reason": "b"}},
        {"type": "status", "data": {"source": "queued", "target": "working", "reason": "c"}},
    ]
    claim = find_next_claim(events)
    assert claim is not None
    assert claim["reason"] == "b"
    assert find_next_claim(events[:2]) is None


def test_pid_is_read_from_an_owner_whose_host_may_hold_colons() -> None:
    """The host's name comes first and is not ours to choose."""
    assert pid_of_owner("fe80::1:4711:0a2f") == 4711
    assert pid_of_owner("somebody") is None
