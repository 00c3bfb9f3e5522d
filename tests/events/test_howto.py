"""Rule: the program in docs/how-to/follow-a-task.md works as it is printed."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime_project.asgi import OneThreadHandler
from tasks_app.events import publisher
from tasks_app.events.listening import SupervisedListenerManager
from tasks_app.models import Task
from tests import factories
from tests.architecture.sources import ROOT
from tests.support.streams import WebServer

PAGE = ROOT / "docs/how-to/follow-a-task.md"


@pytest.fixture
def web(settings: Any, manager: SupervisedListenerManager, tmp_path: Path) -> Iterator[WebServer]:
    settings.STATIC_ROOT = tmp_path
    with WebServer(OneThreadHandler()) as server:
        yield server


@pytest.mark.django_db(transaction=True)
def test_printed_program_follows_a_task_to_its_end(web: WebServer) -> None:
    """It yields the present state, then each newer one, and returns at the end."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    program: dict[str, Any] = {}
    exec(compile(blocks[0], str(PAGE), "exec"), program)  # noqa: S102 - our own page
    task = factories.make_task(event_seq=3)
    _, key = factories.make_api_key(task.tenant, task.initiator)
    snapshots = program["follow"](web.url, str(task.pk), key)
    assert next(snapshots)["seq"] == 3
    Task.objects.for_tenant(task.tenant_id).update(status="cancelled", event_seq=4)
    publisher.publish(task.tenant_id, task.pk, 4, "terminal", None, "", 2)
    assert [snapshot["status"] for snapshot in snapshots] == ["cancelled"]
