"""What the run door's async views share: methods and their rights, bodies, refusals, leaving clients."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from http import HTTPStatus
from typing import IO, Any, Concatenate, ParamSpec, cast
from uuid import UUID

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from tasks_app.admission import runs as writing
from tasks_app.api import rates
from tasks_app.api.authentication import refuse_exposed
from tasks_app.api.errors import HttpFaultError
from tasks_app.api.langgraph.base import cleaned, parsed, query_of
from tasks_app.api.langgraph.inputs import StreamQuery
from tasks_app.api.parsing import StrictJSONParser
from tasks_app.api.visits import caller_of, forget_session, refusal, short_visit
from tasks_app.domain.errors import NotAllowedError
from tasks_app.domain.principal import Principal
from tasks_app.domain.run_bodies import RunBody, parse
from tasks_app.events.wakes import Waker
from tasks_app.policy.capabilities import holds, require
from tasks_app.queries.runs import RunHead, get_head
from tasks_app.queries.threads import get_thread

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], Coroutine[Any, Any, HttpResponseBase]]

# Acts that go on after their request has ended; kept so that nobody forgets them.
_acts: set[asyncio.Task[None]] = set()


class CutShortError(asyncio.CancelledError):
    """This server cannot go on with an answer; the client asks again at its Location.

    To Django it looks as if the client had gone: it sends nothing more, and the connection closes
    in the middle of the answer. A clean end would be taken for the end of the run (R45, R56).
    """


def door(**capabilities: str) -> Callable[[View[P]], View[P]]:
    """Make an async view of the run door: its methods with what each needs.

    Sessions show their CSRF token where the principal is found. Whatever the view raises becomes a
    problem document.
    """

    def decorate(view: View[P]) -> View[P]:
        @csrf_exempt
        @wraps(view)
        async def answer(
            request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs
        ) -> HttpResponseBase:
            if request.method not in capabilities:
                return not_taken(request, capabilities)
            try:
                found = await view(request, *args, **kwargs)
            except Exception as error:  # noqa: BLE001 - told as what it is, and logged if unknown
                found = refusal(request, error)
            rates.tell(request, found)
            return found

        setattr(answer, "capabilities", capabilities)  # noqa: B010 - a function has no such field
        return answer

    return decorate


def not_taken(request: HttpRequest, methods: Iterable[str]) -> HttpResponse:
    """Return that an address takes other methods only."""
    told = "This address does not take this method."
    answer = refusal(request, HttpFaultError("method_not_allowed", told))
    answer.headers["Allow"] = ", ".join(methods)
    return answer


def body_of(request: HttpRequest, principal: Principal) -> RunBody:
    """Return the run that a request asks for. Raises: what `parse` and the JSON parser raise."""
    return parse(cleaned(json_of(request), principal))


def json_of(request: HttpRequest) -> Any:
    """Return a request's body as JSON. Raises: HttpFaultError."""
    if (request.content_type or "").lower() != StrictJSONParser.media_type:
        raise HttpFaultError("unsupported_media_type", "Send the body as application/json.")
    return StrictJSONParser().parse(
        cast("IO[bytes]", request),
        request.META.get("CONTENT_TYPE"),
        {"request": request, "view": _Inspector},
    )


class _Inspector:
    @staticmethod
    def inspect_body(data: bytes) -> None:
        """Refuse a body with one of our keys in it."""
        if b"rtk_" in data:
            refuse_exposed(data.decode("utf-8", "replace"))


def stream_query(request: HttpRequest) -> StreamQuery:
    """Return the query of a stream. Raises: InvalidInputError."""
    return parsed(StreamQuery, query_of(request.GET, StreamQuery), "The query")


def starter(request: HttpRequest, thread_key: str | None) -> Principal:
    """Return who starts a run. Raises: as REST, 404 before 403."""
    principal = caller_of(request)
    if not holds(principal, "tasks:create"):
        if thread_key is not None and principal.can("tasks:read"):
            get_thread(principal, thread_key)
        raise NotAllowedError("tasks:create")
    require(principal, "tasks:create")
    return principal


def allowed(principal: Principal, capability: str, run_id: UUID, thread_key: str | None) -> RunHead:
    """Return a run that the principal may treat so. Raises: NotFoundError, NotAllowedError."""
    if not principal.can("tasks:read"):
        raise NotAllowedError(capability)
    run = get_head(principal, run_id, thread_key)
    require(principal, capability, run)
    return run


def confirm(request: HttpRequest, before: Principal) -> None:
    """Ask whether a credential still stands. Raises: a RuntimeFault when it does not."""
    forget_session(request)
    now = caller_of(request)
    require(now, "tasks:read")
    if (now.tenant_id, now.actor) != (before.tenant_id, before.actor):
        raise NotAllowedError("tasks:read")


def come_back(principal: Principal, run: RunHead) -> None:
    """Note that the person whose run it is follows it again (R54)."""
    if principal.user_id == run.initiator_id:
        writing.note_reconnect(principal, task_id=run.task_id)


@contextmanager
def noticing(principal: Principal, run: RunHead, waker: Waker, *, acts: bool) -> Iterator[None]:
    """Notice that the client has gone whose run may end with it; a stopping server does not count."""
    try:
        yield
    except CutShortError:
        raise
    except (GeneratorExit, asyncio.CancelledError):
        if acts and not waker.is_ending:
            _leave(principal, run)
        raise


def _leave(principal: Principal, run: RunHead) -> None:
    """Note it after the request, which is being torn down and can wait for nothing."""

    async def note() -> None:
        visit = short_visit(writing.note_disconnect)
        await sync_to_async(visit, thread_sensitive=False)(principal, task_id=run.task_id)

    act = asyncio.get_running_loop().create_task(note())
    _acts.add(act)
    act.add_done_callback(_acts.discard)


def no_content(status: HTTPStatus = HTTPStatus.NO_CONTENT) -> HttpResponse:
    """Return an answer without a body; its status is never 200 (R10)."""
    answer = HttpResponse(status=status)
    del answer.headers["Content-Type"]
    return answer
