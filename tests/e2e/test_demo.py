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


def run_demo(home: Path, documents: Path) -> subprocess.CompletedProcess[str]:
    """Run `demo --exit` on a folder, without the test run's own servers and settings."""
    ours = ("DATABASE_", "REDIS_", "RUNTIME_", "DJANGO_", "PYTEST_")
    clean = {name: text for name, text in os.environ.items() if not name.startswith(ours)}
    return subprocess.run(
        [sys.executable, "-c", ENTRY, "demo", "--exit", "--input", str(documents)],
        cwd=ROOT,
        env={**clean, "RUNTIME_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.crash
@pytest.mark.timeout(300)
def test_demo_shows_take_over_approval_and_one_publication(home: Path, tmp_path: Path) -> None:
    """A worker dies by SIGKILL, the job goes on, and its one effect happens once."""
    for number in range(200):
        text = "The Supplier's liability is unlimited. This agreement renews automatically. " * 80
        (tmp_path / f"contract-{number}.txt").write_text(f"Contract {number}\n\n{text}")
    answer = run_demo(home, tmp_path)
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


@pytest.mark.crash
@pytest.mark.timeout(300)
@pytest.mark.parametrize("count", [1, 3, 12])
def test_demo_keeps_its_promises_with_few_documents(home: Path, tmp_path: Path, count: int) -> None:
    """A job that is over in a moment is told as it was: taken over, or nothing killed."""
    for number in range(count):
        (tmp_path / f"note-{number}.txt").write_text(f"Note {number}. The weather is fine.")
    answer = run_demo(home, tmp_path)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    was_killed = "✓ taken over by worker" in answer.stdout
    assert was_killed != ("too few documents to kill a worker" in answer.stdout)
    assert "nobody" not in answer.stdout
    assert "fence" not in answer.stdout
    assert "note-0.txt: no finding\n" in answer.stdout
    assert "✓ 1 effect, 0 twice" in answer.stdout


@pytest.mark.crash
@pytest.mark.timeout(300)
def test_demo_tells_in_a_sentence_why_a_folder_is_refused(home: Path, tmp_path: Path) -> None:
    """An empty folder is the first thing that a newcomer tries."""
    answer = run_demo(home, tmp_path)
    assert answer.returncode == 1
    assert answer.stderr.strip() == "✗ The folder holds no document to review."
