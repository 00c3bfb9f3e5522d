"""Rules between processes: events cross them, and a stopping server ends its streams (P28)."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from django.db import connection

from runtime_project.local.processes import wait_until
from tasks_app.events import publisher
from tests import factories
from tests.support.streams import listen

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def web_process(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Start uvicorn the way the local stack and deploy/ do, on the test's database."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    command = [sys.executable, "-m", "uvicorn", "runtime_project.asgi:application"]
    command += ["--port", port, "--lifespan", "on", "--timeout-graceful-shutdown", "5"]
    process = subprocess.Popen(command, env=_environment(tmp_path))
    try:
        url = f"http://127.0.0.1:{port}"
        assert wait_until(lambda: _is_up(url), seconds=30)
        yield process, url
    finally:
        process.kill()
        process.wait()


def _environment(static_root: Path) -> dict[str, str]:
    database = connection.settings_dict
    host, name = quote(database["HOST"], safe=""), database["NAME"]
    query = f"host={host}&port={database['PORT']}" if database["PORT"] else f"host={host}"
    user = quote(database["USER"], safe="")
    password = f":{quote(database['PASSWORD'], safe='')}" if database["PASSWORD"] else ""
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "runtime_project.settings_test",
        "DATABASE_URL": f"postgresql://{user}{password}@/{name}?{query}",
        "DATABASE_POOL": "1",
        "DATABASE_ROLE": "rt_web",
        "RUNTIME_STATIC_ROOT": str(static_root),
    }


def _is_up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/livez").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.slow
def test_events_cross_processes_and_sigterm_ends_the_stream(
    web_process: tuple[subprocess.Popen[bytes], str],
) -> None:
    """Published here, read there; SIGTERM ends stream and server at once (P28: in eight seconds)."""
    process, url = web_process
    task = factories.make_task(event_seq=3)
    _, key = factories.make_api_key(task.tenant, task.initiator)
    address = f"{url}/runtime/tasks/{task.pk}/events"
    with listen(address, headers={"X-Api-Key": key}) as events:
        assert events.next("task.snapshot").data["seq"] == 3
        publisher.publish(task.tenant_id, task.pk, 4, "progress", 0.5, "", 1)
        assert events.next().data["seq"] == 4
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert events.next().type == "reconnect"
        assert list(events) == []
        process.wait(8)
    # Less than uvicorn's patience of five seconds: nothing had to be cut off.
    assert time.monotonic() - began < 4
