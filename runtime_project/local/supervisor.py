"""Keeps a set of programs running: starts, watches, restarts with back-off, stops in order.

Knows nothing of what the programs do. Single-threaded: the owner calls `tick` while it waits.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from runtime_project.local import processes

FIRST_BACKOFF_SECONDS = 0.5
LAST_BACKOFF_SECONDS = 15.0
# A program that lived this long has proven itself; its next end counts as the first.
PROVEN_SECONDS = 20.0
TICK_SECONDS = 0.1


@dataclass(frozen=True)
class Program:
    """One program to keep running."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    death_signal: signal.Signals = signal.SIGTERM
    pass_fds: Sequence[int] = ()


@dataclass
class Supervised:
    """A program's present process and its history of ends."""

    program: Program
    log: Path
    process: subprocess.Popen[bytes]
    started: float
    failures: int = 0
    restarts: int = 0
    # Monotonic time of the next start; None while the process runs.
    due: float | None = None
    shown_bytes: int = 0


class Supervisor:
    """Owns the processes of all added programs; each leads its own process group."""

    def __init__(
        self,
        logs: Path,
        report: Callable[[str], None],
        *,
        show_log: Callable[[str], None] | None = None,
        watch: Callable[[], None] | None = None,
    ) -> None:
        """Make a supervisor without programs.

        Args:
            logs: folder for one log file a program.
            report: told in words when a program ended.
            show_log: told each new line of each log.
            watch: called at each tick, for what else has to be kept running.
        """
        self.logs = logs
        self._report = report
        self._show_log = show_log
        self._watch = watch
        self._entries: dict[str, Supervised] = {}

    def add(self, program: Program) -> None:
        """Start a program and keep it running from now on."""
        log = self.logs / f"{program.name}.log"
        processes.keep_one_old_log(log)
        process = self._start(program, log)
        self._entries[program.name] = Supervised(program, log, process, time.monotonic())

    def tick(self) -> None:
        """Notice ended programs, restart those whose time has come."""
        if self._watch is not None:
            self._watch()
        now = time.monotonic()
        for entry in self._entries.values():
            if entry.due is None and entry.process.poll() is not None:
                self._note_end(entry, now)
            if entry.due is not None and now >= entry.due:
                entry.process = self._start(entry.program, entry.log)
                entry.started, entry.due = now, None
                entry.restarts += 1
            if self._show_log is not None:
                self._show_new_lines(entry, self._show_log)

    def wait(self, condition: Callable[[], bool], *, seconds: float) -> bool:
        """Tick until the condition holds or the time is over; return whether it held."""
        limit = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > limit:
                return False
            self.tick()
            time.sleep(TICK_SECONDS)
        return True

    def names(self) -> list[str]:
        """Return the programs in the order they were added."""
        return list(self._entries)

    def pid(self, name: str) -> int:
        """Return the pid, which is also the process group, of a program's present process."""
        return self._entries[name].process.pid

    def log(self, name: str) -> Path:
        """Return the log file of a program."""
        return self._entries[name].log

    def restarts(self, name: str) -> int:
        """Return how often a program was started again."""
        return self._entries[name].restarts

    def has_ended(self, name: str) -> bool:
        """Tell whether a program is down and waits for its restart."""
        entry = self._entries[name]
        return entry.due is not None or entry.process.poll() is not None

    def kill(self, name: str) -> None:
        """Kill a program and all its children at once, as a crash would; it is restarted later."""
        _signal_group(self._entries[name].process, signal.SIGKILL)
        self._entries[name].process.wait()

    @contextmanager
    def standing_still(self, name: str) -> Iterator[None]:
        """Halt a program and all its children while the context lasts, unless it is killed."""
        process = self._entries[name].process
        _signal_group(process, signal.SIGSTOP)
        try:
            yield
        finally:
            if process.poll() is None:
                _signal_group(process, signal.SIGCONT)

    def stop(self, *, seconds: float) -> None:
        """End all programs, last added first; those not ended in time are killed."""
        entries = [e for e in reversed(self._entries.values()) if e.process.poll() is None]
        for entry in entries:
            with suppress(ProcessLookupError):
                entry.process.send_signal(signal.SIGTERM)
        limit = time.monotonic() + seconds
        for entry in entries:
            with suppress(subprocess.TimeoutExpired):
                entry.process.wait(max(0.0, limit - time.monotonic()))
        self.kill_all()

    def kill_all(self) -> None:
        """Kill every process group without asking."""
        entries, self._entries = self._entries, {}
        for entry in entries.values():
            _signal_group(entry.process, signal.SIGKILL)
        for entry in entries.values():
            entry.process.wait()

    def _note_end(self, entry: Supervised, now: float) -> None:
        proven = now - entry.started >= PROVEN_SECONDS
        entry.failures = 1 if proven else entry.failures + 1
        delay = min(LAST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2 ** (entry.failures - 1))
        entry.due = now + delay
        _signal_group(entry.process, signal.SIGKILL)
        self._report(
            f"{entry.program.name} {describe_end(entry.process.returncode)}; "
            f"starts again in {delay:.1f} s"
        )

    def _show_new_lines(self, entry: Supervised, show: Callable[[str], None]) -> None:
        with entry.log.open("rb") as file:
            file.seek(entry.shown_bytes)
            new = file.read()
        complete = new[: new.rfind(b"\n") + 1]
        entry.shown_bytes += len(complete)
        for line in complete.decode("utf-8", "replace").splitlines():
            show(f"{entry.program.name}: {line}")

    def _start(self, program: Program, log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as file:
            return processes.start_bound(
                program.command,
                log=file,
                death_signal=program.death_signal,
                env=program.environment,
                cwd=program.folder,
                pass_fds=program.pass_fds,
            )


def describe_end(code: int | None) -> str:
    """Say how a process ended, for people."""
    if code is None:
        return "runs"
    return f"was killed ({signal.Signals(-code).name})" if code < 0 else f"ended with code {code}"


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
