"""The ASGI entry: pages, REST, event streams and MCP from one application."""

import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import django
from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from typing_extensions import override

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "runtime_project.settings")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class OneThreadHandler(ASGIHandler):
    """Runs middleware and view of a request in one thread; only streams are sent by the loop.

    Django's own handler goes to a thread and back for every middleware that is not asynchronous,
    which costs several times what the request itself does.
    """

    @override
    def load_middleware(self, is_async: bool = False) -> None:
        """Build the chain as for a synchronous server."""
        super().load_middleware(is_async=False)

    @override
    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        """Go to the request's thread once; an asynchronous view comes back to this loop."""
        return await sync_to_async(self.get_response)(request)


class Site:
    """Django, and the MCP door at its path; the door lives as long as the server."""

    def __init__(self) -> None:
        # Models must be there before the door is built.
        from tasks_app.mcp_server.asgi import PATH, McpDoor

        self._path = PATH
        self._door = McpDoor()
        self._django = OneThreadHandler()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, or the server's beginning and end."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http" and scope["path"] == self._path:
            await self._door(scope, receive, send)
        else:
            await self._django(scope, receive, send)  # type: ignore[arg-type]

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with self._door.running():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


django.setup(set_prefix=False)
application = Site()
