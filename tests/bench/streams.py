"""Two hundred people who watch: live streams of one web process while events are committed.

The events are the engine's own statement, one commit each, from this process at a fixed rate; the
streams belong to waiting tasks that are executed at the end. What a reader has seen by then is
compared with what the server says afterwards.
"""

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from tests.bench.figures import Figure
from tests.bench.load import web_process
from tests.bench.readers import Reader
from tests.bench.usage import Usage
from tests.bench.world import Person, World
from tests.support.workers import ProjectProcess

# A caller may hold 20 streams of a process open, a tenant 200.
_PEOPLE, _TENANTS, _STREAMS, _RATE = 20, 2, 200, 500
_WRITERS = 5
_PATIENCE_SECONDS = 60.0


@dataclass
class Watched:
    """One task with its reader; `told` is when each of its events was written, by number."""

    person: Person
    task_id: UUID
    reader: Reader
    told: dict[int, float]


def measure_task_streams(world: World) -> Iterator[Figure]:
    """`/runtime/tasks/{id}/events`: hints, pushed through Redis."""
    with web_process(world) as (port, web):
        watched = [
            _watch(person, _waiting_task(world, person), port, "/runtime/tasks/{}/events")
            for person in _people(world)
        ]
        yield from _measure(world, "task", web, watched, _has_last_event)


def measure_run_streams(world: World) -> Iterator[Figure]:
    """`/api/runs/{id}/stream`: stored events, half of the readers by changes, half whole values."""
    modes = ("updates", "values")
    with web_process(world) as (port, web):
        watched = [
            _watch(
                person,
                _waiting_run(person),
                port,
                f"/api/runs/{{}}/stream?stream_mode={modes[number % 2]}",
            )
            for number, person in enumerate(_people(world))
        ]
        yield from _measure(world, "run", web, watched, _has_all_messages)


