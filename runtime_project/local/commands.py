"""Short-lived commands of the stack: each in its own process, bound to ours, with its own log."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime_project.local import blame, processes, state
from runtime_project.local.processes import LocalStackError


@dataclass(frozen=True)
class Running:
    """A command that was started and not yet waited for."""

    name: str
    log: Path
    process: subprocess.Popen[str]

    def finish(self) -> str:
        """Wait for the end and return what the command printed.

        Output may hold secrets, so that it goes to the log only when the command failed.

        Raises:
            LocalStackError: it failed.
        """
        output, _ = self.process.communicate()
        if self.process.returncode == 0:
            return output
        with self.log.open("a") as file:
            file.write(output)
        cause, remedy = blame.find_cause(self.log)
        raise LocalStackError(
            f"the command {self.name} failed", cause=cause, remedy=remedy, log=self.log
        )


class CommandRunner:
    """Starts Python commands of this project with the stack's variables, as the database's owner."""

    def __init__(self, logs: Path, environment: Callable[[str], Mapping[str, str]]) -> None:
        self._logs = logs
        self._environment = environment

    def start(self, name: str, arguments: Sequence[str]) -> Running:
        """Start `python ARGUMENTS` and return at once."""
        log = self._logs / f"{name}.log"
        processes.keep_one_old_log(log)
        with log.open("wb") as errors:
            process = subprocess.Popen(
                processes.launch_command([sys.executable, *arguments]),
                env={**os.environ, **self._environment(name)},
                cwd=state.ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        return Running(name, log, process)

    def start_management(self, name: str, *arguments: str) -> Running:
        """Start one management command."""
        return self.start(name, [str(state.ROOT / "manage.py"), name, *arguments])
