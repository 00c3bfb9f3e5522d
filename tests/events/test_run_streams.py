"""Rule: a run is followed to its end while Redis is away (R50)."""

from pathlib import Path
from typing import Any

import pytest

from runtime_project.asgi import OneThreadHandler
from runtime_project.local.redis_server import EmbeddedRedis
from tasks_app.domain.states import TaskStatus
from tasks_app.engine import lease
from tasks_app.events.listening import SupervisedListenerManager
from tests.api.door import Door, say
from tests.support.streams import WebServer, listen

pytestmark = pytest.mark.django_db(transaction=True)


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
