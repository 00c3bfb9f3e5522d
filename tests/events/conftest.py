"""A manager and a publisher of each test's own; a Redis that the test may stop."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django_eventstream import eventstream, views

from runtime_project.local.redis_server import EmbeddedRedis
from tasks_app.events import publisher, transport
from tasks_app.events.listening import SupervisedListenerManager, set_within
from tests.support import streams


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[SupervisedListenerManager]:
    """Put a fresh manager in the library's place; its thread ends when nobody listens."""
    fresh = SupervisedListenerManager()
    monkeypatch.setattr(views, "listener_manager", fresh)
    yield fresh
    fresh.listeners_by_channel.clear()


@pytest.fixture
def killable_redis(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedRedis]:
    """Point publisher and listeners of this test at a Redis that may be stopped and started."""
    with (
        tempfile.TemporaryDirectory(prefix="perdure-") as folder,
        streams.private_redis(Path(folder)) as server,
    ):
        settings.EVENTSTREAM_REDIS = {"unix_socket_path": str(server.socket), "db": 0}
        monkeypatch.setattr(transport, "_client", None)
        monkeypatch.setattr(eventstream, "redis_client", None)
        monkeypatch.setattr(publisher, "_publisher", publisher.Publisher())
        # A Redis that is back sooner than the pause is over would lose what the test publishes.
        monkeypatch.setattr(publisher, "AWAY_PAUSE_SECONDS", 0.0)
        yield server
        publisher.flush(5)


class Ear:
    """A listener in the test's own event loop."""

    def __init__(self, manager: SupervisedListenerManager, *channels: str) -> None:
        self.manager = manager
        self.listener = views.Listener()
        self.listener.channels = set(channels)
        self.listener.assign_loop()
        manager.add_listener(self.listener)

    async def connected(self) -> None:
        """Wait until events arrive."""
        assert await self.manager.wait_connected(self.listener, 10)

    async def hear(self, *, seconds: float = 10) -> list[tuple[str, str]]:
        """Return type and data of what is queued, waiting for the first."""
        assert await set_within(self.listener.aevent, seconds)
        return [(event.type, event.data) for event in self.manager.take(self.listener)]

    async def hear_until(self, event_type: str) -> list[str]:
        """Return the types of all events up to the wanted one."""
        types: list[str] = []
        while event_type not in types:
            types += [kind for kind, _ in await self.hear()]
        return types
