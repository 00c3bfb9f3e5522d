"""The ASGI entry: pages, REST, event streams and MCP from one application."""

import asyncio
import gc
import os
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import IO, Any

import django
from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.http import FileResponse
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix
from typing_extensions import override

from runtime_project.request_threads import RequestThreads

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "runtime_project.settings")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
# As Django has them.
Hear = Callable[[], Awaitable[Mapping[str, Any]]]
Tell = Callable[[Mapping[str, Any]], Awaitable[None]]


class OneThreadHandler(ASGIHandler):
    """Serves a request in one thread, in one visit to it; only streams are sent by the loop.

    Django's own handler goes to a thread and back for every middleware that is not asynchronous
    and for each signal around the request, and it starts a thread for each request; together that
    costs several times what the request itself does.
    """

    def __init__(self) -> None:
        super().__init__()
        self._threads = RequestThreads()

    @override
    def load_middleware(self, is_async: bool = False) -> None:
        """Build the chain as for a synchronous server."""
        super().load_middleware(is_async=False)

    @override
    async def __call__(self, scope: Scope, receive: Hear, send: Tell) -> None:
        """Serve one request with a thread of its own, which serves others before and after."""
        if scope["type"] != "http":
            raise ValueError(f"no connections of type {scope['type']} here")
        with self._threads.lent() as thread:
            async with ThreadSensitiveContext(executor=thread):
                await self.handle(scope, receive, send)

    @override
    async def handle(self, scope: Scope, receive: Hear, send: Tell) -> None:
        """Answer; an asynchronous view and a stream are cancelled when the client hangs up."""
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        with body:
            answer = asyncio.create_task(self._answer(scope, body, send))
            gone = asyncio.ensure_future(receive())
            try:
                await asyncio.wait((gone, answer), return_when=asyncio.FIRST_COMPLETED)
            finally:
                gone.cancel()
                if not answer.done():
                    answer.cancel()
                    await asyncio.wait((answer,))
        if answer.cancelled():
            # Queued behind the view, which goes on; the thread then gives back its connection.
            await sync_to_async(signals.request_finished.send)(sender=type(self))
        elif (response := answer.result()).streaming:
            await sync_to_async(response.close)()

    async def _answer(self, scope: Scope, body: IO[bytes], send: Tell) -> HttpResponseBase:
        response: HttpResponseBase = await sync_to_async(self._respond)(scope, body)
        # A client that has left: what is open is closed as if all had been sent.
        with suppress(asyncio.CancelledError):
            await self.send_response(response, send)
        return response

    def _respond(self, scope: Scope, body: IO[bytes]) -> Any:
        """Return the answer; whatever is no stream is finished here, its connection given back."""
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=type(self), scope=scope)
        request, refused = self.create_request(scope, body)
        response: Any = refused if request is None else self.get_response(request)
        response._handler_class = type(self)  # noqa: SLF001 - who tells that the request is over
        if isinstance(response, FileResponse):
            response.block_size = self.chunk_size
        if not response.streaming:
            response.close()
        return response


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
        # What is there at the start stays: to look through it again would stop all for a moment.
        gc.collect()
        gc.freeze()
        async with self._door.running():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


django.setup(set_prefix=False)
application = Site()
