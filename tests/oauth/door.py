"""The MCP door in this process, and rows of the authorization server."""

import asyncio
import hashlib
import secrets
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import httpx
from django.contrib.auth.models import User
from django.utils import timezone
from oauth2_provider.models import AccessToken, Application

from tasks_app.admission import tokens
from tasks_app.mcp_server.asgi import McpDoor
from tasks_app.models import Tenant
from tests.mcp.site import Wire

URL = "http://localhost:8000/mcp"
METADATA = "http://localhost:8000/.well-known/oauth-protected-resource/mcp"


def answers(*requests: dict[str, Any]) -> list[httpx.Response]:
    """Return what the door answers to requests, one after the other."""
    door = McpDoor()

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=door)
        async with door.running(), httpx.AsyncClient(transport=transport) as client:
            return [await client.post(**request) for request in requests]

    return asyncio.run(ask())


def answer(token: str, method: str, params: dict[str, Any] | None = None, **more: Any) -> Any:
    """Return what the door answers to one request with a token."""
    return answers(Wire(URL, token).request(method, params, **more))[0]


def make_client(name: str = "Desk", **columns: Any) -> Application:
    """Return a program that people may let in."""
    values = {
        "client_type": "public",
        "authorization_grant_type": "authorization-code",
        "redirect_uris": "http://127.0.0.1/callback",
        **columns,
    }
    return Application.objects.create(name=name, **values)


def make_token(
    tenant: Tenant, person: User | None, scopes: Iterable[str] = tokens.SCOPES, **columns: Any
) -> str:
    """Return a token as the server issues it: only its digest is stored."""
    text = secrets.token_urlsafe(24)
    values = {
        "application": columns.pop("application", None) or make_client(),
        "scope": " ".join(scopes),
        "expires": timezone.now() + timedelta(hours=1),
        "resource": tokens.resources_of(tenant.id),
        **columns,
    }
    row = AccessToken(user=person, token="", **values)
    row._raw_token = text
    row.save()
    assert row.token_checksum == hashlib.sha256(text.encode()).hexdigest()
    return text


def challenge_of(response: httpx.Response) -> dict[str, str]:
    """Return the parameters of WWW-Authenticate."""
    scheme, _, facts = response.headers["WWW-Authenticate"].partition(" ")
    assert scheme == "Bearer"
    pairs = (fact.split("=", 1) for fact in facts.split(", "))
    return {name: value.strip('"') for name, value in pairs}
