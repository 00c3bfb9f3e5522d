"""An endpoint for webhooks on this machine: remembers what it was sent, answers as told."""

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from typing_extensions import override


@dataclass(frozen=True)
class Heard:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def key(self) -> str:
        return self.headers["webhook-id"]


class Receiver:
    """A server at 127.0.0.1; `status` is what it answers with, and `gate` holds its answers."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self.status = 204
        self.headers: dict[str, str] = {}
        self.gate = threading.Event()
        self.gate.set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.01])

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def url(self, path: str = "/hook") -> str:
        return f"http://{self.host}{path}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.heard.append(Heard(self.path, headers, body))
                receiver.gate.wait(30)
                self.send_response(receiver.status)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            @override
            def log_message(self, *args: object) -> None:
                """Say nothing."""

        return Handler
