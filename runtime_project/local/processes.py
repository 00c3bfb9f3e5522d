"""Operating-system processes: who is alive, start bound to us, stop, wait for a condition.

Knows nothing of PostgreSQL, Redis or the project.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

LAUNCHER = Path(__file__).with_name("launch.py")
POLL_SECONDS = 0.02


class LocalStackError(Exception):
    """A part of the local stack could not start or stop; says what a person can do.

    Attributes:
        cause: The likely reason, one sentence, may be empty.
        remedy: A command or act to try, may be empty.
        log: The log file whose end shows the details, if there is one.
    """

    def __init__(
        self, message: str, *, cause: str = "", remedy: str = "", log: Path | None = None
    ) -> None:
        super().__init__(message)
        self.cause = cause
        self.remedy = remedy
        self.log = log


@dataclass(frozen=True)
class ProcessIdentity:
    """One process for its whole life: a pid alone is reused, a pid with its start time is not."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> "ProcessIdentity | None":
        """Return the identity of a live process, or None; a zombie is not alive."""
        started = _start_mark(pid)
        return None if started is None else cls(pid, started)

    def is_alive(self) -> bool:
        """Tell whether exactly this process still runs."""
        return _start_mark(self.pid) == self.started


def _start_mark(pid: int) -> str | None:
    if sys.platform != "linux":
        answer = subprocess.run(
            ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        return answer.stdout.strip() or None
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else f"{boot}:{fields[19]}"


def find_by_folder(folder: Path) -> list[int]:
    """Return pids of processes whose working folder is `folder` (Linux; elsewhere none)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.readlink(entry / "cwd") == str(folder) and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


def group_members(group: int) -> list[int]:
    """Return pids of a process group (Linux; elsewhere none)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ProcessLookupError):
            if os.getpgid(int(entry.name)) == group:
                found.append(int(entry.name))
    return found


def peak_memory_bytes(pid: int) -> int:
    """Return the most memory a live process ever held, or 0 when it cannot be seen."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def start_bound(
    command: Sequence[str],
    *,
    log: IO[bytes] | int,
    death_signal: signal.Signals = signal.SIGTERM,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    user: str = "",
    read_anywhere: bool = False,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a command in its own process group that gets `death_signal` when this process dies.

    Of our open files it gets its output and `pass_fds`, no other.
    Must be called from the main thread: Linux sends the signal when the starting thread ends.
    """
    return subprocess.Popen(
        launch_command(command, death_signal=death_signal, user=user, read_anywhere=read_anywhere),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=None if env is None else dict(env),
        cwd=cwd,
        start_new_session=True,
        pass_fds=tuple(pass_fds),
    )


def launch_command(
    command: Sequence[str],
    *,
    death_signal: signal.Signals = signal.SIGKILL,
    user: str = "",
    read_anywhere: bool = False,
) -> list[str]:
    """Return the command line that runs `command` through the launcher."""
    line = [sys.executable, "-I", "-S", str(LAUNCHER)]
    line += ["--parent", str(os.getpid()), "--death-signal", str(int(death_signal))]
    if user:
        line += ["--user", user]
    if read_anywhere:
        line += ["--read-anywhere"]
    return [*line, "--", *command]


def wait_until(condition: Callable[[], bool], *, seconds: float) -> bool:
    """Poll a condition until it holds or the time is over; return whether it held."""
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(POLL_SECONDS)
    return True


def stop(
    process: subprocess.Popen[bytes],
    *,
    signals: Sequence[signal.Signals],
    seconds_each: float,
) -> None:
    """Send the signals one after the other until the process has ended; the last is SIGKILL."""
    for number in (*signals, signal.SIGKILL):
        if process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds_each)


def end_leftovers(folder: Path, *, first: signal.Signals, seconds: float) -> None:
    """Wait for processes of an earlier, killed stack in `folder` to end; then end them.

    Only call it while holding the folder's lock: then nobody else can own these processes.
    """
    for number in (None, first, signal.SIGKILL):
        pids = find_by_folder(folder)
        if number is not None:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        if wait_until(lambda: not find_by_folder(folder), seconds=seconds):
            return
    raise LocalStackError(
        f"processes of an earlier run still use {folder}",
        remedy=f"kill -9 {' '.join(map(str, find_by_folder(folder)))}",
    )


def last_lines(path: Path | None, count: int = 20) -> list[str]:
    """Return the last lines of a log, or nothing when it cannot be read."""
    if path is None:
        return []
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 64 * 1024))
            return file.read().decode("utf-8", "replace").splitlines()[-count:]
    except OSError:
        return []


def keep_one_old_log(log: Path) -> None:
    """Begin a new log; the one of the run before stays beside it."""
    if log.exists():
        log.replace(log.with_name(log.name + ".1"))
