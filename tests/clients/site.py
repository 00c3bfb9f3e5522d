"""A site of real processes for clients of the run door: web, workers, sweeper, one tenant a test."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID, uuid4

from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient

from tasks_app.models import Tenant
from tasks_app.policy.capabilities import CAPABILITIES
from tests import factories
from tests.support.syncdir import SyncDir
from tests.support.workers import Fleet, WebProcess

PATIENCE_SECONDS = 45.0
ASSISTANT = "scripted"

T = TypeVar("T")


class RunSite:
    """One web process and two workers; people are clients with a key of their own."""

    def __init__(self, folder: Path) -> None:
        variables = {
            "RUNTIME_STREAM_HEARTBEAT_SECONDS": "0.5",
            "RUNTIME_CANCEL_WAIT_SECONDS": "20",
            "RUNTIME_DISCONNECT_GRACE_SECONDS": "3",
        }
        self.fleet = Fleet(folder, variables=variables)
        self.sync = SyncDir(folder / "sync")
        self.folder = folder
        self.tenant: Tenant
        self.key = ""
        self.web: WebProcess

    def start(self) -> None:
        """Start everything; return when it answers."""
        self.web = WebProcess("web", self.folder, self.fleet.env)
        self.fleet.start(workers=2)
        self.web.wait_ready()

    def restart_web(self) -> None:
        """Stop the web process as a deployment does, and start another one at its address."""
        self.web.send(signal.SIGTERM)
        self.web.process.wait(20)
        self.web = WebProcess("web", self.folder, self.fleet.env, port=self.web.port)
        self.web.wait_ready()

    def stop(self) -> None:
        """End everything at once."""
        self.web.kill_group()
        self.fleet.stop()

    def found_tenant(self) -> None:
        """Begin with an empty tenant and a person who may start and cancel runs."""
        self.tenant = factories.make_tenant(slug=f"door-{uuid4().hex[:12]}")
        self.key = self.key_of("submitter")

    def key_of(self, *roles: str, scopes: Iterable[str] = tuple(CAPABILITIES)) -> str:
        """Return the key of a new person."""
        user = factories.make_user(username=f"person-{uuid4().hex[:12]}")
        factories.make_member(self.tenant, roles, user)
        _, key = factories.make_api_key(self.tenant, user, tuple(scopes))
        return key

    @property
    def url(self) -> str:
        """Return the base address that clients are given."""
        return f"{self.web.url}/api"

    def run(
        self, use: Callable[[LangGraphClient], Awaitable[T]], *, key: str = "", url: str = ""
    ) -> T:
        """Let a client of a person do something; more than the patience is an error."""

        async def used() -> T:
            client = get_client(url=url or self.url, api_key=key or self.key)
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    return await use(client)
            finally:
                await client.aclose()

        return asyncio.run(used())


def script(*operations: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the input of a scripted run."""
    return {"script": list(operations), **more}


def say(text: str, **more: Any) -> dict[str, Any]:
    """Return an operation that says a message."""
    return {"op": "say", "text": text, **more}


async def read(parts: AsyncIterator[Any]) -> list[Any]:
    """Return all parts of a stream."""
    return [part async for part in parts]


def ids(parts: Iterable[Any]) -> list[int]:
    """Return the ids of parts in the order they came, each once."""
    found = [int(part.id) for part in parts if part.id]
    return list(dict.fromkeys(found))


def run_id(run: Any) -> UUID:
    """Return the id of a run as the database knows it."""
    return UUID(run["run_id"])
