"""The run door's open answers: streams, waits, joins, and cancels that wait.

Each takes one short visit to decide, answers, and visits again whenever something woke it.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase

from tasks_app.admission import runs as writing
from tasks_app.admission.idempotency import HEADER
from tasks_app.api.base import request_id_of, trace_of
from tasks_app.api.langgraph import door, waits
from tasks_app.api.langgraph.base import parsed, query_of, run_place
from tasks_app.api.langgraph.door import allowed, no_content
from tasks_app.api.langgraph.feeds import Feed, Stream, look_at, values_at
from tasks_app.api.langgraph.frames import MESSAGES_MODE
from tasks_app.api.langgraph.inputs import CancelQuery
from tasks_app.api.langgraph.runs import replay_headers
from tasks_app.api.langgraph.subagents import time_of
from tasks_app.api.visits import caller_of, holding, short_visit, take_slot
from tasks_app.conf import runtime
from tasks_app.domain.principal import Principal
from tasks_app.events.slots import Slot
from tasks_app.events.wakes import Waker
from tasks_app.policy.capabilities import require
from tasks_app.queries.runs import RunHead, get_head

SSE = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Opened:
    """An answer that was let in: whose, of which run, and what it carries.

    `modes` are those of the stream; without `cursor` it begins with the present values. `ends_run`
    tells that the run may end when this client goes.
    """

    principal: Principal
    run: RunHead
    slot: Slot
    modes: tuple[str, ...]
    cursor: int | None = None
    missed: int | None = None
    values: dict[str, Any] | None = None
    with_children: bool = False
    since: datetime | None = None
    ends_run: bool = False
    headers: tuple[tuple[str, str], ...] = ()


@door.door(POST="tasks:create")
async def create_stream(request: HttpRequest, thread_id: str | None = None) -> HttpResponseBase:
    """POST …/runs/stream: make a run and follow it."""
    opened = await _visit(_create, request, thread_id)
    return _streaming(request, opened)


@door.door(POST="tasks:create")
async def create_wait(request: HttpRequest, thread_id: str | None = None) -> HttpResponseBase:
    """POST …/runs/wait: make a run and wait for its end."""
    opened = await _visit(_create, request, thread_id)
    return _waiting(request, opened)


@door.door(GET="tasks:read", POST="tasks:read")
async def run_stream(
    request: HttpRequest, run_id: UUID, thread_id: str | None = None
) -> HttpResponseBase:
    """GET …/stream: follow a run. POST: with an action it is cancelled first."""
    query = door.stream_query(request)
    if query.action is not None:
        if request.method != "POST":
            return door.not_taken(request, ["POST"])
        await _visit(_cancel, request, run_id, thread_id, query.action)
        if query.wait:
            return await _settle(request, run_id, thread_id)
    return _streaming(request, await _visit(_join, request, run_id, thread_id))


@door.door(GET="tasks:read")
async def run_join(
    request: HttpRequest, run_id: UUID, thread_id: str | None = None
) -> HttpResponseBase:
    """GET …/join: wait for a run's end, or follow it if the client takes events."""
    opened = await _visit(_join, request, run_id, thread_id)
    if SSE in request.headers.get("Accept", ""):
        return _streaming(request, opened)
    return _waiting(request, opened)


@door.door(POST="tasks:cancel")
async def run_cancel(request: HttpRequest, run_id: UUID, thread_id: str) -> HttpResponseBase:
    """POST …/cancel: ask a run to end; `wait` answers when nothing of it is at work any more."""
    query = parsed(CancelQuery, query_of(request.GET, CancelQuery), "The query")
    await _visit(_cancel, request, run_id, thread_id, query.action)
    if not query.wait:
        return no_content(HTTPStatus.ACCEPTED)
    return await _settle(request, run_id, thread_id)


async def _visit(function: Any, *args: Any) -> Any:
    return await sync_to_async(short_visit(function))(*args)


def _create(request: HttpRequest, thread_key: str | None) -> Opened:
    principal = door.starter(request, thread_key)
    body = door.body_of(request, principal)
    slot = take_slot(principal)
    created = writing.create_run(
        principal,
        thread_key=thread_key,
        body=body,
        idempotency_key=request.headers.get(HEADER),
        request_id=request_id_of(request),
        trace=trace_of(request),
    )
    run = get_head(principal, created.task_id)
    is_new = not created.replayed and created.resumed_after is None
    opened = Opened(
        principal,
        run,
        slot,
        tuple(body.modes),
        with_children=body.stream_subgraphs,
        ends_run=is_new and run.cancels_on_disconnect,
        headers=tuple(replay_headers(created).items()),
    )
    door.come_back(principal, run)
    if created.replayed and run.is_over:
        return opened
    return _from(opened, created.resumed_after or 0)


