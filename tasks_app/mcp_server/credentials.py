"""Whose credential a request carries: an API key or an OAuth token as Bearer, or a key as X-Api-Key.

No cookie counts.
"""

from django.conf import settings
from django.contrib.auth.models import User
from django.core.handlers.asgi import ASGIRequest
from django.http import QueryDict

from tasks_app.admission import principal as principals
from tasks_app.admission import tokens
from tasks_app.api.authentication import find_principal, header_credential, require_https
from tasks_app.api.errors import HttpFaultError
from tasks_app.domain.errors import UnauthenticatedError
from tasks_app.domain.key_text import is_key_like
from tasks_app.domain.principal import Principal
from tasks_app.mcp_server.caller import Caller


def caller_of(request: ASGIRequest) -> Caller:
    """Return who sends a request, with a way to ask again later whether the credential stands.

    Raises: UnauthenticatedError, IssuerUnavailableError, HttpFaultError for a credential in the
        address.
    """
    if settings.MCP_AUTH == "none":
        return caller_for(settings.MCP_USER)
    _refuse_exposed_token(request)
    token = header_credential(request)
    if token is None or is_key_like(token) or "Authorization" not in request.headers:
        return _with_key(request)
    require_https(request)
    bearer = tokens.from_token(token)
    return Caller(bearer.principal, lambda: tokens.from_token(token).principal, bearer.scopes)


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


def _with_key(request: ASGIRequest) -> Caller:
    def look() -> Principal:
        principal = find_principal(request)
        if principal is None:
            raise UnauthenticatedError("No valid credential.")
        return principal

    return Caller(look(), look)


def _refuse_exposed_token(request: ASGIRequest) -> None:
    """Refuse a token in the address, as RFC 6750 once allowed; a genuine one is ended (S5)."""
    query = request.META.get("QUERY_STRING", "")
    if "access_token" not in query:
        return
    for token in QueryDict(query).getlist("access_token"):
        tokens.revoke_exposed(token)
    raise HttpFaultError(
        "credential_in_url", "Send the token as a header. A token seen here is no longer valid."
    )
