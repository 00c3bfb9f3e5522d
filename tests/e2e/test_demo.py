"""The README's first command, as a stranger runs it, in a home of its own."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Not manage.py itself: it would rebuild the environment this test runs in when a lock changed.
ENTRY = "import sys; from runtime_project.local import cli; sys.exit(cli.main(sys.argv[1:]))"


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder with a short path, as sockets need one."""
    folder = Path(tempfile.mkdtemp(prefix="perdure-demo-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.crash
@pytest.mark.timeout(300)
def test_demo_shows_take_over_approval_and_one_publication(home: Path, tmp_path: Path) -> None:
    """A worker dies by SIGKILL, the job goes on, and its one effect happens once."""
    for number in range(200):
        text = "The Supplier's liability is unlimited. This agreement renews automatically. " * 80
        (tmp_path / f"contract-{number}.txt").write_text(f"Contract {number}\n\n{text}")
    ours = ("DATABASE_", "REDIS_", "RUNTIME_", "DJANGO_", "PYTEST_")
    clean = {name: text for name, text in os.environ.items() if not name.startswith(ours)}
    answer = subprocess.run(
        [sys.executable, "-c", ENTRY, "demo", "--exit", "--input", str(tmp_path)],
        cwd=ROOT,
        env={**clean, "RUNTIME_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    for sign in (
        "killed with SIGKILL",
        "✓ taken over by worker",
        "✓ approve: decided by the approver",
        "✓ 1 effect, 0 twice",
        "✓ Ledger and audit chain verified",
    ):
        assert sign in answer.stdout
    manifests = list((home / "published").glob("*/manifest.json"))
    assert len(manifests) == 1
