"""Every planted bug is found, and the oracle that finds it is named."""

import sys

import pytest

from tests.model.planted.bugs import BUGS
from tests.model.planted.editing import Bug, planted
from tests.model.seeds import Bench, play
from tests.support.oracles import OracleViolation

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

# A bug that hides longer than this from random schedules is a hole in workload or oracles.
MAX_SEEDS = 600


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_planted_bug_is_found(bench: Bench, bug: Bug, capsys: pytest.CaptureFixture[str]) -> None:
    """Schedules play until an oracle speaks."""
    with planted(bug):
        seed, violation = _hunt(bench)
    assert violation is not None, f"{MAX_SEEDS} seeds did not find {bug.name}: {bug.story}"
    with capsys.disabled():
        sys.stdout.write(f"\n{bug.name}: found by {violation.oracle} at seed {seed}\n")
        sys.stdout.write(f"  {str(violation)[:300]}\n")


def _hunt(bench: Bench) -> tuple[int, OracleViolation | None]:
    for seed in range(1, MAX_SEEDS + 1):
        violation = play(bench, seed).violation
        if violation is not None:
            return seed, violation
    return MAX_SEEDS, None
