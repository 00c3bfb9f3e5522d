"""Seeded schedules over the real engine and the real database (E91).

`manage.py schedules --seeds 20000` plays more of them, `--seed N` one again.
"""

import os
from collections import Counter

import pytest

from tests.model.seeds import Bench, play

pytestmark = pytest.mark.crash

BLOCK = 50


def _asked() -> range:
    first, _, last = os.environ.get("PERDURE_SEEDS", "1-1000").partition("-")
    return range(int(first), int(last or first) + 1)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", list(_asked())[::BLOCK])
def test_no_order_of_events_breaks_a_promise(bench: Bench, first: int) -> None:
    """Workers, sweepers, people and faults in every order that the seeds draw."""
    ends: Counter[str] = Counter()
    for seed in range(first, min(first + BLOCK, _asked().stop)):
        played = play(bench, seed)
        assert played.violation is None, played.report()
        ends.update(played.statuses)
    # Where hardly anything gets done, hardly anything can go wrong.
    assert ends["completed"] >= sum(ends.values()) // 5, ends


def test_same_seed_is_the_same_schedule(bench: Bench) -> None:
    """A seed is a name for one order of events: what it found can be looked at again."""
    for seed in (3, 4, 5):
        first, second = play(bench, seed), play(bench, seed)
        assert first.trace == second.trace
        assert first.statuses == second.statuses
