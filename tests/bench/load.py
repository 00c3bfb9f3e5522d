"""A web process under load: requests at a fixed rate, each timed from when it was due."""

import http.client
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from runtime_project.local import ports
from runtime_project.local.processes import wait_until
from runtime_project.local.stack import is_ready
from tests.bench.world import World
from tests.support.workers import ProjectProcess

_CLIENTS = 16

# Method, path, body, headers.
Request = tuple[str, str, str, dict[str, str]]


@contextmanager
def web_process(world: World) -> Iterator[tuple[int, ProjectProcess]]:
    """Start one uvicorn with the whole site; yield its port and the process."""
    listener = ports.listen_anywhere("127.0.0.1")
    if listener is None:
        raise RuntimeError("no free port")
    with listener:
        port: int = listener.getsockname()[1]
    command = ["-m", "uvicorn", "runtime_project.asgi:application", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--no-server-header", "--lifespan", "on"]
    environment = {**world.environment("web"), "DATABASE_ROLE": "rt_web", "DATABASE_POOL": "1"}
    web = ProjectProcess("web", world.folder, command, environment)
    try:
        if not wait_until(lambda: is_ready(f"http://127.0.0.1:{port}"), seconds=60):
            raise RuntimeError(f"the web process is not ready:\n{web.tail()}")
        yield port, web
    finally:
        web.kill_group()


class Load:
    """Requests at a fixed rate from a few connections; a late answer delays no later request.

    The time of a request counts from when it was due, so that a stall is not hidden. An answer
    that never came counts as refused with status 0.
    """

    def __init__(
        self, port: int, make: Callable[[int], Request], *, clients: int = _CLIENTS
    ) -> None:
        self._clients = clients
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
            for _ in range(self._clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.refused:
            sys.stderr.write(f"answers that were no success: {self.refused}\n")

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
            status = self._ask(connection, number)
            with self._lock:
                self.seconds.append(time.monotonic() - due)
                if not 200 <= status < 300:
                    self.refused[status] = self.refused.get(status, 0) + 1

    def _ask(self, connection: http.client.HTTPConnection, number: int) -> int:
        method, path, body, headers = self._make(number)
        try:
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            return 0
        return answer.status

    @property
    def share(self) -> float:
        """The share of requests that were a success, in percent."""
        return 100 * (1 - sum(self.refused.values()) / len(self.seconds))

    def percentile(self, percent: int) -> float:
        """Return the milliseconds that so many of 100 requests kept."""
        return sorted(self.seconds)[len(self.seconds) * percent // 100] * 1000

    def note(self) -> str:
        """Return median and worst, and what was refused."""
        refused = f", refused {self.refused}" if self.refused else ""
        middle, worst = self.percentile(50), max(self.seconds) * 1000
        return f"p50 {middle:.1f} ms, worst {worst:.0f} ms, {len(self.seconds)} requests{refused}"
