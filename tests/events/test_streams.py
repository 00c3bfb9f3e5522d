"""Rules: streams over a real uvicorn and a real Redis — right, order, bounds, ends (P15 to P18, P24)."""

import gc
import socket
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.contrib.sessions.backends.db import SessionStore
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from runtime_project.asgi import OneThreadHandler
from runtime_project.local.processes import wait_until
from runtime_project.local.redis_server import EmbeddedRedis
from tasks_app.events import publisher, stream
from tasks_app.events.channels import task_channel
from tasks_app.events.listening import MAX_QUEUED, SupervisedListenerManager
from tasks_app.events.slots import MAX_A_PRINCIPAL, STREAMS
from tasks_app.models import ApiKey, Membership, Task
from tests import factories
from tests.support.streams import WebServer, listen

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def web(settings: Any, manager: SupervisedListenerManager, tmp_path: Path) -> Iterator[WebServer]:
    settings.STATIC_ROOT = tmp_path
    if STREAMS.count():
        # An answer that another test did not read holds its place until the collector comes.
        gc.collect()
    with WebServer(OneThreadHandler()) as server:
        yield server
        assert wait_until(lambda: STREAMS.count() == 0, seconds=10), (
            "a closed stream keeps its place"
        )


@pytest.fixture
def task() -> Task:
    return factories.make_task(event_seq=7, phase="review", progress_done=1, progress_total=4)


def _key(task: Task, **overrides: Any) -> dict[str, str]:
    _, text = factories.make_api_key(task.tenant, task.initiator, **overrides)
    return {"Authorization": f"Bearer {text}"}


def _url(web: WebServer, task: Task) -> str:
    return f"{web.url}/runtime/tasks/{task.pk}/events"


def _publish(task: Task, seq: int, kind: str = "progress") -> None:
    publisher.publish(task.tenant_id, task.pk, seq, kind, 0.5, "review", task.state_version)


def _cookies(user: Any) -> dict[str, str]:
    client = Client()
    client.force_login(user)
    return {"Cookie": "; ".join(f"{name}={value.value}" for name, value in client.cookies.items())}


# --- delivery --------------------------------------------------------------------------------


def test_first_event_is_the_present_state(web: WebServer, task: Task) -> None:
    """After the opening notice comes `task.snapshot` with seq, version and status of the row."""
    with listen(_url(web, task), headers=_key(task)) as events:
        assert events.next().type == "stream-open"
        first = events.next()
    assert (first.type, first.data) == (
        "task.snapshot",
        {
            "seq": 7,
            "type": "task.snapshot",
            "progress": 0.25,
            "phase": "review",
            "version": task.state_version,
            "status": "queued",
        },
    )


def test_burst_arrives_without_a_gap_and_ends_the_stream(web: WebServer, task: Task) -> None:
    """300 events after the snapshot come once each, in order; `terminal` is the last."""
    with listen(_url(web, task), headers=_key(task)) as events:
        events.next("task.snapshot")
        for seq in range(8, 307):
            _publish(task, seq)
        _publish(task, 307, "terminal")
        received = events.until("terminal")
        assert list(events) == [], "nothing follows the end"
    assert [event.data["seq"] for event in received] == list(range(8, 308))


def test_events_older_than_the_snapshot_are_left_out(web: WebServer, task: Task) -> None:
    """What the snapshot already contains is not sent again."""
    with listen(_url(web, task), headers=_key(task)) as events:
        events.next("task.snapshot")
        for seq in (6, 7, 8):
            _publish(task, seq)
        _publish(task, 9, "terminal")
        assert [event.data["seq"] for event in events.until("terminal")] == [8, 9]


def test_stream_of_a_finished_task_is_its_snapshot(web: WebServer) -> None:
    """Nothing more can come, so the stream ends by itself."""
    task = factories.make_task(status="cancelled", event_seq=3)
    with listen(_url(web, task), headers=_key(task)) as events:
        received = list(events)
    assert [event.type for event in received] == ["stream-open", "task.snapshot"]
    assert received[1].data["status"] == "cancelled"


