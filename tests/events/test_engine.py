"""Rule: what a stream shows of a real task is its journal, in order, after the commit (P18)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from runtime_project.asgi import OneThreadHandler
from tasks_app.engine import lease
from tasks_app.events import publisher
from tasks_app.events.listening import SupervisedListenerManager
from tasks_app.models import Event
from tests import factories
from tests.support.engine import Engine
from tests.support.streams import WebServer, listen


@pytest.fixture
def engine(transactional_db: None) -> Iterator[Engine]:
    yield Engine()
    lease.stop_keeper()


@pytest.fixture
def web(settings: Any, manager: SupervisedListenerManager, tmp_path: Path) -> Iterator[WebServer]:
    settings.STATIC_ROOT = tmp_path
    with WebServer(OneThreadHandler()) as server:
        yield server


def test_stream_of_a_running_task_is_its_journal(engine: Engine, web: WebServer) -> None:
    """Every stored event after the snapshot arrives once, in order, up to `terminal`."""
    task_id = engine.submit(
        *({"op": "say", "text": str(number)} for number in range(20)),
        {"op": "write", "path": "a.txt", "text": "hello"},
    )
    _, key = factories.make_api_key(engine.tenant, engine.task(task_id).initiator)
    url = f"{web.url}/runtime/tasks/{task_id}/events"
    with listen(url, headers={"X-Api-Key": key}) as events:
        first = events.next("task.snapshot").data["seq"]
        assert engine.drive(task_id).status == "completed"
        heard = [(event.data["seq"], event.type) for event in events.until("terminal")]
    stored = Event.objects.for_tenant(engine.tenant.id).filter(task_id=task_id, seq__gt=first)
    assert heard == list(stored.order_by("seq").values_list("seq", "type"))
    assert len(heard) >= 10


def test_undone_change_is_never_told(engine: Engine) -> None:
    """P18: a task whose transaction is rolled back leaves no event, neither stored nor pushed."""
    assert publisher.flush(10)
    with transaction.atomic():
        task_id = engine.submit({"op": "say"})
        assert not _queued(task_id)
        transaction.set_rollback(True)
    assert not _queued(task_id)
    assert not Event.objects.for_tenant(engine.tenant.id).filter(task_id=task_id).exists()


def _queued(task_id: Any) -> bool:
    return any(event.task_id == task_id for event in publisher._publisher._queue)
