"""The test's side of `tasks_app.syncpoints`: hold processes at named points and let them go on.

The folder's files are the whole protocol, so the processes share nothing else with the test.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from runtime_project.local.processes import wait_until

# A busy machine is slow; a wait this long means that the point is never reached.
PATIENCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Hit:
    """One pass of a point: which process, under which fence."""

    pid: int
    fence: int


class SyncDir:
    """Files that steer every process whose RUNTIME_SYNCPOINT_DIR is this folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def hold(
        self, names: Iterable[str] | str, task: UUID | None = None, *, at: Iterable[int] = ()
    ) -> None:
        """Make whoever reaches one of the points wait; for one task, at certain passes, if named."""
        for name in _listed(names):
            self._hold_file(name, task).write_text(" ".join(map(str, at)))

    def release(self, names: Iterable[str] | str, task: UUID | None = None) -> None:
        """Let those who wait go on, and nobody wait any more."""
        for name in _listed(names):
            self._hold_file(name, task).unlink(missing_ok=True)

    def fail(self, name: str, times: int) -> None:
        """Make the point raise for the next passes."""
        (self.folder / f"{name}.fail").write_text(str(times))

    def clear(self) -> None:
        """Release everything and forget every pass."""
        for file in self.folder.iterdir():
            file.unlink(missing_ok=True)

    def hits(self, name: str, task: UUID | None = None) -> list[Hit]:
        """Return the passes of a point so far, oldest first."""
        try:
            text = (self.folder / f"{name}.{task or '-'}.hit").read_text()
        except FileNotFoundError:
            return []
        # The last line may be half written.
        whole = text[: text.rfind("\n") + 1].splitlines()
        return [Hit(*map(int, line.split())) for line in whole]

    def wait_hit(
        self,
        name: str,
        task: UUID | None = None,
        *,
        count: int = 1,
        seconds: float = PATIENCE_SECONDS,
    ) -> Hit:
        """Wait until the point was passed (or is held) for the nth time; return that pass."""
        reached = wait_until(lambda: len(self.hits(name, task)) >= count, seconds=seconds)
        assert reached, f"{name} was reached {len(self.hits(name, task))} times, not {count}"
        return self.hits(name, task)[count - 1]

    def wait_next(self, name: str, task: UUID, known: int) -> float:
        """Wait for one more pass than are known, cheaply; return when it was, in Unix time.

        The pass must be held, or it is not the last one.
        """
        file = self.folder / f"{name}.{task}.hit"
        lines = file.read_bytes().splitlines(keepends=True)
        size = sum(map(len, lines[:known]))
        reached = wait_until(lambda: file.stat().st_size > size, seconds=PATIENCE_SECONDS)
        assert reached, f"{name} was not reached again after {known} passes"
        return file.stat().st_mtime

    def walk(
        self,
        points: Iterable[str],
        task: UUID,
        target: tuple[str, int],
        *,
        seen: Mapping[str, int] | None = None,
    ) -> Hit:
        """Let a task whose points are all held go on stop by stop, up to the nth stop at a point.

        Args:
            seen: how often each point was passed before it was held; not at all by default.

        Returns:
            The pass that is held now; every point is held still.
        """
        names = list(points)
        passed = Counter(seen)
        stops: Counter[str] = Counter()
        while True:
            name = self._next_stop(names, task, passed)
            passed[name] = len(self.hits(name, task))
            stops[name] += 1
            if (name, stops[name]) == target:
                return self.hits(name, task)[-1]
            self.release(name, task)
            # Held again only when the process stands at the next point, else it would not pass.
            self._next_stop(names, task, passed)
            self.hold(name, task)

    def _next_stop(self, names: list[str], task: UUID, passed: Counter[str]) -> str:
        found: list[str] = []

        def reached() -> bool:
            found[:] = [name for name in names if len(self.hits(name, task)) > passed[name]]
            return bool(found)

        assert wait_until(reached, seconds=PATIENCE_SECONDS), f"no further stop after {passed}"
        return found[0]

    def _hold_file(self, name: str, task: UUID | None) -> Path:
        return self.folder / (f"{name}.hold" if task is None else f"{name}.{task}.hold")


def _listed(names: Iterable[str] | str) -> list[str]:
    return [names] if isinstance(names, str) else list(names)
