"""What processes hold and use, as the kernel counts it."""

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used, user and system."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    fields = stat[stat.rindex(")") + 2 :].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_megabytes(pid: int) -> float:
    """Return the resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


class Usage:
    """What a process holds and uses, looked at from time to time."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen: list[float] = []
        self._cpu: list[float] = []

    def look(self) -> None:
        """Take down resident memory and processor time."""
        self._seen.append(memory_megabytes(self._pid))
        self._cpu.append(cpu_seconds(self._pid))

    @property
    def growth(self) -> float:
        """The megabytes by which it grew after the first quarter."""
        return max(self._seen) - self._seen[len(self._seen) // 4]

    @property
    def cpu(self) -> float:
        """The processor seconds between first and last look."""
        return self._cpu[-1] - self._cpu[0]

    @property
    def note(self) -> str:
        """What it held when."""
        first, quarter = self._seen[0], self._seen[len(self._seen) // 4]
        return (
            f"{first:.0f} MB at first, {quarter:.0f} after a quarter, {max(self._seen):.0f} at most"
        )
