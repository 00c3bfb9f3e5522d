"""What plain async views need around their answers: a short visit to the database, a refusal, a place.

While such an answer is open it holds neither a connection nor a lock.
"""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import wraps
from importlib import import_module
from typing import ParamSpec, TypeVar

from django.conf import settings
from django.contrib import auth
from django.db import connections
from django.http import HttpRequest, HttpResponse

from tasks_app.api import errors, rates
from tasks_app.api.authentication import find_principal
from tasks_app.api.base import request_id_of
from tasks_app.api.errors import HttpFaultError
from tasks_app.domain.errors import UnauthenticatedError
from tasks_app.domain.principal import Principal
from tasks_app.events.slots import STREAMS, Slot, TooManyStreamsError

P = ParamSpec("P")
T = TypeVar("T")


def short_visit(function: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function so that the thread it ran in keeps no database connection."""

    @wraps(function)
    def visit(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        finally:
            connections.close_all()

    return visit


def caller_of(request: HttpRequest) -> Principal:
    """Return who asks, and count the request.

    Raises: UnauthenticatedError, TooManyRequestsError and what `find_principal` raises.
    """
    principal = find_principal(request)
    if principal is None:
        raise UnauthenticatedError("No valid credential.")
    rates.charge(request, principal)
    return principal


def forget_session(request: HttpRequest) -> None:
    """Make the request read its session and user from the database once more."""
    key = getattr(getattr(request, "session", None), "session_key", None)
    if key is None:
        return
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(key)
    request.user = auth.get_user(request)


def take_slot(principal: Principal) -> Slot:
    """Return a place for one more open answer. Raises: HttpFaultError `too_many_streams`."""
    try:
        return STREAMS.take(principal.tenant_id, principal.actor)
    except TooManyStreamsError as error:
        raise HttpFaultError("too_many_streams", str(error)) from None


async def holding(slot: Slot, texts: AsyncGenerator[str]) -> AsyncGenerator[str]:
    """Pass texts on and give the place back at their end."""
    try:
        async with aclosing(texts):
            async for text in texts:
                yield text
    finally:
        slot.release()


def refusal(request: HttpRequest, error: Exception) -> HttpResponse:
    """Return the same problem document that REST gives."""
    request_id = request_id_of(request)
    answer = errors.handle(error, {"request_id": request_id})
    response = HttpResponse(
        json.dumps(answer.data), status=answer.status_code, headers=dict(answer.headers)
    )
    response.headers["Content-Type"] = errors.MEDIA_TYPE
    response.headers["X-Request-Id"] = request_id
    return response
