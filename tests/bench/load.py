"""A web process under load: requests at a fixed rate, each timed from when it was due."""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from runtime_project.local import ports
from runtime_project.local.processes import wait_until
from runtime_project.local.stack import is_ready
from tests.bench.connection import Connection, Request
from tests.bench.world import World
from tests.support.workers import ProjectProcess

_CLIENTS = 16


@contextmanager
def web_process(world: World) -> Iterator[tuple[int, ProjectProcess]]:
    """Start one uvicorn with the whole site; yield its port and the process."""
    listener = ports.listen_anywhere("127.0.0.1")
    if listener is None:
        raise RuntimeError("no free port")
    with listener:
        port: int = listener.getsockname()[1]
    command = ["-m", "uvicorn", "runtime_project.asgi:application", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--no-server-header", "--lifespan", "on", "--no-access-log"]
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
    that never came counts as refused with status 0. All connections are served by one loop, with
    little more than the bytes: what the load takes of the cores, the server has not.
    """

    def __init__(
        self, port: int, make: Callable[[int], Request], *, clients: int = _CLIENTS
    ) -> None:
        self._clients = clients
        self._port = port
        self._make = make
        self.seconds: list[float] = []
        self.refused: dict[int, int] = {}
        self.cpu_seconds = 0.0

    def run(self, *, rate: int, seconds: float) -> None:
        """Send so many requests a second for so long; keeps the answers of this run alone."""
        self.seconds, self.refused = [], {}
        used = time.process_time()
        asyncio.run(self._run(rate, iter(range(int(rate * seconds)))))
        self.cpu_seconds = time.process_time() - used
        if self.refused:
            sys.stderr.write(f"answers that were no success: {self.refused}\n")

    async def _run(self, rate: int, numbers: Iterator[int]) -> None:
        begin = time.monotonic() + 0.1
        clients = (self._client(begin, rate, numbers) for _ in range(self._clients))
        await asyncio.gather(*clients)

    async def _client(self, begin: float, rate: int, numbers: Iterator[int]) -> None:
        connection = Connection(self._port)
        for number in numbers:
            due = begin + number / rate
            if (pause := due - time.monotonic()) > 0:
                await asyncio.sleep(pause)
            status = await connection.ask(self._make(number))
            self.seconds.append(time.monotonic() - due)
            if not 200 <= status < 300:
                self.refused[status] = self.refused.get(status, 0) + 1
        connection.close()

    @property
    def share(self) -> float:
        """The share of requests that were a success, in percent."""
        return 100 * (1 - sum(self.refused.values()) / len(self.seconds))

    def percentile(self, percent: int) -> float:
        """Return the milliseconds that so many of 100 requests kept."""
        return sorted(self.seconds)[len(self.seconds) * percent // 100] * 1000

    def cost(self, cpu_seconds: float) -> str:
        """Return what a request cost the server that used so much, and what it cost here."""
        number = len(self.seconds)
        there, here = cpu_seconds * 1000 / number, self.cpu_seconds * 1000 / number
        return f"{there:.2f} ms a request; to ask for it took {here:.2f} ms"

    def note(self) -> str:
        """Return median and worst, and what was refused."""
        refused = f", refused {self.refused}" if self.refused else ""
        middle, worst = self.percentile(50), max(self.seconds) * 1000
        return f"p50 {middle:.1f} ms, worst {worst:.0f} ms, {len(self.seconds)} requests{refused}"
