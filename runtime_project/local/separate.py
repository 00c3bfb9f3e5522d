"""`manage.py bench` and `manage.py faults`: programs of the tests, on servers of their own."""

import subprocess
import sys
from collections.abc import Sequence

from runtime_project.local import state

PROGRAMS = {"bench": "tests.bench", "faults": "tests.faults"}


def run(verb: str, arguments: Sequence[str]) -> int:
    """Run the program and return its exit code; it stops by itself, and cleans up on Ctrl-C."""
    command = [sys.executable, "-m", PROGRAMS[verb], *arguments]
    return subprocess.run(command, cwd=state.ROOT, check=False).returncode
