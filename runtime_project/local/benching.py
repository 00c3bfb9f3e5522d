"""`manage.py bench`: measures in a process of its own, on servers of its own."""

import subprocess
import sys
from collections.abc import Sequence

from runtime_project.local import state


def run(arguments: Sequence[str]) -> int:
    """Run the bench and return its exit code; it stops by itself, and cleans up on Ctrl-C."""
    command = [sys.executable, "-m", "tests.bench", *arguments]
    return subprocess.run(command, cwd=state.ROOT, check=False).returncode
