"""`manage.py up` as a person runs it: the whole stack in real processes, ended in every way."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from runtime_project.local import ports, processes, state

ROOT = Path(__file__).resolve().parents[2]
READY = "Ctrl-C stops it."
# Not manage.py itself: it would rebuild the environment this test runs in when a lock changed.
ENTRY = "import sys; from runtime_project.local import cli; sys.exit(cli.main(sys.argv[1:]))"


# Whole stacks are started and killed here: slow, so with the other killing tests.
pytestmark = pytest.mark.crash


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """One local home for all tests here: a stack must start again after each kind of end."""
    folder = Path(tempfile.mkdtemp(prefix="perdure-up-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def environment(home: Path) -> dict[str, str]:
    """This process's environment without the test run's own servers and settings."""
    ours = ("DATABASE_", "REDIS_", "RUNTIME_", "DJANGO_", "PYTEST_")
    clean = {name: text for name, text in os.environ.items() if not name.startswith(ours)}
    return {**clean, "RUNTIME_HOME": str(home), "PYTHONUNBUFFERED": "1"}


@contextmanager
def running_up(home: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run `manage.py up` until it says that it is ready; kill what is left at the end."""
    command = [sys.executable, "-c", ENTRY, "up", *arguments]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        seen = []
        try:
            for line in process.stdout:
                seen.append(line)
                if READY in line:
                    break
            assert process.poll() is None, "".join(seen)
            yield process
        finally:
            process.kill()


def left_over(home: Path) -> list[int]:
    """Return processes that carry this home in their environment."""
    mark = f"RUNTIME_HOME={home}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def test_up_passes_over_a_busy_port_and_ends_cleanly_on_ctrl_c(home: Path) -> None:
    """Ready means it answers; Ctrl-C ends with 130, within ten seconds, leaving nothing."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with suppress(OSError):
        holder.bind(("127.0.0.1", 8000))
        holder.listen()
    with holder, running_up(home) as process:
        running = state.find_running(home)
        assert running is not None
        assert not running.url.endswith(":8000")
        assert httpx.get(f"{running.url}/readyz", trust_env=False).status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
    assert left_over(home) == []
    assert state.find_running(home) is None


def test_up_holds_its_port_from_the_choice_on(home: Path) -> None:
    """Nobody can come to answer there while the servers start, and take the keys for ours."""
    chosen = ports.listen("127.0.0.1", 0)
    assert chosen is not None
    port = chosen.getsockname()[1]
    chosen.close()
    command = [sys.executable, "-c", ENTRY, "up", "--port", str(port)]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(home), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                assert ports.listen("127.0.0.1", port) is None
                if READY in line:
                    break
            assert process.poll() is None
        finally:
            process.terminate()
            process.wait(10)


def test_up_killed_leaves_nothing_running_and_starts_again(home: Path) -> None:
    """SIGKILL of the supervisor ends every process; then `down` has nothing to do."""
    with running_up(home) as process:
        assert len(left_over(home)) > 5
        process.kill()
        process.wait()
        assert processes.wait_until(lambda: left_over(home) == [], seconds=10), left_over(home)
    assert state.find_running(home) is None
