"""What the demo shows: a live bar and one key press on a terminal, plain lines elsewhere."""

import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

PLAIN_STEP = 0.1


class Screen:
    """Prints the story; the bar, when there is one, stays below it."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self.is_interactive = sys.stdin.isatty() and self.console.is_terminal
        self._bar: Progress | None = None
        self._plain_next = 0.0
        self._plain_phase = ""

    def say(self, text: str = "") -> None:
        """Print one line of the story."""
        print(text, flush=True)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            self._bar = Progress(
                *columns, TimeElapsedColumn(), console=self.console, transient=True
            )
            self._bar.start()
            self._bar.add_task("Starting")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def progress(self, phase: str, done: int, total: int | None) -> None:
        """Show where the task stands; without a terminal one line for each tenth."""
        if self._bar is not None:
            bar = self._bar.task_ids[0]
            self._bar.update(bar, description=phase or "Working", completed=done, total=total)
            return
        share = done / total if total else 0.0
        if phase == self._plain_phase and share < self._plain_next:
            return
        if phase != self._plain_phase:
            self._plain_phase, self._plain_next = phase, 0.0
        if phase:
            self.say(f"  {phase} {done}/{total}" if total else f"  {phase}")
        while self._plain_next <= share:
            self._plain_next += PLAIN_STEP

    @contextmanager
    def keys(self) -> Iterator["Keys"]:
        """Read single key presses while the context lasts; the terminal is put back after."""
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
        tty.setcbreak(descriptor)
        try:
            yield Keys(descriptor)
        finally:
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


class Keys:
    """Key presses, read without waiting."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self) -> str:
        """Return the next pressed key, or "" when none was pressed."""
        ready, _, _ = select.select([self._descriptor], [], [], 0)
        return sys.stdin.read(1).lower() if ready else ""
