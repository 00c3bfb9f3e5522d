"""Whose credential a request carries: an API key as Bearer token or X-Api-Key; no cookie counts."""

from django.conf import settings
from django.contrib.auth.models import User
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest

from tasks_app.admission import principal as principals
from tasks_app.api.authentication import find_principal
from tasks_app.domain.errors import UnauthenticatedError
from tasks_app.domain.principal import Principal
from tasks_app.mcp_server.caller import Caller


def caller_of(request: ASGIRequest) -> Caller:
    """Return who sends a request, with a way to ask again later whether the credential stands.

    Raises: UnauthenticatedError, HttpFaultError for a credential in the address.
    """
    if settings.MCP_AUTH == "none":
        return caller_for(settings.MCP_USER)

    def look() -> Principal:
        return _found(request)

    return Caller(look(), look)


def caller_for(username: str) -> Caller:
    """Return a person as the caller, without a credential: for loopback and stdio only.

    Raises: UnauthenticatedError when there is no such person, or no tenant of theirs.
    """

    def look() -> Principal:
        user = User.objects.filter(username=username).first()
        if user is None:
            raise UnauthenticatedError("No valid credential.")
        return principals.from_session(user)

    return Caller(look(), look)


def challenge(**facts: str) -> str:
    """Return the value of WWW-Authenticate."""
    told = {"realm": "perdure", **facts}
    return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in told.items())


def _found(request: HttpRequest) -> Principal:
    principal = find_principal(request)
    if principal is None:
        raise UnauthenticatedError("No valid credential.")
    return principal
