"""SIGKILL inside of turns, between them, and around the start and the end of children."""

from typing import Any
from uuid import UUID

import pytest

from tasks_app.models import Task
from tests.crash.bed import SLICE_POINTS, Bed
from tests.support import oracles, outside_oracles
from tests.support.evidence import of

pytestmark = pytest.mark.crash

CHILD_POINTS = ("child.before_start", "child.after_start", "child.before_wake")

TURN_STOPS = [
    # The first commit stores the loop, the second one the first step of the first turn.
    ("step.before_commit", 2),
    ("step.after_commit", 2),
    ("effect.after_begin", 1),
    ("effect.after_call", 1),
    ("effect.after", 1),
    # Right before and behind the end of the first turn, then in the second one.
    ("step.before_commit", 4),
    ("step.after_commit", 3),
    ("step.before", 4),
    ("effect.after_call", 2),
    ("finish.before_terminal", 1),
]


def said(word: str, turns: int) -> list[str]:
    return [line for n in range(turns) for line in (f"{word}turn[{n}]/say", f"turn[{n}]/whisper")]


@pytest.mark.parametrize("stop", TURN_STOPS, ids=lambda stop: f"{stop[0]}-{stop[1]}")
def test_function_killed_anywhere_goes_on_at_its_open_turn(bed: Bed, stop: tuple[str, int]) -> None:
    """Committed calls never run again, states are those of the open turn, each act happens once."""
    goal = {
        "turns": 3,
        "word": "w-",
        "append": str(bed.runs),
        "post": f"{bed.outside.url}/{stop[0]}",
    }
    task_id = bed.admit("scripted.loop", goal, held=SLICE_POINTS)
    hit = bed.sync.walk(SLICE_POINTS, task_id, stop)
    bed.kill(hit.pid)
    before = bed.progress(task_id)
    oracles.check_checkpoints(of(bed.task(task_id)))
    bed.sync.release(SLICE_POINTS, task_id)
    task = bed.check_completed(task_id, effects=3)
    outside_oracles.check_runs(before, bed.progress(task_id))
    assert task.result == said("w-", 3)


def children_of(bed: Bed, task_id: UUID) -> list[Task]:
    rows = Task.objects.for_tenant(bed.tenant.id).filter(parent_id=task_id)
    return list(rows.order_by("created_at"))


@pytest.mark.parametrize("point", CHILD_POINTS)
@pytest.mark.parametrize("form", ["class", "function"])
def test_child_exists_once_and_its_end_is_noticed(bed: Bed, form: str, point: str) -> None:
    """Killed before or after a child's start, or between its end and its parent's wake-up."""
    append = str(bed.runs)
    goals: dict[str, tuple[str, dict[str, Any]]] = {
        "class": ("scripted", {"script": [{"op": "task", "script": [bed.say(impure=True)]}]}),
        "function": ("scripted.loop", {"turns": 1, "append": append, "child": True}),
    }
    task_id = bed.admit(*goals[form], held=point)
    hit = bed.sync.wait_hit(point, task_id)
    bed.kill(hit.pid)
    bed.sync.release(point, task_id)
    bed.wait_rest(task_id)
    task = bed.task(task_id)
    assert task.status == "completed", task.error
    [child] = children_of(bed, task_id)
    assert child.status == "completed"
    for row in (task, child):
        oracles.check_task(row)
    assert bed.progress(task_id).runs["run_impure"] == 1


def test_child_of_a_task_that_was_cancelled_ends_though_nobody_told_it(bed: Bed) -> None:
    """The sweeper cancels a child whose parent ended while the process that knew was killed."""
    script = [bed.say(impure=True), bed.say(impure=True)]
    parent_id = bed.submit({"op": "task", "script": [{"op": "interrupt"}, *script]})
    bed.wait(lambda: bool(children_of(bed, parent_id)), "a child")
    [child] = children_of(bed, parent_id)
    bed.wait(lambda: bed.task(child.id).status == "input_required", "the child's question")
    bed.steer(parent_id, "cancel")
    assert bed.wait_rest(parent_id).status == "cancelled"
    bed.wait(lambda: bed.task(child.id).status == "cancelled", "the child's end")
    oracles.check_task(bed.task(child.id))
