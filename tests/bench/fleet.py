"""Real workers: many short tasks, the wait before a first step, and workers that go away."""

import itertools
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from runtime_project.local import processes
from runtime_project.local.processes import wait_until
from tests.bench import plain
from tests.bench.figures import Figure
from tests.bench.usage import cpu_seconds
from tests.bench.world import World
from tests.support.workers import Sweeper, Worker

_numbers = itertools.count(1)


class Fleet:
    """Workers with one process each, and a sweeper."""

    def __init__(self, world: World, **variables: str) -> None:
        self.world = world
        self.variables = variables
        self.workers: list[Worker] = []
        self.sweeper = Sweeper(f"sweep{next(_numbers)}", world.folder, self._environment("sweep"))

    def add(self, application: str = "runtime_project", queue: str = "slices") -> Worker:
        """Start one worker and wait until it takes messages."""
        name = f"worker{next(_numbers)}"
        worker = Worker(
            name, self.world.folder, self._environment(name), application=application, queue=queue
        )
        self.workers.append(worker)
        worker.wait_ready()
        return worker

    def _environment(self, name: str) -> dict[str, str]:
        return {
            **self.world.environment(name),
            "DATABASE_ROLE": "rt_worker",
            **self.variables,
        }

    def owner_of(self, pid: int) -> Worker:
        """Return the worker whose child has this pid."""
        group = os.getpgid(pid)
        return next(worker for worker in self.workers if worker.pid == group)

    def remove(self, worker: Worker) -> None:
        """Make sure that a worker has ended, and forget it."""
        worker.kill_group()
        self.workers.remove(worker)

    def stop(self) -> None:
        """End everything."""
        for process in (self.sweeper, *self.workers):
            process.kill_group()


@contextmanager
def _fleet(world: World, workers: int, **variables: str) -> Iterator[Fleet]:
    fleet = Fleet(world, **variables)
    try:
        for _ in range(workers):
            fleet.add()
        yield fleet
    finally:
        fleet.stop()


@contextmanager
def _plain_workers(world: World, fleet: Fleet, workers: int) -> Iterator[list[Worker]]:
    world.execute("DROP TABLE IF EXISTS plain_task, plain_step")
    world.execute(plain.SCHEMA)
    world.execute("GRANT ALL ON plain_task, plain_step TO PUBLIC")
    started = [fleet.add("tests.bench.plain", "plain") for _ in range(workers)]
    try:
        yield started
    finally:
        for worker in started:
            fleet.remove(worker)


# --- many short tasks ---------------------------------------------------------------------------


def measure_throughput(world: World) -> Iterator[Figure]:
    """Short tasks on two workers, in turns with the same chain on two plain Celery workers."""
    tasks, rounds, steps = (100, 2, 5) if world.quick else (250, 4, 5)
    ours: list[float] = []
    theirs: list[float] = []
    cpu: list[float] = []
    plain_cpu: list[float] = []
    with _fleet(world, 2) as fleet, _plain_workers(world, fleet, 2) as plain_workers:
        own = [worker for worker in fleet.workers if worker not in plain_workers]
        _run_tasks(world, own, 40, steps)
        _run_plain(world, plain_workers, 40, steps, first=10_000_000)
        for number in range(rounds):
            before = _cpu_seconds(own)
            ours.append(_run_tasks(world, own, tasks, steps))
            cpu.append((_cpu_seconds(own) - before) / (tasks * steps))
            before = _cpu_seconds(plain_workers)
            theirs.append(_run_plain(world, plain_workers, tasks, steps, first=number * tasks))
            plain_cpu.append((_cpu_seconds(plain_workers) - before) / (tasks * steps))
    rate, plain_rate = (tasks / statistics.median(seconds) for seconds in (ours, theirs))
    ratio = rate / plain_rate
    yield Figure("tasks of 5 steps, two workers", rate, "tasks/s", 250, at_least=True, ratio=ratio)
    yield Figure("the same against plain Celery", ratio, "×", 1.0, at_least=True)
    yield Figure("plain Celery, two workers", plain_rate, "tasks/s")
    yield Figure("worker CPU per step", statistics.median(cpu) * 1000, "ms", 0.95)
    yield Figure("worker CPU per step, plain Celery", statistics.median(plain_cpu) * 1000, "ms")


