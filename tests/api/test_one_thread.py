"""Rules: a request has one thread for itself, others use it before and after, and nothing is left in it."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from django.core.signals import request_finished
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import include, path

from runtime_project.asgi import OneThreadHandler, Site
from runtime_project.request_threads import KEPT, RequestThreads

pytestmark = [pytest.mark.urls(__name__), pytest.mark.timeout(30)]

Message = Mapping[str, Any]
PATIENCE_SECONDS = 10


class Gate:
    """Holds views until the test lets them go on."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()


GATE = Gate()


def name_thread(request: HttpRequest) -> HttpResponse:
    """Answer with the thread that runs the view."""
    return HttpResponse(str(threading.get_ident()))


def wait(request: HttpRequest) -> HttpResponse:
    """Answer when the gate opens, with the thread that has waited."""
    GATE.entered.set()
    assert GATE.opened.wait(PATIENCE_SECONDS)
    return name_thread(request)


async def stream(request: HttpRequest) -> StreamingHttpResponse:
    """Tell for ever."""

    async def texts() -> AsyncIterator[bytes]:
        while True:
            yield b"more"
            await asyncio.sleep(0)

    return StreamingHttpResponse(texts())


def break_down(request: HttpRequest) -> HttpResponse:
    """Fail."""
    raise LookupError("as tests want it")


urlpatterns = [
    path("thread", name_thread),
    path("wait", wait),
    path("stream", stream),
    path("broken", break_down),
    # Pages of failures name addresses of the site.
    path("", include("runtime_project.urls")),
]


class Visit:
    """One request to the handler; the client stays until `hang_up`."""

    def __init__(self, address: str) -> None:
        host = [(b"host", b"localhost")]
        self.scope = {"type": "http", "method": "GET", "path": address, "headers": host}
        self.told: list[Message] = []
        self.heard = asyncio.Event()
        self._gone = asyncio.Event()
        self._asked = False

    def hang_up(self) -> None:
        """Leave."""
        self._gone.set()

    async def receive(self) -> Message:
        """Give the empty body, then wait for the client to leave."""
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Take what the client is told."""
        self.told.append(message)
        self.heard.set()

    @property
    def text(self) -> str:
        """The body so far."""
        return b"".join(message.get("body", b"") for message in self.told).decode()


def run(story: Callable[[OneThreadHandler], Awaitable[None]]) -> None:
    """Run a story on a loop of its own."""

    async def told() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await story(OneThreadHandler())

    asyncio.run(told())


async def ask(handler: OneThreadHandler, address: str) -> str:
    """Return the body of an answer."""
    visit = Visit(address)
    await handler(visit.scope, visit.receive, visit.send)
    return visit.text


async def entered() -> None:
    """Return when a view waits at the gate."""
    await asyncio.to_thread(GATE.entered.wait, PATIENCE_SECONDS)


@pytest.fixture(autouse=True)
def _new_gate() -> Iterator[None]:
    GATE.__init__()  # type: ignore[misc]
    yield
    GATE.opened.set()


@contextmanager
def finished() -> Iterator[list[int]]:
    """Yield the threads in which requests were told to be over."""
    threads: list[int] = []

    def note(**_: object) -> None:
        threads.append(threading.get_ident())

    request_finished.connect(note, weak=False)
    try:
        yield threads
    finally:
        request_finished.disconnect(note)


def test_requests_after_each_other_share_a_thread() -> None:
    """And each is over, its connection given back, when it is answered."""

    async def story(handler: OneThreadHandler) -> None:
        with finished() as threads:
            named = [int(await ask(handler, "/thread")) for _ in range(3)]
        assert threads == named
        assert len(set(named)) == 1
        assert named[0] != threading.get_ident()

    run(story)


def test_requests_at_once_have_threads_of_their_own() -> None:
    """A view that waits holds nobody up."""

    async def story(handler: OneThreadHandler) -> None:
        waiting = asyncio.create_task(ask(handler, "/wait"))
        await entered()
        other = await ask(handler, "/thread")
        GATE.opened.set()
        assert await waiting != other

    run(story)


def test_a_view_whose_client_left_keeps_its_thread_to_its_end() -> None:
    """Nobody else gets the thread meanwhile, and the request is over in it, after the view."""

    async def story(handler: OneThreadHandler) -> None:
        visit = Visit("/wait")
        with finished() as threads:
            left = asyncio.create_task(handler(visit.scope, visit.receive, visit.send))
            await entered()
            visit.hang_up()
            other = int(await ask(handler, "/thread"))
            assert not left.done()
            GATE.opened.set()
            await left
        assert threads[0] == other
        assert threads[-1] not in {other, threading.get_ident()}
        assert visit.told == []

    run(story)


def test_a_stream_ends_when_its_client_leaves() -> None:
    """The request is over then, and its thread is free for the next."""

    async def story(handler: OneThreadHandler) -> None:
        visit = Visit("/stream")
        with finished() as threads:
            open_stream = asyncio.create_task(handler(visit.scope, visit.receive, visit.send))
            await visit.heard.wait()
            visit.hang_up()
            await open_stream
        assert "more" in visit.text
        assert threads == [int(await ask(handler, "/thread"))]

    run(story)


def test_a_view_that_fails_is_answered_and_over(caplog: pytest.LogCaptureFixture) -> None:
    """The thread serves on."""

    async def story(handler: OneThreadHandler) -> None:
        visit = Visit("/broken")
        with finished() as threads:
            await handler(visit.scope, visit.receive, visit.send)
        assert visit.told[0]["status"] == 500
        assert threads == [int(await ask(handler, "/thread"))]

    run(story)


def test_a_site_that_has_started_is_not_searched_for_garbage() -> None:
    """A full collection would stop every request for as long as it looks at all modules."""
    told: list[Message] = []
    heard = iter(("lifespan.startup", "lifespan.shutdown"))

    async def receive() -> Message:
        return {"type": next(heard)}

    async def send(message: Message) -> None:
        told.append({**message, "frozen": gc.get_freeze_count()})

    try:
        asyncio.run(Site()({"type": "lifespan"}, receive, send))  # type: ignore[arg-type]
        assert told[0]["frozen"] > 100_000
    finally:
        gc.unfreeze()


def test_no_more_threads_are_kept_than_can_be_of_use() -> None:
    """Those beyond end with their request."""
    threads = RequestThreads()
    lent = [threads.lent() for _ in range(KEPT + 1)]
    taken = [one.__enter__() for one in lent]
    running = [one.submit(threading.current_thread).result(PATIENCE_SECONDS) for one in taken]
    for one in lent:
        one.__exit__(None, None, None)
    running[-1].join(PATIENCE_SECONDS)
    assert [thread.is_alive() for thread in running] == [True] * KEPT + [False]