def _join(request: HttpRequest, run_id: UUID, thread_key: str | None) -> Opened:
    principal, query = caller_of(request), door.stream_query(request)
    run = allowed(principal, "tasks:read", run_id, thread_key)
    if query.cancel_on_disconnect:
        require(principal, "tasks:cancel", run)
    modes = query.modes or _own_modes(run)
    opened = Opened(
        principal,
        run,
        take_slot(principal),
        tuple(modes),
        with_children=query.stream_subgraphs or bool(run.request.get("stream_subgraphs")),
        since=time_of(principal, run, run.seq),
        ends_run=query.cancel_on_disconnect,
    )
    door.come_back(principal, run)
    asked = _last_event_id(request)
    if asked is None:
        return opened
    run = get_head(principal, run.task_id)
    if asked > run.seq or run.seq - asked > runtime().max_replayed_events:
        return replace(opened, run=run, missed=asked)
    return _from(replace(opened, run=run), asked)


def _cancel(request: HttpRequest, run_id: UUID, thread_key: str | None, action: str) -> None:
    principal = caller_of(request)
    allowed(principal, "tasks:cancel", run_id, thread_key)
    writing.cancel_run(principal, task_id=run_id, action=action, request_id=request_id_of(request))


def _from(opened: Opened, cursor: int) -> Opened:
    """Return a stream that begins after an event."""
    values = values_at(opened.principal, opened.run, cursor)
    since = time_of(opened.principal, opened.run, cursor)
    return replace(opened, cursor=cursor, values=values, since=since)


def _own_modes(run: RunHead) -> Sequence[str]:
    modes = run.request.get("stream_mode") or ["values"]
    return [modes] if isinstance(modes, str) else modes


def _last_event_id(request: HttpRequest) -> int | None:
    """Return the event after which a reader goes on; -1 is the same as 0, text is like none."""
    try:
        return max(0, int(request.headers.get("Last-Event-ID", "")))
    except ValueError:
        return None


def _streaming(request: HttpRequest, opened: Opened) -> HttpResponseBase:
    answer = StreamingHttpResponse(
        holding(opened.slot, _frames(request, opened)), content_type=f"{SSE}; charset=utf-8"
    )
    answer.headers["Cache-Control"] = "no-cache"
    answer.headers["Location"] = _stream_place(opened)
    return _placed(answer, opened)


def _waiting(request: HttpRequest, opened: Opened) -> HttpResponseBase:
    answer = StreamingHttpResponse(
        holding(opened.slot, _result(opened)), content_type="application/json"
    )
    answer.headers["Cache-Control"] = "no-store"
    answer.headers["Location"] = f"{_place(opened)}/join"
    return _placed(answer, opened)


def _placed(answer: HttpResponseBase, opened: Opened) -> HttpResponseBase:
    answer.headers["Content-Location"] = _place(opened)
    answer.headers["X-Accel-Buffering"] = "no"
    for name, value in opened.headers:
        answer.headers[name] = value
    return answer


def _place(opened: Opened) -> str:
    return run_place(opened.run.thread_key, opened.run.task_id)


def _stream_place(opened: Opened) -> str:
    """Return where a reader goes on; it names the modes if they are not the run's own.

    Clients that come back send no query of theirs.
    """
    place = f"{_place(opened)}/stream"
    if list(opened.modes) == list(_own_modes(opened.run)):
        return place
    return f"{place}?{'&'.join(f'stream_mode={mode}' for mode in opened.modes)}"


async def _frames(request: HttpRequest, opened: Opened) -> AsyncGenerator[str]:
    feed = Feed(
        run=opened.run,
        modes=opened.modes,
        cursor=opened.cursor,
        values=opened.values or {},
        look=partial(_visit, look_at, opened.principal, opened.since),
        confirm=partial(_visit, door.confirm, request, opened.principal),
        missed=opened.missed,
        with_children=opened.with_children,
    )
    async with Waker(opened.run.task_id, hears_pieces=MESSAGES_MODE in opened.modes) as waker:
        stream = Stream(feed, waker)
        texts = stream.run()
        with door.noticing(opened.principal, opened.run, waker, acts=opened.ends_run):
            async with aclosing(texts):
                async for text in texts:
                    if text:
                        yield text


async def _result(opened: Opened) -> AsyncGenerator[str]:
    ask = partial(_visit, waits.result_of, opened.principal, opened.run)
    async with Waker(opened.run.task_id) as waker:
        texts = waits.waited(waker, ask)
        with door.noticing(opened.principal, opened.run, waker, acts=opened.ends_run):
            async with aclosing(texts):
                async for text in texts:
                    yield text


async def _settle(request: HttpRequest, run_id: UUID, thread_key: str | None) -> HttpResponseBase:
    """Answer when a cancelled run has come to rest with all that it started."""
    principal, run = await _visit(_seen, request, run_id, thread_key)
    async with Waker(run_id) as waker:
        ask = partial(_visit, waits.is_at_rest, principal, run)
        rests = await waits.settled(waker, ask, runtime().cancel_wait_seconds)
    return no_content(HTTPStatus.NO_CONTENT if rests else HTTPStatus.ACCEPTED)


def _seen(request: HttpRequest, run_id: UUID, thread_key: str | None) -> tuple[Principal, RunHead]:
    principal = caller_of(request)
    return principal, allowed(principal, "tasks:read", run_id, thread_key)
