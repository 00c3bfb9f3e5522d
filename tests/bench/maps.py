"""Maps of many items, and what it costs to continue one."""

import time
from collections.abc import Iterator

from django.conf import settings

from tests.bench import durable
from tests.bench.figures import Figure
from tests.bench.world import World

_SHARES = (0.10, 0.50, 0.99)


def measure_map(world: World) -> Iterator[Figure]:
    """Whole maps by size, with a new slice at 10, 50 and 99 % of the items."""
    overheads: dict[int, list[float]] = {}
    for items in (1000, 10_000) if world.quick else (1000, 2000, 10_000, 100_000):
        seconds, overheads[items] = _run_map(world, items)
        target = 300 if items == 100_000 else None
        yield Figure(
            f"map of {items:,} items", seconds, "s", target, note=f"{items / seconds:,.0f} items/s"
        )
    for items, values in overheads.items():
        note = "at 10, 50, 99 %: " + ", ".join(f"{value * 1000:.0f}" for value in values)
        yield Figure(f"resume of {items:,} items, worst", max(values) * 1000, "ms", 250, note=note)


def _run_map(world: World, items: int) -> tuple[float, list[float]]:
    """Return the seconds of the whole map and of each resume: from the claim to its first item."""
    from tasks_app.engine import slice_runner

    task_id = world.submit("bench.items", items=items)
    began: list[float] = []

    def probe(_number: int) -> None:
        if not began:
            began.append(time.perf_counter())

    overheads: list[float] = []
    total = 0.0
    kept = dict(settings.RUNTIME)
    durable.probe = probe
    try:
        done = 0
        for share in (*_SHARES, 1.0):
            until = int(items * share)
            # The list is a step of its own, counted before the items.
            settings.RUNTIME |= {
                "slice_steps": max(1, until - done) if share < 1 else 10**9,
                "slice_seconds": 600,
            }
            began.clear()
            started = time.perf_counter()
            slice_runner.run_slice(task_id)
            total += time.perf_counter() - started
            # A slice ends after a whole range: of a small map nothing may be left at 99 %.
            if done and began:
                overheads.append(began[0] - started)
            done = until
    finally:
        durable.probe = lambda _number: None
        settings.RUNTIME.update(kept)
    return total, overheads