def _run_tasks(world: World, workers: list[Worker], count: int, steps: int) -> float:
    """Return the seconds from the first claim to the last end; all tasks wait before it."""
    with _frozen(workers):
        ids = [world.submit("bench.steps", steps=steps) for _ in range(count)]
    return _seconds_between(world, "tasks_app_task", ids, count)


def _run_plain(world: World, workers: list[Worker], count: int, steps: int, *, first: int) -> float:
    ids = list(range(first, first + count))
    with _frozen(workers):
        for task_id in ids:
            world.execute("INSERT INTO plain_task VALUES (%s, 0)", (task_id,))
            plain.step.delay(task_id, 0, steps)
    return _seconds_between(world, "plain_task", ids, count)


def _seconds_between(world: World, table: str, ids: list[UUID] | list[int], count: int) -> float:
    statement = (
        "SELECT count(finished_at), extract(epoch FROM max(finished_at) - min(started_at))"
        f" FROM {table} WHERE id = ANY(%s)"
    )
    found: list[float] = []

    def all_done() -> bool:
        done, seconds = world.execute(statement, (ids,))[0]
        found[:] = [float(seconds or 0)]
        return bool(done == count)

    if not wait_until(_paced(all_done, 0.2), seconds=120):
        raise RuntimeError(f"{table}: not all of {count} tasks ended within two minutes")
    return found[0]


def _paced(condition: Callable[[], bool], pause: float) -> Callable[[], bool]:
    """Return a condition that asks seldom, so that asking costs the measured ones nothing."""

    def ask() -> bool:
        threading.Event().wait(pause)
        return condition()

    return ask


