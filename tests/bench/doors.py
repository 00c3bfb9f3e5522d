"""The ways in: submission from Python, one by one and in bulk, and REST under load."""

import http.client
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from uuid import uuid4

from runtime_project.local import ports
from runtime_project.local.processes import wait_until
from runtime_project.local.stack import is_ready
from tests.bench.figures import Figure
from tests.bench.world import World
from tests.support.workers import ProjectProcess

_CLIENTS = 16


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
    from django.contrib.auth.models import User

    from tasks_app.models import Tenant
    from tests import factories

    tenant = Tenant.objects.get(pk=world.tenant_id)
    _, key = factories.make_api_key(tenant, User.objects.get(pk=world.user_id))
    task_id = world.submit("bench.steps", steps=5)
    world.run(task_id)
    listener = ports.listen_anywhere("127.0.0.1")
    if listener is None:
        raise RuntimeError("no free port")
    with listener:
        port = listener.getsockname()[1]
    web = _start_web(world, port)
    seconds = 2 if world.quick else 10
    try:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        snapshots = _Load(port, lambda: ("GET", f"/runtime/tasks/{task_id}", "", headers))
        snapshots.run(rate=50, seconds=1)
        snapshots.run(rate=200, seconds=seconds)
        yield Figure(
            "snapshot GET at 200/s, p95", snapshots.p95() * 1000, "ms", 50, note=snapshots.note()
        )
        body = json.dumps({"workflow": "bench.steps", "goal": {"steps": 5}})
        admissions = _Load(
            port,
            lambda: ("POST", "/runtime/tasks", body, {**headers, "Idempotency-Key": str(uuid4())}),
        )
        admissions.run(rate=100, seconds=seconds)
        yield Figure(
            "admission at 100/s, p95", admissions.p95() * 1000, "ms", 60, note=admissions.note()
        )
    finally:
        web.kill_group()


def _start_web(world: World, port: int) -> ProjectProcess:
    command = ["-m", "uvicorn", "runtime_project.asgi:application", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--no-server-header", "--lifespan", "off"]
    environment = {
        **world.environment("web"),
        "DATABASE_ROLE": "rt_web",
        "DATABASE_POOL": "1",
    }
    web = ProjectProcess("web", world.folder, command, environment)
    if not wait_until(lambda: is_ready(f"http://127.0.0.1:{port}"), seconds=60):
        web.kill_group()
        raise RuntimeError(f"the web process is not ready:\n{web.tail()}")
    return web


Request = tuple[str, str, str, dict[str, str]]


class _Load:
    """Requests at a fixed rate from a few connections; a late answer delays no later request.

    The time of a request counts from when it was due, so that a stall is not hidden.
    """

    def __init__(self, port: int, make: Callable[[], Request]) -> None:
        self._port = port
        self._make = make
        self._lock = threading.Lock()
        self._next = 0
        self.seconds: list[float] = []
        self.refused: dict[int, int] = {}

    def run(self, *, rate: int, seconds: float) -> None:
        """Send so many requests a second for so long; keeps the answers of this run alone."""
        self._next, self.seconds, self.refused = 0, [], {}
        begin = time.monotonic() + 0.1
        threads = [
            threading.Thread(target=self._client, args=(begin, rate, int(rate * seconds)))
            for _ in range(_CLIENTS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _client(self, begin: float, rate: int, total: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        while True:
            with self._lock:
                number, self._next = self._next, self._next + 1
            if number >= total:
                connection.close()
                return
            due = begin + number / rate
            if (pause := due - time.monotonic()) > 0:
                threading.Event().wait(pause)
            method, path, body, headers = self._make()
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            answer.read()
            with self._lock:
                self.seconds.append(time.monotonic() - due)
                if answer.status >= 300:
                    self.refused[answer.status] = self.refused.get(answer.status, 0) + 1

    def p95(self) -> float:
        """Return the time that 95 of 100 requests kept."""
        if self.refused:
            sys.stderr.write(f"answers that were no success: {self.refused}\n")
        return sorted(self.seconds)[len(self.seconds) * 95 // 100]

    def note(self) -> str:
        """Return the median, and what was refused."""
        refused = f", refused {self.refused}" if self.refused else ""
        middle = sorted(self.seconds)[len(self.seconds) // 2]
        return f"p50 {middle * 1000:.1f} ms, {len(self.seconds)} requests{refused}"
