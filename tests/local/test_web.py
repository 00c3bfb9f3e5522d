"""Who answers at the chosen port is the stack's own web process, and nobody else."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest
from typing_extensions import override

from runtime_project.local import ports
from runtime_project.local.demo_client import DemoClient
from runtime_project.local.processes import LocalStackError
from runtime_project.local.supervisor import Program, Supervisor

ROOT = Path(__file__).resolve().parents[2]


class Stranger(BaseHTTPRequestHandler):
    """Says yes to everything, in no JSON."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"yes")

    @override
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing."""


@pytest.fixture
def stranger() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Stranger)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_port_that_is_listened_on_belongs_to_nobody_else() -> None:
    """The port is ours from the choice on, not only when the server is ready."""
    listener = ports.listen("127.0.0.1", 0)
    assert listener is not None
    with listener:
        assert ports.listen("127.0.0.1", listener.getsockname()[1]) is None


def test_demo_tells_an_answer_that_is_not_json(stranger: str, tmp_path: Path) -> None:
    """Whatever stands in between, a person reads a sentence and no traceback."""
    with (
        DemoClient(stranger, "rtk_test_x", tmp_path / "web.log") as client,
        pytest.raises(LocalStackError, match="something else than JSON"),
    ):
        client.snapshot("x")


@pytest.mark.crash
def test_web_serves_on_the_supervisors_socket_also_after_a_kill(tmp_path: Path) -> None:
    """What connects while the process starts waits for it; the port is never free meanwhile."""
    listener = ports.listen("127.0.0.1", 0)
    assert listener is not None
    port = listener.getsockname()[1]
    command = [sys.executable, "-m", "runtime_project.local.web", str(listener.fileno())]
    supervisor = Supervisor(tmp_path, print)
    program = Program("web", command, os.environ, ROOT, signal.SIGTERM, [listener.fileno()])

    def answer() -> int:
        url = f"http://127.0.0.1:{port}/livez"
        return httpx.get(url, timeout=60, trust_env=False).status_code

    with listener:
        try:
            supervisor.add(program)
            assert answer() == 200
            supervisor.kill("web")
            assert ports.listen("127.0.0.1", port) is None
            assert supervisor.wait(lambda: supervisor.restarts("web") == 1, seconds=10)
            assert answer() == 200
        finally:
            supervisor.stop(seconds=7)