@contextmanager
def _frozen(workers: list[Worker]) -> Iterator[None]:
    """Hold idle workers still while their work is laid out."""
    for worker in workers:
        os.killpg(worker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for worker in workers:
            os.killpg(worker.pid, signal.SIGCONT)


def _cpu_seconds(workers: list[Worker]) -> float:
    """Return the processor time that workers and their children have used."""
    pids = [pid for worker in workers for pid in processes.group_members(worker.pid)]
    return sum(map(cpu_seconds, pids))


# --- the wait before a first step ---------------------------------------------------------------


def measure_latency(world: World) -> Iterator[Figure]:
    """From the call that submits to the first step's body, while nothing else is to be done."""
    ours: list[float] = []
    theirs: list[float] = []
    with _fleet(world, 1) as fleet, _plain_workers(world, fleet, 1):
        for number in range(40 if world.quick else 300):
            ours.append(_first_step(world))
            theirs.append(_first_plain_step(world, number))
    # The first ones pay for what is loaded once.
    ours, theirs = sorted(ours[10:]), sorted(theirs[10:])
    p50, plain_p50 = _percentile(ours, 50), _percentile(theirs, 50)
    yield Figure(
        "submit to first step, p50 against plain Celery",
        p50 / plain_p50,
        "×",
        2.0,
        note=f"{p50 * 1000:.1f} ms against {plain_p50 * 1000:.1f} ms",
    )
    yield Figure("submit to first step, p99", _percentile(ours, 99) * 1000, "ms", 12)
    yield Figure("plain Celery, p99", _percentile(theirs, 99) * 1000, "ms")


def _first_step(world: World) -> float:
    started = time.monotonic()
    task_id = world.submit("bench.steps", steps=1, kind="timed")
    rows = _wait_row(
        world,
        "SELECT result ->> 'inline' FROM tasks_app_step WHERE task_id = %s AND result IS NOT NULL",
        task_id,
    )
    return float(rows[0][0]) - started


def _first_plain_step(world: World, number: int) -> float:
    world.execute("INSERT INTO plain_task VALUES (%s, 0)", (number,))
    started = time.monotonic()
    plain.step.delay(number, 0, 1)
    return (
        float(_wait_row(world, "SELECT at FROM plain_step WHERE task_id = %s", number)[0][0])
        - started
    )


def _wait_row(world: World, statement: str, parameter: UUID | int) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []

    def is_there() -> bool:
        found[:] = world.execute(statement, (parameter,))
        return bool(found)

    if not wait_until(_paced(is_there, 0.02), seconds=30):
        raise RuntimeError("a first step never ran")
    return found


def _percentile(ordered: list[float], percent: int) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


# --- workers that go away -----------------------------------------------------------------------


def measure_takeover(world: World) -> Iterator[Figure]:
    """Kill -9 in the middle of steps, under a short and a very long lease."""
    gone = [
        gap
        for lease in ("30", "300")
        for gap in _departures(world, signal.SIGKILL, 2 if world.quick else 5, lease)
    ]
    seconds = [gap.seconds for gap in gone]
    yield Figure("take-over after kill -9, median", statistics.median(seconds), "s", 1.0)
    yield Figure("take-over after kill -9, worst", max(seconds), "s", 2.0)
    yield Figure("steps run again, worst", max(gap.steps_again for gap in gone), "", 1)
    yield Figure("effects done twice", sum(gap.acts_again for gap in gone), "", 0)


def measure_handover(world: World) -> Iterator[Figure]:
    """SIGTERM in the middle of steps: another worker goes on, nothing is done twice."""
    gone = _departures(world, signal.SIGTERM, 4 if world.quick else 20, "30")
    seconds = sorted(gap.seconds for gap in gone)
    yield Figure("hand-over on SIGTERM, p95", _percentile(seconds, 95), "s", 1.0)
    yield Figure("hand-over on SIGTERM, median", statistics.median(seconds), "s")
    yield Figure("steps run again at hand-over", sum(gap.steps_again for gap in gone), "", 0)


class _Gap:
    """What the trace of one task says about a worker that went away."""

    def __init__(self, lines: list[list[str]], gone_at: float, pid: int) -> None:
        after = [float(at) for at, by, _, _ in lines if int(by) != pid and float(at) > gone_at]
        self.seconds = min(after) - gone_at
        names = [(kind, number) for _, _, kind, number in lines]
        twice = [name for name in set(names) if names.count(name) > 1]
        self.steps_again = sum(kind == "step" for kind, _ in twice)
        self.acts_again = sum(kind == "act" for kind, _ in twice)


def _departures(world: World, number: signal.Signals, times: int, lease: str) -> list[_Gap]:
    """Make the worker of a running task go away, again and again, and see who goes on when."""
    gaps = []
    with _fleet(world, 2, RUNTIME_LEASE_SECONDS=lease) as fleet:
        for _ in range(times):
            gaps.append(_one_departure(world, fleet, number))
            fleet.add()
    return gaps


def _one_departure(world: World, fleet: Fleet, number: signal.Signals) -> _Gap:
    trace = world.folder / f"trace{next(_numbers)}"
    task_id = world.submit("bench.steps", steps=2000, kind="traced", trace=str(trace), seconds=0.02)
    if not wait_until(lambda: len(_lines(trace)) > 20, seconds=30):
        raise RuntimeError("the traced task never ran")
    pid = int(_lines(trace)[-1][1])
    worker = fleet.owner_of(pid)
    gone_at = time.monotonic()
    if number == signal.SIGKILL:
        worker.kill_group()
    else:
        worker.send(number)

    def goes_on() -> bool:
        by_others = [line for line in _lines(trace) if int(line[1]) != pid]
        return len(by_others) > 10

    if not wait_until(goes_on, seconds=60):
        raise RuntimeError("nobody took the task over")
    _cancel(world, task_id)
    with suppress(ValueError):
        fleet.remove(worker)
    return _Gap(_lines(trace), gone_at, pid)


def _lines(trace: Path) -> list[list[str]]:
    if not trace.exists():
        return []
    return [line.split() for line in trace.read_text().splitlines() if line.count(" ") == 3]


def _cancel(world: World, task_id: UUID) -> None:
    """End the task, so that its worker is free again."""
    from uuid import uuid4

    from tasks_app.admission import commands
    from tasks_app.models import Task

    def version() -> int:
        return int(Task.objects.for_tenant(world.tenant_id).get(pk=task_id).state_version)

    commands.submit_command(
        world.submitter,
        task_id=task_id,
        command_id=uuid4(),
        type="cancel",
        payload={},
        expected_version=version(),
        reason="measured",
        source="rest",
    )
    rows = Task.objects.for_tenant(world.tenant_id).filter(pk=task_id, status="cancelled")
    if not wait_until(rows.all().exists, seconds=30):
        raise RuntimeError("a measured task did not end")
