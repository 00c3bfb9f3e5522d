"""The ways in: submission from Python, one by one and in bulk, and REST under load."""

import json
import time
from collections.abc import Iterator
from uuid import uuid4

from tests.bench.connection import Request
from tests.bench.figures import Figure
from tests.bench.load import Load, web_process
from tests.bench.world import Person, World


def measure_submission(world: World) -> Iterator[Figure]:
    """Tasks of five steps admitted from Python, with plan, audit entry and owed message."""
    count = 200 if world.quick else 2000
    bare = world.bare.seconds_per_step(300)
    started = time.perf_counter()
    for _ in range(count):
        world.submit("bench.steps", steps=5)
    seconds = (time.perf_counter() - started) / count
    bare = (bare + world.bare.seconds_per_step(300)) / 2
    yield Figure(
        "submission in process", 1 / seconds, "tasks/s", 1200, at_least=True, ratio=bare / seconds
    )
    count = 2000 if world.quick else 20_000
    started = time.perf_counter()
    world.submit_many("bench.steps", [{"steps": 5}] * count)
    seconds = (time.perf_counter() - started) / count
    yield Figure("submission in bulk", 1 / seconds, "tasks/s", 9000, at_least=True)
    # Nobody shall work on them while something else is measured.
    world.execute(
        "UPDATE tasks_app_task SET next_wake_at = clock_timestamp() + interval '1 day'"
        " WHERE status = 'queued'"
    )


def measure_http(world: World) -> Iterator[Figure]:
    """REST through one uvicorn: snapshots at 200 a second, admissions at 100 a second."""
    seconds = 2 if world.quick else 10
    with web_process(world) as (port, _):
        people = world.people(4)
        snapshots = snapshot_load(world, port, people)
        snapshots.run(rate=200, seconds=seconds)
        p95 = snapshots.percentile(95)
        yield Figure("snapshot GET at 200/s, p95", p95, "ms", 50, note=snapshots.note())
        admissions = creation_load(port, people)
        admissions.run(rate=100, seconds=seconds)
        p95 = admissions.percentile(95)
        yield Figure("admission at 100/s, p95", p95, "ms", 60, note=admissions.note())


def snapshot_load(world: World, port: int, people: list[Person]) -> Load:
    """Return a warm load of people who read a finished task of theirs."""
    mine = [(person, world.submit("bench.steps", by=person, steps=5)) for person in people]
    for _, task_id in mine:
        world.run(task_id)

    def request(number: int) -> Request:
        person, task_id = mine[number % len(mine)]
        return "GET", f"/runtime/tasks/{task_id}", "", person.headers

    load = Load(port, request)
    load.run(rate=50, seconds=1)
    return load


def creation_load(port: int, people: list[Person]) -> Load:
    """Return a load of people who start tasks, each under a key of its own."""
    body = json.dumps({"workflow": "bench.steps", "goal": {"steps": 5}})

    def request(number: int) -> Request:
        headers = {"Content-Type": "application/json", "Idempotency-Key": str(uuid4())}
        return "POST", "/runtime/tasks", body, {**people[number % len(people)].headers, **headers}

    return Load(port, request)
