"""What one step costs on one connection: committed, held back, as an effect, early and late."""

import statistics
import time
from collections.abc import Iterator

from tests.bench import durable
from tests.bench.figures import Figure
from tests.bench.world import World


def measure_steps(world: World) -> Iterator[Figure]:
    """Sequential steps, each committed; a checkpoint with every tenth (E94: ≥ 0.40 of bare)."""
    yield from _against_bare(world, "committed", "sequential committed steps", target=0.40)


def measure_effects(world: World) -> Iterator[Figure]:
    """Every step an act: begun and settled in the ledger (E94: ≥ 0.25 of bare)."""
    yield from _against_bare(world, "act", "every step an effect", target=0.25)


def measure_checkpoint(world: World) -> Iterator[Figure]:
    """Pure steps in groups of ten, each group with its checkpoint (E94: ≥ 5,000 steps/s)."""
    rate, bare_rate = _rates(world, "pure", steps=500 if world.quick else 4000)
    yield Figure(
        "checkpoint every 10 pure steps",
        rate,
        "steps/s",
        5000,
        at_least=True,
        ratio=rate / bare_rate,
        note="ratio to bare commits",
    )


def _against_bare(world: World, kind: str, name: str, *, target: float) -> Iterator[Figure]:
    rate, bare_rate = _rates(world, kind, steps=200 if world.quick else 1000)
    yield Figure(f"{name}, share of bare", rate / bare_rate, "", target, at_least=True)
    yield Figure(f"{name}, rate", rate, "steps/s", ratio=rate / bare_rate)
    yield Figure(f"bare commits beside {name}", bare_rate, "steps/s")


def _rates(world: World, kind: str, *, steps: int) -> tuple[float, float]:
    """Return steps a second of the engine and of the yardstick, medians of rounds in turns."""
    world.run(world.submit("bench.steps", steps=20, kind=kind))
    ours, bare = [], []
    for _ in range(3 if world.quick else 7):
        bare.append(world.bare.seconds_per_step(300))
        task_id = world.submit("bench.steps", steps=steps, kind=kind)
        started = time.perf_counter()
        world.run(task_id)
        ours.append((time.perf_counter() - started) / steps)
        bare.append(world.bare.seconds_per_step(300))
    return 1 / statistics.median(ours), 1 / statistics.median(bare)


_POINTS = (10, 100, 1000, 5000, 9950)
_BEFORE, _AFTER = 100, 40


def measure_growth(world: World) -> Iterator[Figure]:
    """The cost of a step far into a plan, against one near its beginning.

    Each cost is the median of the steps around a point as a share of the yardstick's median there.
    """
    costs: dict[int, list[float]] = {point: [] for point in _POINTS}
    for _ in range(1 if world.quick else 5):
        for point, share in _costs_along_a_plan(world).items():
            costs[point].append(share)
    cost = {point: statistics.median(costs[point]) for point in _POINTS}
    for point in _POINTS:
        yield Figure(f"cost of step {point:,}", cost[point], "× bare")
    yield Figure("cost of step 5,000 against step 100", cost[5000] / cost[100], "×", 1.15)


def _costs_along_a_plan(world: World) -> dict[int, float]:
    began: list[float] = []
    bare: dict[int, list[float]] = {point: [] for point in _POINTS}
    ours: dict[int, list[float]] = {point: [] for point in _POINTS}

    def probe(number: int) -> None:
        began.append(time.perf_counter())
        for point in _POINTS:
            if max(0, point - _BEFORE) <= number < point + _AFTER and number > 0:
                ours[point].append(began[-1] - began[-2])
                if number % 2:
                    bare[point] += world.bare.times(1)
                    # The yardstick's time is nobody's step.
                    began[-1] = time.perf_counter()

    task_id = world.submit("bench.steps", steps=10_000, kind="committed")
    durable.probe = probe
    try:
        world.run(task_id)
    finally:
        durable.probe = lambda _number: None
    return {p: statistics.median(ours[p]) / statistics.median(bare[p]) for p in _POINTS}


def measure_storage(world: World) -> Iterator[Figure]:
    """What a step leaves in tables and indexes after it has run."""
    steps = 1000 if world.quick else 5000
    before = _stored_bytes(world)
    task_id = world.submit("bench.steps", steps=steps, kind="committed")
    planned = _stored_bytes(world)
    world.run(task_id)
    after = _stored_bytes(world)
    yield Figure(
        "bytes kept per trivial step",
        (after - before) / steps,
        "B",
        110,
        note="tables with indexes after VACUUM FULL: plan row, result, journal, checkpoints",
    )
    yield Figure("of which its row in the plan", (planned - before) / steps, "B")
    yield from _by_table(world, steps)


def _by_table(world: World, steps: int) -> Iterator[Figure]:
    rows = world.execute(
        "SELECT relname, pg_total_relation_size(relid) FROM pg_stat_user_tables"
        " WHERE relname LIKE 'tasks_app_%' OR relname LIKE 'ledger_app_%'"
        " ORDER BY 2 DESC LIMIT 4"
    )
    for table, size in rows:
        yield Figure(f"table {table}", size / 1024, "kB", note="all of this run")


def _stored_bytes(world: World) -> int:
    names = world.execute(
        "SELECT relname FROM pg_stat_user_tables"
        " WHERE relname LIKE 'tasks_app_%' OR relname LIKE 'ledger_app_%'"
    )
    for (name,) in names:
        world.execute(f"VACUUM FULL {name}")
    rows = world.execute(
        "SELECT sum(pg_total_relation_size(relid)) FROM pg_stat_user_tables"
        " WHERE relname LIKE 'tasks_app_%' OR relname LIKE 'ledger_app_%'"
    )
    return int(rows[0][0])
