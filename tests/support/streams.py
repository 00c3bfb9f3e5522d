"""A real uvicorn in this process, a reader of server-sent events, and a Redis that may be killed."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import uvicorn

from runtime_project.local.processes import wait_until
from runtime_project.local.redis_server import EmbeddedRedis


@dataclass(frozen=True)
class Received:
    """One event as it came over the wire; `data` is parsed JSON, None when there is none."""

    type: str
    data: Any
    id: str = ""


class WebServer:
    """Serves an ASGI application on a free port, from a thread of this process."""

    def __init__(self, application: Any) -> None:
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        config = uvicorn.Config(
            application, lifespan="off", log_level="warning", timeout_graceful_shutdown=1, ws="none"
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, args=([self.socket],), daemon=True)

    def __enter__(self) -> "WebServer":
        self.thread.start()
        assert wait_until(lambda: self.server.started, seconds=10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.server.should_exit = True
        self.thread.join(10)
        self.socket.close()


class EventReader:
    """Reads one stream event by event; comments are left out and counted."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.comments = 0
        self._events = self._parse()

    def __iter__(self) -> Iterator[Received]:
        return self._events

    def next(self, *types: str) -> Received:
        """Return the next event, or the next of the named types."""
        for event in self._events:
            if not types or event.type in types:
                return event
        raise AssertionError(f"the stream ended before {types or 'any event'}")

    def until(self, last: str) -> list[Received]:
        """Return all events up to and with the first of a type."""
        found = []
        for event in self._events:
            found.append(event)
            if event.type == last:
                return found
        raise AssertionError(f"the stream ended before {last}: {found[-3:]}")

    def _parse(self) -> Iterator[Received]:
        fields: dict[str, str] = {}
        for line in self.response.iter_lines():
            if line.startswith(":"):
                self.comments += 1
            elif line:
                name, _, value = line.partition(":")
                fields[name] = fields.get(name, "") + value.removeprefix(" ")
            elif fields:
                text = fields.get("data", "")
                yield Received(
                    fields.get("event", "message"),
                    json.loads(text) if text else None,
                    fields.get("id", ""),
                )
                fields = {}


@contextmanager
def listen(url: str, *, headers: dict[str, str] | None = None) -> Iterator[EventReader]:
    """Open a stream and read it; a silence of ten seconds is an error."""
    with (
        httpx.Client(timeout=10, headers=headers) as client,
        client.stream("GET", url) as response,
    ):
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield EventReader(response)


@contextmanager
def private_redis(folder: Path) -> Iterator[EmbeddedRedis]:
    """Start a Redis of one's own, to be stopped and started at will."""
    folder.mkdir(parents=True, exist_ok=True)
    server = EmbeddedRedis(folder / "data", folder / "socket", folder / "redis.log")
    server.start()
    with closing(_Stopper(server)):
        yield server


class _Stopper:
    def __init__(self, server: EmbeddedRedis) -> None:
        self._server = server

    def close(self) -> None:
        self._server.stop()
