"""Event streams over HTTP: who may listen to what, then `events.stream`.

One short visit to the database decides; while a stream waits it holds neither a connection nor a
lock. The server chooses the channels: nothing in the request names one (security S25 to S28).
"""

from collections.abc import Callable
from functools import partial
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import Error as DatabaseFailure
from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import path
from django.views.decorators.http import require_GET

from tasks_app.api.authentication import find_principal
from tasks_app.api.errors import HttpFaultError
from tasks_app.api.visits import forget_session, holding, refusal, short_visit, take_slot
from tasks_app.domain.errors import FieldProblem, RuntimeFault, UnauthenticatedError
from tasks_app.domain.principal import Principal
from tasks_app.domain.states import TERMINAL
from tasks_app.events import stream
from tasks_app.events.catalogue import EventType, PushedEvent
from tasks_app.events.channels import inbox_channel, task_channel, tasks_channel
from tasks_app.events.slots import Slot
from tasks_app.events.stream import Look, NoLongerAllowedError, StreamPlan, UnconfirmedError
from tasks_app.policy.capabilities import holds, require
from tasks_app.queries.snapshot import TaskSnapshot, get_snapshot
from tasks_app.syncpoints import reach

# Parameters with which django-eventstream's own view lets a request choose channel or user.
REFUSED_PARAMETERS = frozenset({"es-meta", "channel", "channels", "link", "recover"})
# Sent by browsers after an event whose id was `error`: the stream was ended for good.
ENDED_ID = "error"


@require_GET
async def task_events(request: HttpRequest, task_id: UUID) -> HttpResponseBase:
    """GET /runtime/tasks/<id>/events: one task's events, for keys and sessions."""
    return await _answer(request, partial(_plan_task, request, task_id))


@require_GET
async def page_task_events(request: HttpRequest, task_id: UUID) -> HttpResponseBase:
    """GET /stream/tasks/<id>/: the task's events and the tenant's inbox, for the task's page."""
    return await _answer(request, partial(_plan_task_page, request, task_id))


@require_GET
async def page_tenant_events(request: HttpRequest) -> HttpResponseBase:
    """GET /stream/tenant/: hints that lists and inbox may have changed, for pages with lists."""
    return await _answer(request, partial(_plan_tenant, request))


# What the routes need; `_listener` asks for it (S13, compared by tests/api/test_routes.py).
for _view in (task_events, page_task_events, page_tenant_events):
    setattr(_view, "capability", "tasks:read")  # noqa: B010 - a function has no such field

page_urls = [
    path("tasks/<uuid:task_id>/", page_task_events, name="task"),
    path("tenant/", page_tenant_events, name="tenant"),
]


async def _answer(
    request: HttpRequest, plan: Callable[[], tuple[StreamPlan, Slot]]
) -> HttpResponseBase:
    try:
        _refuse_parameters(request)
        accepted, slot = await sync_to_async(short_visit(plan))()
    except (RuntimeFault, DatabaseFailure) as error:
        return refusal(request, error)
    response = StreamingHttpResponse(
        holding(slot, stream.live(accepted)), content_type="text/event-stream; charset=utf-8"
    )
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"
    return response


def _plan_task(request: HttpRequest, task_id: UUID) -> tuple[StreamPlan, Slot]:
    principal = _listener(request)
    get_snapshot(principal, task_id)
    channels = frozenset({task_channel(task_id)})
    return _planned(request, principal, channels, task_id)


def _plan_task_page(request: HttpRequest, task_id: UUID) -> tuple[StreamPlan, Slot]:
    principal = _listener(request, pages_only=True)
    get_snapshot(principal, task_id)
    channels = {task_channel(task_id)} | _inbox(principal)
    return _planned(request, principal, frozenset(channels), task_id)


def _plan_tenant(request: HttpRequest) -> tuple[StreamPlan, Slot]:
    principal = _listener(request, pages_only=True)
    channels = {tasks_channel(principal.tenant_id)} | _inbox(principal)
    return _planned(request, principal, frozenset(channels), None)


def _planned(
    request: HttpRequest, principal: Principal, channels: frozenset[str], task_id: UUID | None
) -> tuple[StreamPlan, Slot]:
    slot = take_slot(principal)
    again = partial(_look_again, request, principal, task_id)
    plan = StreamPlan(
        channels=channels,
        look=sync_to_async(short_visit(again)),
        shows_tasks=not principal.sees_only_own("tasks:read"),
    )
    return plan, slot


def _listener(request: HttpRequest, *, pages_only: bool = False) -> Principal:
    """Return who listens; they may read tasks.

    Raises:
        RuntimeFault: no credential, not a valid one, or not allowed to read tasks.
    """
    principal = find_principal(request)
    if principal is None or (pages_only and principal.via != "session"):
        raise UnauthenticatedError("No valid credential.")
    require(principal, "tasks:read")
    return principal


def _inbox(principal: Principal) -> set[str]:
    return {inbox_channel(principal.tenant_id)} if holds(principal, "approvals:read") else set()


def _look_again(request: HttpRequest, before: Principal, task_id: UUID | None) -> Look:
    """Ask the database whether the listener's right still stands, and where the task is.

    Raises:
        NoLongerAllowedError: the credential ended, the tenant was changed, or the task is hidden.
        UnconfirmedError: the database does not answer.
    """
    try:
        forget_session(request)
        principal = _listener(request)
        if (principal.tenant_id, principal.actor) != (before.tenant_id, before.actor):
            raise NoLongerAllowedError
        if task_id is None:
            return Look()
        found = get_snapshot(principal, task_id)
    except DatabaseFailure as error:
        raise UnconfirmedError from error
    except RuntimeFault as error:
        raise NoLongerAllowedError from error
    reach("stream.after_snapshot", task_id)
    return _look(found)


def _look(found: TaskSnapshot) -> Look:
    event = PushedEvent(
        tenant_id=found.tenant_id,
        task_id=found.task_id,
        seq=found.seq,
        type=EventType.SNAPSHOT,
        progress=found.progress,
        phase=found.phase,
        version=found.state_version,
    )
    return Look({**event.task_form(), "status": found.status}, ended=found.status in TERMINAL)


def _refuse_parameters(request: HttpRequest) -> None:
    """Refuse what would steer the library, and what resumes a stream that ended for good.

    Raises:
        HttpFaultError: `invalid_query`, naming the parameter.
    """
    for name in REFUSED_PARAMETERS & set(request.GET):
        _refuse(f"?{name}", "not_allowed", "The server chooses what a stream carries.")
    given = [request.headers.get("Last-Event-ID", ""), *request.GET.getlist("lastEventId")]
    if ENDED_ID in given:
        _refuse("?lastEventId", "stream_ended", "That stream ended with an error; sign in again.")
    if not all(value == "" or (value.isascii() and value.isdigit()) for value in given):
        _refuse("?lastEventId", "not_a_number", "Not the id of an event.")


def _refuse(pointer: str, code: str, detail: str) -> None:
    problem = FieldProblem(pointer, code, detail)
    raise HttpFaultError("invalid_query", "The query does not fit.", (problem,))