def _people(world: World) -> list[Person]:
    """Return for each stream whose it is."""
    people = [one for _ in range(_TENANTS) for one in world.people(_PEOPLE // _TENANTS)]
    return [people[number % _PEOPLE] for number in range(_STREAMS)]


def _watch(person: Person, task_id: UUID, port: int, path: str) -> Watched:
    return Watched(person, task_id, Reader(port, path.format(task_id), person.headers), {})


def _waiting_task(world: World, person: Person) -> UUID:
    return world.submit("bench.steps", by=person, steps=1)


def _waiting_run(person: Person) -> UUID:
    from tasks_app.admission import runs
    from tasks_app.domain.run_bodies import parse

    body = parse({"assistant_id": "bench.steps", "input": {"steps": 1}, "on_completion": "keep"})
    return runs.create_run(person.principal, thread_key=None, body=body).task_id


def _measure(
    world: World, name: str, web: ProjectProcess, watched: list[Watched], is_right: Any
) -> Iterator[Figure]:
    with _reading(watched):
        usage = Usage(web.pid)
        began = time.monotonic()
        late = _tell(watched, seconds=5 if world.quick else 60, usage=usage)
        seconds = time.monotonic() - began
        for one in watched:
            world.run(one.task_id)
    delays = sorted(delay for one in watched for delay in _delays(one))
    told = sum(len(one.told) for one in watched)
    p95 = delays[len(delays) * 95 // 100] * 1000
    note = (
        f"p50 {delays[len(delays) // 2] * 1000:.0f} ms, worst {delays[-1] * 1000:.0f} ms,"
        f" {len(delays):,} of {told:,} events came as frames of their own"
    )
    right = sum(is_right(one) for one in watched)
    yield Figure(f"{name} streams, commit to frame, p95", p95, "ms", 250, note=note)
    yield Figure(f"{name} streams with the right end", right, "", len(watched), at_least=True)
    rate = told / seconds
    note = f"asked for {_RATE}/s; up to {late * 1000:.0f} ms behind"
    yield Figure(f"events during {name} streams", rate, "events/s", note=note)
    yield Figure(f"web memory, {name} streams, growth", usage.growth, "MB", 50, note=usage.note)
    yield Figure(f"web processor time, {name} streams", usage.cpu / seconds, "cores")


@contextmanager
def _reading(watched: list[Watched]) -> Iterator[None]:
    """Let all readers read, on a loop of their own; leave when every stream has ended."""
    ready, failed = threading.Event(), []

    async def read_all() -> None:
        opened = (one.reader.opened.wait() for one in watched)
        reads = [asyncio.ensure_future(one.reader.read()) for one in watched]
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await asyncio.gather(*opened)
        ready.set()
        await asyncio.gather(*reads)

    def run() -> None:
        try:
            asyncio.run(read_all())
        except Exception as error:  # noqa: BLE001 - told where the streams are awaited
            failed.append(error)
            ready.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.wait(_PATIENCE_SECONDS)
    if failed:
        raise RuntimeError("a stream did not open") from failed[0]
    yield
    thread.join(_PATIENCE_SECONDS)
    if failed or thread.is_alive():
        raise RuntimeError("streams did not end") from (failed[0] if failed else None)


def _tell(watched: list[Watched], *, seconds: float, usage: Usage) -> float:
    """Commit events at the rate, to one task after the other; return how far behind it fell.

    A few connections write, as a few workers would: one alone would wait for the disk.
    """
    parts = [watched[number::_WRITERS] for number in range(_WRITERS)]
    with ThreadPoolExecutor(_WRITERS) as writers:
        late = [writers.submit(_tell_some, part, seconds=seconds) for part in parts]
        usage.look()
        while wait(late, timeout=1.0).not_done:
            usage.look()
    return max(one.result() for one in late)


def _tell_some(watched: list[Watched], *, seconds: float) -> float:
    from django.db import connections

    from tasks_app.engine import transitions

    rate = _RATE / _WRITERS
    began, late = time.monotonic(), 0.0
    try:
        for number in range(int(rate * seconds)):
            one, due = watched[number % len(watched)], began + number / rate
            if (pause := due - time.monotonic()) > 0:
                threading.Event().wait(pause)
            late = max(late, -pause)
            if late > seconds:
                break
            message = {"id": str(uuid4()), "type": "ai", "content": str(number), "step": "bench"}
            tenant_id = one.person.principal.tenant_id
            moved = transitions.append_event(one.task_id, tenant_id, "message", message)
            one.told[moved.event_seq] = time.monotonic()
    finally:
        connections.close_all()
    return late


def _delays(one: Watched) -> Iterator[float]:
    """Yield the seconds from each commit to its frame; frames may stand for several events."""
    for frame in one.reader.frames:
        seq = int(frame.id) if frame.id else _seq_of(frame.data)
        if seq in one.told:
            yield max(0.0, frame.at - one.told[seq])


def _seq_of(data: str) -> int | None:
    found = json.loads(data)
    return found.get("seq") if isinstance(found, dict) else None


def _has_last_event(one: Watched) -> bool:
    """Tell whether the last frame is the task's last event, and numbers only grew."""
    now = _get(one, f"/runtime/tasks/{one.task_id}")
    seqs = [seq for seq in (_seq_of(frame.data) for frame in one.reader.frames) if seq is not None]
    return now["status"] == "completed" and seqs == sorted(set(seqs)) and seqs[-1] == now["seq"]


def _has_all_messages(one: Watched) -> bool:
    """Tell whether the frames give the run's messages, each once, and then its end."""
    frames = one.reader.frames
    run = frames[0].json()
    now = _get(one, f"/api/threads/{run['thread_id']}/state")["values"]["messages"]
    values = [frame.json()["messages"] for frame in frames if frame.name == "values"]
    changes = [frame.json() for frame in frames if frame.name == "updates"]
    added = [message for each in changes for step in each.values() for message in step["messages"]]
    ids = [int(frame.id) for frame in frames if frame.id]
    is_in_order = ids == sorted(ids)
    # A reader of changes begins with the values of then.
    return values[-1] + added == now and is_in_order and frames[-1].json()["status"] == "success"


def _get(one: Watched, path: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", one.reader.port, timeout=30)
    try:
        connection.request("GET", path, headers=one.person.headers)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()
