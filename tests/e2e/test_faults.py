"""`manage.py faults`, run as a person runs it; see docs/how-to/run-the-fault-bed.md."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]


def run_faults(report: Path, *options: str) -> dict[str, Any]:
    """Run the command; return its report after checking that every promise was kept."""
    command = [sys.executable, "-m", "tests.faults", "--report", str(report), *options]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    found: dict[str, Any] = json.loads(report.read_text())
    assert (found["good"], found["lost"], found["duplicate_acts"]) == (True, [], 0)
    assert found["audit_chains_verified"] == found["audit_chains"] >= found["tasks"] > 0
    return found


def test_every_kind_of_fault_breaks_no_promise(tmp_path: Path) -> None:
    """All kinds at once, on real processes and servers (E92, a small helping)."""
    found = run_faults(tmp_path / "report.json", "--count", "100")
    assert set(found["faults"]) == set(found["fault_kinds"])
    assert sum(found["faults"].values()) == 100


def test_postgresql_restarted_five_times_under_load_loses_nothing(tmp_path: Path) -> None:
    """Workers find back to the database by themselves, and none ends."""
    options = ("--only", "restart_postgres", "--count", "5", "--pace", "0.3")
    found = run_faults(tmp_path / "report.json", *options)
    assert found["faults"] == {"restart_postgres": 5}
    assert found["workers_ended_by_themselves"] == 0
