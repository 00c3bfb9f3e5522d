"""REST for a minute: tasks that are started, a task that is read, through one web process."""

from collections.abc import Iterator

from tests.bench.doors import creation_load, snapshot_load
from tests.bench.figures import Figure
from tests.bench.load import web_process
from tests.bench.usage import Usage
from tests.bench.world import World

_PEOPLE = 10


def measure_creation(world: World) -> Iterator[Figure]:
    """Tasks at 100 a second, each with plan, audit entry and owed message."""
    with web_process(world) as (port, web):
        load = creation_load(port, world.people(_PEOPLE))
        load.run(rate=20, seconds=1)
        usage = Usage(web.pid)
        usage.look()
        load.run(rate=100, seconds=_seconds(world))
        usage.look()
    share, p95 = load.share, load.percentile(95)
    yield Figure("creations that succeeded", share, "%", 99.9, at_least=True, note=load.note())
    yield Figure("creation at 100/s, p95", p95, "ms", 60)
    cores, cost = usage.cpu / _seconds(world), load.cost(usage.cpu)
    yield Figure("web processor time, creation", cores, "cores", note=cost)


def measure_snapshot(world: World) -> Iterator[Figure]:
    """Snapshots of finished tasks at 200 a second."""
    with web_process(world) as (port, web):
        load = snapshot_load(world, port, world.people(_PEOPLE))
        usage = Usage(web.pid)
        usage.look()
        load.run(rate=200, seconds=_seconds(world))
        usage.look()
    share, p95 = load.share, load.percentile(95)
    yield Figure("snapshot at 200/s, p95", p95, "ms", 50, note=load.note())
    yield Figure("snapshots that succeeded", share, "%", 99.9, at_least=True)
    cores, cost = usage.cpu / _seconds(world), load.cost(usage.cpu)
    yield Figure("web processor time, snapshots", cores, "cores", note=cost)


def _seconds(world: World) -> float:
    return 5 if world.quick else 60
