"""Rules: a run is followed while Redis is away, and nothing half is ever an answer (R50, R56)."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from runtime_project.asgi import OneThreadHandler
from runtime_project.local.redis_server import EmbeddedRedis
from tasks_app.domain.states import TaskStatus
from tasks_app.engine import lease
from tasks_app.events.listening import SupervisedListenerManager
from tests.api.door import Door, say
from tests.support.streams import WebServer, listen

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.slow
def test_s22_a_run_is_followed_while_redis_is_away(
    settings: Any,
    tmp_path: Path,
    manager: SupervisedListenerManager,
    killable_redis: EmbeddedRedis,
) -> None:
    """Nothing wakes the reader but the clock, and nothing is missing."""
    settings.STATIC_ROOT = tmp_path
    killable_redis.stop()
    with WebServer(OneThreadHandler()) as web:
        door = Door(web)
        run = door.start(say("a"), say("b"))
        with listen(f"{door.url}{door.place(run)}/stream", headers=door.headers) as events:
            assert [events.next().type, events.next().type] == ["metadata", "values"]
            assert door.drive(run) is TaskStatus.COMPLETED
            parts = events.until("end")
        door.client.close()
    lease.stop_keeper()
    assert [one["content"] for one in parts[-2].data["messages"]] == ["a", "b"]
    numbers = [int(part.id) for part in parts]
    assert numbers == sorted(set(numbers))


def test_f3_a_wait_that_is_cut_short_is_no_result(
    settings: Any, tmp_path: Path, manager: SupervisedListenerManager
) -> None:
    """F3, R56: blanks, then a body without its end, which no client takes for an answer."""
    settings.STATIC_ROOT = tmp_path
    settings.RUNTIME = {**settings.RUNTIME, "stream_heartbeat_seconds": 0.05}
    with WebServer(OneThreadHandler()) as web:
        door = Door(web)
        run = door.start(say("a"))
        received: list[bytes] = []

        def join() -> None:
            with door.client.stream("GET", f"{door.place(run)}/join") as answer:
                for chunk in answer.iter_raw():
                    received.append(chunk)
                    manager.end_all()

        with pytest.raises(httpx.RemoteProtocolError):
            join()
        assert b"".join(received).strip() == b""
        manager.is_ending = False
        door.drive(run)
        joined = door.ask("GET", f"{door.place(run)}/join")
        door.client.close()
    lease.stop_keeper()
    assert [one["content"] for one in joined["messages"]] == ["a"]
