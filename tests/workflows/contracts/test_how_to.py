"""The how-to names every code and shows a goal that is accepted."""

import json
import re
from pathlib import Path

import pytest

from tasks_app.workflows.contracts import bench, discovery, pdf
from tasks_app.workflows.contracts.rules import load_rules
from tasks_app.workflows.contracts.workflow import ReviewGoal

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/how-to/review-contracts.md").read_text("utf-8")
RAISED = re.compile(r'(?:Document|Folder|Publication|Goal)Error\(\s*(?:f"[^"]*",\s*)?"([a-z_]+)"')


def test_every_code_is_explained() -> None:
    codes = set(pdf._MESSAGES) | set(discovery.UNREAD)
    for path in (ROOT / "tasks_app/workflows/contracts").glob("*.py"):
        codes |= set(RAISED.findall(path.read_text("utf-8")))
    assert len(codes) > 40
    assert {code for code in codes if f"`{code}`" not in PAGE} == set()


def test_goal_of_the_example_is_accepted() -> None:
    (body,) = re.findall(r'^(\{"workflow".*\})$', PAGE, re.MULTILINE)
    goal = ReviewGoal.model_validate(json.loads(body)["goal"])
    assert all(load_rules().is_focus(name) for name in goal.focus)
    assert set(re.findall(r"^\| `(\w+)` \| [A-Z`]", PAGE, re.MULTILINE)) >= set(
        ReviewGoal.model_fields
    )


def test_levels_are_those_of_the_rules() -> None:
    medium, high, critical = load_rules().levels
    assert f"Medium begins at {medium}, high at {high}, critical at {critical}." in PAGE


def test_bench_of_a_missing_folder_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason, and the usage's exit code."""
    assert bench.main([str(tmp_path / "missing")]) == 2
    assert "missing is not a folder" in capsys.readouterr().err
