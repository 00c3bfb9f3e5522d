"""SIGKILL of the process that executes a task, at every point that it passes."""

from typing import Any
from uuid import UUID

import pytest

from tests.crash import oracles
from tests.crash.bed import SLICE_POINTS, Bed

pytestmark = pytest.mark.crash


def steps_script(bed: Bed) -> list[dict[str, Any]]:
    """Committed steps, with pure ones between them whose results wait for the next commit."""
    return [bed.say(impure=True), bed.say(), bed.say(impure=True), bed.say()]


def effects_script(bed: Bed) -> list[dict[str, Any]]:
    """Two acts with a pure step between them."""
    return [bed.effect("first"), bed.say(), bed.effect("second"), bed.say()]


STEP_STOPS = [
    ("claim.after", 1),
    ("step.before", 1),
    ("step.before_commit", 1),
    ("step.after_commit", 1),
    ("step.before", 2),
    ("step.before_commit", 2),
    ("step.after_commit", 2),
    ("finish.before_receipt", 1),
    ("step.before_commit", 3),
    ("finish.before_terminal", 1),
    ("finish.after_terminal", 1),
]

EFFECT_STOPS = [
    ("effect.before", 1),
    ("effect.after_begin", 1),
    ("step.before", 1),
    ("effect.after_call", 1),
    ("step.before_commit", 1),
    ("effect.after", 1),
    ("effect.before", 2),
    ("effect.after_begin", 2),
    ("effect.after_call", 2),
    ("effect.after", 2),
    ("finish.before_terminal", 1),
]


def kill_at(bed: Bed, task_id: UUID, stop: tuple[str, int]) -> oracles.Progress:
    """Kill the executing process at a stop; return what was done by then."""
    hit = bed.sync.walk(SLICE_POINTS, task_id, stop)
    bed.kill(hit.pid)
    done = bed.progress(task_id)
    oracles.check_checkpoints(bed.task(task_id))
    bed.sync.release(SLICE_POINTS, task_id)
    return done


@pytest.mark.parametrize("stop", STEP_STOPS, ids=lambda stop: f"{stop[0]}-{stop[1]}")
def test_step_killed_anywhere_runs_at_most_once_more(bed: Bed, stop: tuple[str, int]) -> None:
    """The task goes on by itself; what was committed never runs again."""
    task_id = bed.submit(*steps_script(bed), held=SLICE_POINTS)
    before = kill_at(bed, task_id, stop)
    task = bed.check_completed(task_id, effects=0)
    oracles.check_runs(before, bed.progress(task_id))
    assert set(bed.progress(task_id).runs) == {"run_impure", "run", "run_impure.2", "run.2"}
    assert task.recoveries_total >= (stop[0] != "finish.after_terminal")


@pytest.mark.parametrize("stop", EFFECT_STOPS, ids=lambda stop: f"{stop[0]}-{stop[1]}")
def test_effect_killed_anywhere_happens_once(bed: Bed, stop: tuple[str, int]) -> None:
    """The outside world acts once on each key, and is not asked again about a settled one."""
    task_id = bed.submit(*effects_script(bed), held=SLICE_POINTS)
    before = kill_at(bed, task_id, stop)
    asked = bed.outside.counts(str(task_id))
    bed.check_completed(task_id, effects=2)
    after = bed.outside.counts(str(task_id))
    oracles.check_runs(before, bed.progress(task_id))
    for key, count in asked.items():
        if key.rpartition(":")[2] in before.committed:
            assert after[key] == count