def test_rolled_back_event_is_never_seen(web: WebServer, task: Task) -> None:
    """P18: what is published on commit goes out with the commit, and not at all without."""
    with listen(_url(web, task), headers=_key(task)) as events:
        events.next("task.snapshot")
        with transaction.atomic():
            transaction.on_commit(lambda: _publish(task, 8))
            transaction.set_rollback(True)
        with transaction.atomic():
            transaction.on_commit(lambda: _publish(task, 9, "terminal"))
            assert publisher.flush(5)
            assert _queued(task) == []
        assert [event.data["seq"] for event in events.until("terminal")] == [9]


def _queued(task: Task) -> list[Any]:
    return [event for event in publisher._publisher._queue if event.task_id == task.pk]


def test_quiet_stream_sends_comments(
    web: WebServer, task: Task, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A heartbeat tells proxies and clients that the stream lives."""
    settings.RUNTIME = {**settings.RUNTIME, "stream_heartbeat_seconds": 0.05}
    monkeypatch.setattr(stream, "MAX_STREAM_SECONDS", 0.5)
    with listen(_url(web, task), headers=_key(task)) as events:
        assert [event.type for event in events] == ["stream-open", "task.snapshot", "reconnect"]
        assert events.comments >= 3


# --- pages -----------------------------------------------------------------------------------


def test_task_page_hears_its_task_and_the_inbox(web: WebServer, task: Task) -> None:
    """U9: one stream for a page; hints for the inbox carry no seq of another task."""
    other = factories.make_task(tenant=task.tenant, initiator=task.initiator)
    url = f"{web.url}/stream/tasks/{task.pk}/"
    with listen(url, headers=_cookies(task.initiator)) as events:
        events.next("task.snapshot")
        _publish(other, 1, "input_required")
        hint = events.next()
        _publish(task, 8, "terminal")
        assert events.next().data["seq"] == 8
    assert (hint.type, hint.data) == ("inbox", {}), "a submitter learns of no other task's id"


def test_operators_hint_names_the_task(web: WebServer, task: Task) -> None:
    """Whoever sees every task of the tenant is told which one changed."""
    operator = factories.make_member(task.tenant, "operator")
    with listen(f"{web.url}/stream/tenant/", headers=_cookies(operator)) as events:
        events.next("stream-open")
        _publish(task, 8)
        hint = events.next("task")
    assert hint.data["task"] == str(task.pk)
    assert "seq" not in hint.data
    assert "phase" not in hint.data


def test_viewer_hears_no_inbox(web: WebServer, task: Task) -> None:
    """Without `approvals:read` the inbox channel is not part of the stream."""
    viewer = factories.make_member(task.tenant, "viewer")
    with listen(f"{web.url}/stream/tenant/", headers=_cookies(viewer)) as events:
        events.next("stream-open")
        _publish(task, 8, "input_required")
        assert events.next().type == "task"
        _publish(factories.make_task(tenant=task.tenant), 1, "input_required")
        assert events.next().type == "task"


def test_pages_take_no_api_key(web: WebServer, task: Task) -> None:
    """The page streams belong to sessions."""
    answer = httpx.get(f"{web.url}/stream/tenant/", headers=_key(task))
    assert answer.status_code == 401


# --- refusals --------------------------------------------------------------------------------


REFUSED_QUERIES = (
    "es-meta=x",
    "recover=true",
    "link=next",
    "channel=task-1",
    "lastEventId=error",
    "lastEventId=x%0a",
    "lastEventId=-1",
    "lastEventId=%D9%A3",
)


def test_parameters_that_steer_the_library_are_refused(web: WebServer, task: Task) -> None:
    """P24: 400 with a code, never a stream and never a 500."""
    headers = _key(task)
    for query in REFUSED_QUERIES:
        answer = httpx.get(f"{_url(web, task)}?{query}", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_query"), query
        assert answer.headers["content-type"] == "application/problem+json"


def test_last_event_id_of_an_ended_stream_is_refused(web: WebServer, task: Task) -> None:
    """A browser that was signed out does not come back by itself."""
    answer = httpx.get(_url(web, task), headers={**_key(task), "Last-Event-ID": "error"})
    assert answer.status_code == 400


def test_foreign_and_missing_tasks_are_the_same_404(web: WebServer, task: Task) -> None:
    """Nothing tells another tenant's task from one that does not exist."""
    stranger = factories.make_task()
    for pk in (stranger.pk, uuid.uuid4()):
        answer = httpx.get(f"{web.url}/runtime/tasks/{pk}/events", headers=_key(task))
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_other_submitters_task_is_404(web: WebServer, task: Task) -> None:
    """A submitter sees only the tasks they started."""
    other = factories.make_task(tenant=task.tenant)
    assert httpx.get(_url(web, task), headers=_key(other)).status_code == 404


def test_no_valid_credential_is_401(web: WebServer, task: Task) -> None:
    """With the scheme named, and one body for every cause."""
    for headers in ({}, {"Authorization": "Bearer x"}, {"X-Api-Key": "rtk_"}):
        answer = httpx.get(_url(web, task), headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


def test_key_without_reading_is_403(web: WebServer, task: Task) -> None:
    """The missing capability is named."""
    answer = httpx.get(_url(web, task), headers=_key(task, scopes=["tasks:create"]))
    assert (answer.status_code, answer.json()["capability"]) == (403, "tasks:read")


def test_key_in_the_address_is_refused_and_ended(web: WebServer, task: Task) -> None:
    """S5, S28: EventSource cannot send headers, and the address is no way around."""
    row, text = factories.make_api_key(task.tenant, task.initiator)
    answer = httpx.get(f"{_url(web, task)}?key={text}")
    assert (answer.status_code, answer.json()["code"]) == (400, "credential_in_url")
    assert ApiKey.objects.for_tenant(task.tenant_id).get(pk=row.pk).revoked_at is not None


@pytest.mark.slow
def test_twenty_streams_a_caller(web: WebServer, task: Task) -> None:
    """S27: one more is 429; a closed one makes room again."""
    headers = _key(task)
    with ExitStack() as open_streams:
        for _ in range(MAX_A_PRINCIPAL):
            open_streams.enter_context(listen(_url(web, task), headers=headers))
        answer = httpx.get(_url(web, task), headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (429, "too_many_streams")
    assert wait_until(lambda: STREAMS.count() == 0, seconds=10)
    with listen(_url(web, task), headers=headers) as events:
        assert events.next("task.snapshot").data["seq"] == 7


# --- rights that end -------------------------------------------------------------------------


def _end_membership(task: Task) -> None:
    Membership.objects.for_tenant(task.tenant_id).update(status="disabled")


def _revoke_keys(task: Task) -> None:
    ApiKey.objects.for_tenant(task.tenant_id).update(revoked_at=timezone.now())


def _expire_keys(task: Task) -> None:
    ApiKey.objects.for_tenant(task.tenant_id).update(
        expires_at=timezone.now() - timedelta(seconds=1)
    )


@pytest.mark.parametrize("end", [_end_membership, _revoke_keys, _expire_keys])
def test_ended_right_ends_the_stream(
    web: WebServer, task: Task, end: Callable[[Task], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S27: the principal is asked for again; the stream ends with `stream-error` forbidden."""
    monkeypatch.setattr(stream, "RECHECK_SECONDS", 0.2)
    with listen(_url(web, task), headers=_key(task)) as events:
        events.next("task.snapshot")
        end(task)
        last = events.next("stream-error")
        assert list(events) == []
    assert (last.data["condition"], last.id) == ("forbidden", "error")


def test_signed_out_session_ends_its_stream(
    web: WebServer, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session is read again, not remembered."""
    monkeypatch.setattr(stream, "RECHECK_SECONDS", 0.2)
    cookies = _cookies(task.initiator)
    with listen(f"{web.url}/stream/tasks/{task.pk}/", headers=cookies) as events:
        events.next("task.snapshot")
        SessionStore(cookies["Cookie"].partition("=")[2]).delete()
        assert events.next("stream-error").data["condition"] == "forbidden"


def test_lost_events_are_made_up_by_the_next_look(
    web: WebServer, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that heard nothing sends the newer snapshot, and ends with the task."""
    monkeypatch.setattr(stream, "RECHECK_SECONDS", 0.2)
    with listen(_url(web, task), headers=_key(task)) as events:
        events.next("task.snapshot")
        Task.objects.for_tenant(task.tenant_id).update(status="cancelled", event_seq=9)
        received = list(events)
    assert [(event.type, event.data["seq"]) for event in received] == [("task.snapshot", 9)]


def test_old_stream_asks_to_reconnect(
    web: WebServer, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its time a stream ends with `reconnect`, which is no error."""
    monkeypatch.setattr(stream, "MAX_STREAM_SECONDS", 0.3)
    with listen(_url(web, task), headers=_key(task)) as events:
        assert [event.type for event in events][-1] == "reconnect"


# --- servers -----------------------------------------------------------------------------------


def test_redis_outage_under_open_streams(
    killable_redis: EmbeddedRedis, web: WebServer, task: Task
) -> None:
    """P16: Redis stopped and started: `resync`, the present state, later events; no restart."""
    with listen(_url(web, task), headers=_key(task)) as events:
        events.next("task.snapshot")
        killable_redis.stop()
        Task.objects.for_tenant(task.tenant_id).update(event_seq=8)
        killable_redis.start()
        assert events.next().type == "resync"
        assert events.next("task.snapshot").data["seq"] == 8
        _publish(task, 9, "terminal")
        assert events.next("terminal").data["seq"] == 9


@pytest.mark.crash
def test_many_streams_hold_no_database_session(web: WebServer) -> None:
    """P15: 50 authenticated streams, no PostgreSQL session of theirs; closing frees all."""
    tasks = [factories.make_task() for _ in range(5)]
    keys = [_key(task) for task in tasks]
    before = _sessions()
    with ExitStack() as open_streams, ThreadPoolExecutor(10) as pool:
        readers = [
            open_streams.enter_context(listen(_url(web, tasks[n % 5]), headers=keys[n % 5]))
            for n in range(50)
        ]
        assert len(list(pool.map(lambda reader: reader.next("task.snapshot"), readers))) == 50
        assert STREAMS.count() == 50
        assert wait_until(lambda: _sessions() <= before, seconds=5), _sessions()
    assert wait_until(lambda: STREAMS.count() == 0, seconds=10)


def _sessions() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


@pytest.mark.slow
def test_slow_client_gets_all_or_a_resync(
    web: WebServer, task: Task, manager: SupervisedListenerManager
) -> None:
    """P17: a client that reads nothing during 3,000 events is told; memory stays bounded."""
    # Small buffers in the kernel, so that the burst does not fit there.
    web.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with socket.create_connection(web.socket.getsockname(), timeout=20) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lines = [f"GET /runtime/tasks/{task.pk}/events HTTP/1.1", "Host: localhost"]
        lines += [f"{name}: {value}" for name, value in _key(task).items()]
        client.sendall("\r\n".join([*lines, "", ""]).encode())
        text = b""
        while b"task.snapshot" not in text:
            text += _receive(client, 4096)
        for first in range(8, 3008, 1000):
            for seq in range(first, first + 1000):
                _publish(task, seq)
            assert publisher.flush(20)
        [listener] = manager.listeners_by_channel[task_channel(task.pk)]
        assert sum(map(len, listener.channel_items.values())) <= MAX_QUEUED
        Task.objects.for_tenant(task.tenant_id).update(status="cancelled", event_seq=3008)
        _publish(task, 3008, "terminal")
        while not text.endswith(b"0\r\n\r\n"):
            text += _receive(client, 65536)
    assert b"event: resync" in text
    assert b"event: terminal" in text or b'"status": "cancelled"' in text


def _receive(client: socket.socket, size: int) -> bytes:
    data = client.recv(size)
    assert data, "the stream ended"
    return data
