"""The supervisor with real child processes."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime_project.local import processes
from runtime_project.local.processes import ProcessIdentity
from runtime_project.local.supervisor import Program, Supervisor

# Servers are really started and killed here, with the slow real things.
pytestmark = pytest.mark.crash

ROOT = Path(__file__).resolve().parents[2]
SAY_AND_WAIT = "import signal; print('up', flush=True); signal.pause()"
STUBBORN = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('up', flush=True)\nwhile True: signal.pause()"
)
WITH_CHILD = (
    "import os, signal, subprocess, sys;"
    "c = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']);"
    "print(c.pid, flush=True); signal.pause()"
)


@pytest.fixture
def reports() -> list[str]:
    return []


@pytest.fixture
def supervisor(tmp_path: Path, reports: list[str]) -> Iterator[Supervisor]:
    supervisor = Supervisor(tmp_path, reports.append)
    yield supervisor
    supervisor.kill_all()


def program(name: str, code: str, folder: Path) -> Program:
    return Program(name, [sys.executable, "-c", code], {"PATH": "/bin"}, folder)


def says(supervisor: Supervisor, name: str, count: int = 1) -> bool:
    return len(processes.last_lines(supervisor.log(name))) >= count


def test_supervisor_restarts_a_killed_program_and_says_so(
    supervisor: Supervisor, reports: list[str], tmp_path: Path
) -> None:
    """A program that was killed runs again after the back-off, in a new process."""
    supervisor.add(program("worker", SAY_AND_WAIT, tmp_path))
    assert supervisor.wait(lambda: says(supervisor, "worker"), seconds=10)
    first = supervisor.pid("worker")
    supervisor.kill("worker")
    assert supervisor.wait(lambda: says(supervisor, "worker", 2), seconds=10)
    assert supervisor.pid("worker") != first
    assert supervisor.restarts("worker") == 1
    assert reports == ["worker was killed (SIGKILL); starts again in 0.5 s"]


def test_supervisor_backs_off_from_a_program_that_fails_at_once(
    supervisor: Supervisor, reports: list[str], tmp_path: Path
) -> None:
    """Each quick failure doubles the delay before the next start."""
    supervisor.add(program("broken", "raise SystemExit(3)", tmp_path))
    assert supervisor.wait(lambda: len(reports) == 2, seconds=10)
    assert reports == [
        "broken ended with code 3; starts again in 0.5 s",
        "broken ended with code 3; starts again in 1.0 s",
    ]


def test_supervisor_kill_takes_the_whole_process_group(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    """The children of a killed program are killed with it."""
    supervisor.add(program("parent", WITH_CHILD, tmp_path))
    assert supervisor.wait(lambda: says(supervisor, "parent"), seconds=10)
    child = ProcessIdentity.of(int(processes.last_lines(supervisor.log("parent"))[0]))
    assert child is not None
    supervisor.kill("parent")
    assert processes.wait_until(lambda: not child.is_alive(), seconds=5)


def test_supervisor_stop_kills_a_program_that_ignores_the_request(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    """Stopping ends in bounded time whatever the programs do."""
    supervisor.add(program("stubborn", STUBBORN, tmp_path))
    assert supervisor.wait(lambda: says(supervisor, "stubborn"), seconds=10)
    identity = ProcessIdentity.of(supervisor.pid("stubborn"))
    supervisor.stop(seconds=0.3)
    assert identity is not None
    assert not identity.is_alive()
    assert supervisor.names() == []


def test_supervisor_shows_logs_line_by_line(tmp_path: Path, reports: list[str]) -> None:
    """With logs shown, each complete line appears once with the program's name."""
    supervisor = Supervisor(tmp_path, reports.append, show_log=reports.append)
    supervisor.add(program("web", SAY_AND_WAIT, tmp_path))
    try:
        assert supervisor.wait(lambda: reports == ["web: up"], seconds=10)
        supervisor.tick()
        assert reports == ["web: up"]
    finally:
        supervisor.kill_all()


def test_programs_die_with_a_killed_supervisor(tmp_path: Path) -> None:
    """SIGKILL of the supervising process ends the programs it started."""
    code = (
        "import sys; from pathlib import Path\n"
        "from runtime_project.local.supervisor import Program, Supervisor\n"
        "folder = Path(sys.argv[1]); s = Supervisor(folder, print)\n"
        "s.add(Program('a', [sys.executable, '-c', sys.argv[2]], {}, folder))\n"
        "print(s.pid('a'), flush=True); sys.stdin.read()\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), SAY_AND_WAIT],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner:
        assert owner.stdout is not None
        child = ProcessIdentity.of(int(owner.stdout.readline()))
        log = tmp_path / "a.log"
        assert processes.wait_until(lambda: processes.last_lines(log) == ["up"], seconds=10)
        owner.send_signal(signal.SIGKILL)
    assert child is not None
    assert processes.wait_until(lambda: not child.is_alive(), seconds=5)


def test_supervisor_halts_a_group_and_lets_it_go_on(supervisor: Supervisor, tmp_path: Path) -> None:
    """Program and child stand still while one looks at them, and run afterwards."""

    def states() -> set[str]:
        pids = (supervisor.pid("parent"), child)
        stats = [Path(f"/proc/{pid}/stat").read_text() for pid in pids]
        return {text.rpartition(")")[2].split()[0] for text in stats}

    supervisor.add(program("parent", WITH_CHILD, tmp_path))
    assert supervisor.wait(lambda: says(supervisor, "parent"), seconds=10)
    child = int(processes.last_lines(supervisor.log("parent"))[0])
    with supervisor.standing_still("parent"):
        assert processes.wait_until(lambda: states() == {"T"}, seconds=5)
    assert processes.wait_until(lambda: "T" not in states(), seconds=5)
