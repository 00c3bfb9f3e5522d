"""The bench's own parts: what its table and its file say. Measuring is the slow stage's."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.bench.figures import Figure, write_json


@pytest.mark.parametrize(
    ("value", "at_least", "verdict"),
    [
        (2.0, False, "holds"),
        (2.5, False, "misses 1.25×"),
        (2.0, True, "holds"),
        (1.0, True, "misses 2.00×"),
    ],
)
def test_verdict_says_by_how_much_a_target_is_missed(
    value: float, at_least: bool, verdict: str
) -> None:
    """A target is an upper or a lower bound; the miss is told as a factor."""
    assert Figure("x", value, "s", target=2.0, at_least=at_least).verdict == verdict


def test_number_without_target_holds_nothing(tmp_path: Path) -> None:
    """Explaining numbers have neither verdict nor `holds`."""
    figure = Figure("x", 1.0, "s")
    write_json(tmp_path / "f.json", [figure], {"cores": 2})
    (row,) = json.loads((tmp_path / "f.json").read_text())["figures"]
    assert (figure.verdict, row["holds"], row["target"]) == ("", None, None)


@pytest.mark.crash
@pytest.mark.parametrize(
    ("arguments", "name", "least"),
    [
        (["engine", "--only", "steps"], "sequential committed steps, share of bare", 0.01),
        (["streams", "--only", "tasks"], "task streams with the right end", 200),
        (["streams", "--only", "runs"], "run streams with the right end", 200),
        (["api", "--only", "creation"], "creations that succeeded", 99.9),
        (["api", "--only", "snapshot"], "snapshots that succeeded", 99.9),
    ],
)
def test_bench_measures_and_cleans_up(
    tmp_path: Path, arguments: list[str], name: str, least: float
) -> None:
    """One section on servers of its own: a JSON file with what holds at any speed, exit code 0."""
    file = tmp_path / "figures.json"
    command = ["-m", "tests.bench", *arguments, "--quick", "--json", str(file)]
    done = subprocess.run([sys.executable, *command], cwd=ROOT, check=False, timeout=170)
    figures = {row["name"]: row for row in json.loads(file.read_text())["figures"]}
    assert done.returncode == 0
    assert figures[name]["value"] >= least
