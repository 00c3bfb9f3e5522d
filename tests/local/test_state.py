"""What a running stack tells, and that a dead one is recognised."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from runtime_project.local import cli, ports, processes, state
from runtime_project.local.processes import LocalStackError, ProcessIdentity

SLEEPER = [sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RUNTIME_HOME", str(tmp_path))
    return tmp_path


def announce(home: Path, identity: ProcessIdentity) -> None:
    stack = state.RunningStack(
        identity,
        "http://127.0.0.1:8000",
        "Open http://127.0.0.1:8000/",
        {"DATABASE_URL": "x", "A": "1"},
    )
    state.announce(home, stack)


def own_identity() -> ProcessIdentity:
    identity = ProcessIdentity.of(os.getpid())
    assert identity is not None
    return identity


def test_stack_file_is_private_and_read_back(home: Path) -> None:
    """The file carries secrets, so only its owner reads it."""
    announce(home, own_identity())
    assert (home / "stack.json").stat().st_mode & 0o777 == 0o600
    running = state.find_running(home)
    assert running is not None
    assert running.environment == {"DATABASE_URL": "x", "A": "1"}


def test_stack_file_with_a_reused_pid_is_stale(home: Path) -> None:
    """A pid that lives again with another start time is not the stack."""
    announce(home, ProcessIdentity(os.getpid(), "another boot:1"))
    assert state.find_running(home) is None
    (home / "stack.json").write_text("{ not json")
    assert state.find_running(home) is None


def test_running_stack_fills_only_unset_variables(home: Path) -> None:
    """A database named by the caller is never mixed with the local stack's settings."""
    announce(home, own_identity())
    environ = {"A": "2"}
    assert state.use_running_stack(environ)
    assert environ == {"A": "2", "DATABASE_URL": "x"}
    other = {"DATABASE_URL": "mine"}
    assert state.use_running_stack(other)
    assert other == {"DATABASE_URL": "mine"}


def test_secret_key_is_made_once(home: Path) -> None:
    """The key survives restarts, so that people stay logged in."""
    key = state.secret_key(home)
    assert len(key) >= 50
    assert state.secret_key(home) == key


@pytest.mark.parametrize("verb", ["up", "demo"])
def test_second_run_shows_the_first(
    home: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    """While a stack runs, starting it again prints its address and succeeds."""
    announce(home, own_identity())
    assert cli.main([verb]) == 0
    assert "http://127.0.0.1:8000" in capsys.readouterr().out


def test_down_ends_the_running_stack_only(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`down` ends exactly the announced process; without one it says so."""
    with subprocess.Popen(SLEEPER, stdout=subprocess.PIPE) as sleeper:
        assert sleeper.stdout is not None
        sleeper.stdout.readline()
        identity = ProcessIdentity.of(sleeper.pid)
        assert identity is not None
        announce(home, identity)
        assert cli.main(["down"]) == 0
    assert "Stopped" in capsys.readouterr().out
    assert cli.main(["stop"]) == 0
    assert "Nothing is running" in capsys.readouterr().out


def test_busy_port_is_refused_with_its_holder(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A port asked for by number is never silently replaced."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert ports.listen("127.0.0.1", port) is None
        assert cli.main(["up", "--port", str(port)]) == cli.EXIT_USAGE
    assert f"pid {os.getpid()}" in capsys.readouterr().out


def test_fresh_asks_before_it_deletes(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal and without --no-input nothing is deleted."""
    (home / "postgres").mkdir()
    assert cli.main(["up", "--fresh"]) == cli.EXIT_USAGE
    assert (home / "postgres").is_dir()
    assert "--no-input" in capsys.readouterr().out


def test_failure_shows_log_cause_and_remedy(tmp_path: Path) -> None:
    """A failing step tells its last 20 lines, the likely cause and the command to try."""
    log = tmp_path / "x.log"
    log.write_text("".join(f"line {n}\n" for n in range(50)))
    error = LocalStackError("x failed", cause="a cause", remedy="a command", log=log)
    text = cli.describe_failure(error).splitlines()
    assert text[1] == "line 30"
    assert text[-3:] == ["✗ x failed.", "  Likely cause: a cause.", "  Try: a command"]
    assert processes.last_lines(tmp_path / "missing") == []
