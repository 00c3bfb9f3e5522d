"""MCP: tasks that are polled while other callers wait for results, through one web process."""

import http.client
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from runtime_project.local.processes import wait_until
from tests.bench.connection import Request
from tests.bench.figures import Figure
from tests.bench.load import Load, web_process
from tests.bench.usage import Usage
from tests.bench.world import Person, World

Json = dict[str, Any]

_PEOPLE, _WAITING, _CONCURRENT = 10, 50, 20
_WANTED = 400
# More than is wanted, so that what is answered can be as much.
_RATE = 440
_VERSION = "2026-07-28"
_META = "io.modelcontextprotocol"


def measure_get(world: World) -> Iterator[Figure]:
    """`tasks/get` at 440 a second and concurrency 20, half of the tasks finished, half asleep."""
    os.environ["RUNTIME_MCP_SYNC_WAIT_SECONDS"] = "300"
    seconds = 5 if world.quick else 30
    people = world.people(_PEOPLE)
    polled = [
        (person, str(world.submit(name, by=person, **goal)))
        for person in people
        for name, goal in (("bench.steps", {"steps": 5}), ("bench.rest", {"seconds": 3600}))
    ]
    for _, task_id in polled[::2]:
        world.run(UUID(task_id))

    def request(number: int) -> Request:
        person, task_id = polled[number % len(polled)]
        return _message(person, "tasks/get", {"taskId": task_id}, name=task_id)

    with web_process(world) as (port, web), _waiting(port, people):
        load = Load(port, request, clients=_CONCURRENT)
        load.run(rate=100, seconds=1)
        usage = Usage(web.pid)
        usage.look()
        began = time.monotonic()
        load.run(rate=_RATE, seconds=seconds)
        rate = len(load.seconds) * load.share / 100 / (time.monotonic() - began)
        usage.look()
    told = f"{_WAITING} callers wait in tools/call; {load.note()}"
    yield Figure("tasks/get answered", rate, "/s", _WANTED, at_least=True, note=told)
    yield Figure(f"tasks/get at {_RATE}/s, p95", load.percentile(95), "ms", 60)
    cost = load.cost(usage.cpu)
    yield Figure("web processor time, tasks/get", usage.cpu / seconds, "cores", note=cost)


@contextmanager
def _waiting(port: int, people: list[Person]) -> Iterator[None]:
    """Have callers wait for the results of tasks that sleep, meanwhile."""
    from tasks_app.models import Task

    tenant_id = people[0].principal.tenant_id
    known = Task.objects.for_tenant(tenant_id).count()
    connections = [
        http.client.HTTPConnection("127.0.0.1", port, timeout=300) for _ in range(_WAITING)
    ]
    for number, connection in enumerate(connections):
        call = {"name": "bench.rest", "arguments": {"seconds": 3600}}
        method, path, body, headers = _message(
            people[number % len(people)], "tools/call", call, name="bench.rest", tasks=False
        )
        threading.Thread(
            target=_send, args=(connection, method, path, body, headers), daemon=True
        ).start()
    try:
        rows = Task.objects.for_tenant(tenant_id)
        if not wait_until(lambda: rows.count() >= known + _WAITING, seconds=60):
            raise RuntimeError("not all callers have begun to wait")
        yield
    finally:
        for connection in connections:
            connection.close()


def _send(connection: http.client.HTTPConnection, *request: Any) -> None:
    connection.request(*request)


def _message(
    person: Person, method: str, params: dict[str, Any], *, name: str, tasks: bool = True
) -> Request:
    extensions: Json = {"io.modelcontextprotocol/tasks": {}} if tasks else {}
    meta = {
        f"{_META}/protocolVersion": _VERSION,
        f"{_META}/clientCapabilities": {"elicitation": {"form": {}}, "extensions": extensions},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    headers = {
        **person.headers,
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": _VERSION,
        "Mcp-Method": method,
        "Mcp-Name": name,
    }
    return "POST", "/mcp", json.dumps(body), headers
