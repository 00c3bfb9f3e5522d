"""The outside world of a test: a separate process that acts on requests and counts them.

Run as a program it serves HTTP. It keeps, for each key, how many requests came. A key sent as
`Idempotency-Key` is acted on once, one sent as `Reference` every time. With `--strict` every request
is an act: a world without memory, which shows that a test would notice a second call.

POST anything with a key; GET /counts returns `{key: {"requests": n, "acts": n}}`, and GET
/find?key=… one of them. A request to /hang/NAME is counted under NAME and never answered: a tool
that hangs.
"""

import json
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import httpx
from typing_extensions import override

# Longer than any caller's patience, shorter than a test run that forgets the process.
HANG_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Count:
    """What the outside saw of one key."""

    requests: int
    acts: int


class Outside:
    """Starts the process, asks it what it saw, ends it."""

    def __init__(self, *, strict: bool = False) -> None:
        command = [sys.executable, "-m", "tests.support.outside", *(["--strict"] if strict else [])]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        self._client = httpx.Client(base_url=self.url, trust_env=False, timeout=10)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(10)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def counts(self, prefix: str = "") -> dict[str, Count]:
        """Return what it saw of the keys that begin with `prefix`, such as a task's id."""
        seen = self._client.get("/counts").raise_for_status().json()
        return {key: Count(**row) for key, row in seen.items() if key.startswith(prefix)}


class _World:
    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._lock = threading.Lock()
        self._counts: dict[str, dict[str, int]] = defaultdict(lambda: {"requests": 0, "acts": 0})

    def act(self, key: str, *, once: bool = True) -> None:
        with self._lock:
            count = self._counts[key]
            count["requests"] += 1
            if not once or self._strict or count["acts"] == 0:
                count["acts"] += 1

    def find(self, key: str) -> dict[str, int]:
        with self._lock:
            return self._counts.get(key) or {"requests": 0, "acts": 0}

    def counts(self) -> dict[str, dict[str, int]]:
        with self._lock:
            return dict(self._counts)


def _handler(world: _World) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self._hang_if_asked()
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            key = self.headers["Idempotency-Key"]
            world.act(key or self.headers["Reference"] or "", once=key is not None)
            self._answer({})

        def do_GET(self) -> None:
            self._hang_if_asked()
            address = urlsplit(self.path)
            if address.path == "/find":
                self._answer(world.find(parse_qs(address.query)["key"][0]))
            else:
                self._answer(world.counts())

        def _hang_if_asked(self) -> None:
            name = self.path.removeprefix("/hang/")
            if name != self.path:
                world.act(name)
                threading.Event().wait(HANG_SECONDS)

        @override
        def log_message(self, *_: Any) -> None:
            """Keep the test's output clean."""

        def _answer(self, body: object) -> None:
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


def main() -> None:
    """Serve until SIGTERM; the first line of output is the address."""
    world = _World(strict="--strict" in sys.argv)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(world))
    server.daemon_threads = True
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    sys.stdout.write(f"http://127.0.0.1:{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
