"""Lets requests in: credential, right, size and form are settled before the SDK sees a message."""

import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import PARSE_ERROR

from tasks_app.admission import throttles
from tasks_app.admission.throttles import Charge, Rate
from tasks_app.api import errors
from tasks_app.api.authentication import refuse_exposed
from tasks_app.api.base import request_id_of
from tasks_app.api.errors import HttpFaultError
from tasks_app.api.parsing import MAX_BYTES, loads
from tasks_app.domain.errors import NotAllowedError, RuntimeFault, UnauthenticatedError
from tasks_app.domain.principal import Principal
from tasks_app.mcp_server import challenges, credentials, scopes, server, tasks
from tasks_app.mcp_server.caller import SCOPE_KEY, Caller, visit
from tasks_app.policy.capabilities import holds

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

PATH = "/mcp"


class McpDoor:
    """The ASGI application behind `/mcp`; its lifespan must be entered before the first request."""

    def __init__(self) -> None:
        served = server.build()
        # What may take long is told as a stream; what is one look is answered at once, for less.
        self._streaming = _manager(served, json_response=False)
        self._quick = _manager(served, json_response=True)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the SDK's session managers while the server runs."""
        async with self._streaming.run(), self._quick.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] != "POST":
            # In stateless mode the SDK would open a stream that never ends.
            await _answer(send, HTTPStatus.METHOD_NOT_ALLOWED, {}, {"Allow": "POST"})
            return
        request = ASGIRequest(dict(scope), io.BytesIO())
        try:
            body = await _body(scope, receive)
            entered = await visit(_enter, request, body)
        except RuntimeFault as fault:
            await _refuse(send, fault, request_id_of(request))
            return
        scope[SCOPE_KEY], scope[tasks.SEEN_KEY] = entered.caller, entered.seen
        token = auth_context_var.set(_bound(entered.caller.principal))
        try:
            manager = self._quick if entered.seen is not None else self._streaming
            await manager.handle_request(
                scope, _replayed(body, receive), _counted(send, entered.charge)
            )
        finally:
            auth_context_var.reset(token)


@dataclass(frozen=True, slots=True)
class _Entered:
    """A request that was let in, with what one look at its task has already answered."""

    caller: Caller
    charge: Charge | None
    seen: tasks.Seen | RuntimeFault | None


def _manager(
    served: Server[dict[str, Any]], *, json_response: bool
) -> StreamableHTTPSessionManager:
    return StreamableHTTPSessionManager(
        app=served,
        json_response=json_response,
        stateless=True,
        security_settings=TransportSecuritySettings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=_hosts(),
            allowed_origins=_origins(),
        ),
        max_request_body_size=MAX_BYTES,
    )


def _hosts() -> list[str]:
    """Return the hosts by which this server may be called: Django's, with any port."""
    hosts = [host for host in settings.ALLOWED_HOSTS if host != "*"]
    named = urlsplit(settings.MCP_RESOURCE_URL).netloc
    return [*hosts, *(f"{host}:*" for host in hosts), named]


def _origins() -> list[str]:
    """Return the origins of pages that may call: our own, those named, a loopback's for developers."""
    own = urlsplit(settings.MCP_RESOURCE_URL)
    loopback = [] if settings.PRODUCTION else ["http://localhost:*", "http://127.0.0.1:*"]
    return [*settings.MCP_ALLOWED_ORIGINS, f"{own.scheme}://{own.netloc}", *loopback]


async def _body(scope: Scope, receive: Receive) -> bytes:
    """Return the whole body. Raises: HttpFaultError `payload_too_large`."""
    headers = dict(scope["headers"])
    announced = headers.get(b"content-length", b"0")
    too_large = HttpFaultError("payload_too_large", f"At most {MAX_BYTES} bytes.")
    if announced.isdigit() and int(announced) > MAX_BYTES:
        raise too_large
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise HttpFaultError("invalid_json", "The request was not sent to its end.")
        body += message.get("body", b"")
        if len(body) > MAX_BYTES:
            raise too_large
        if not message.get("more_body"):
            return bytes(body)


def _enter(request: ASGIRequest, body: bytes) -> _Entered:
    """Let a request in, in one visit to the database.

    Raises: UnauthenticatedError first, then what is wrong with the body, then NotAllowedError, then
    TooManyRequestsError.
    """
    try:
        caller = credentials.caller_of(request)
    except UnauthenticatedError as fault:
        raise challenges.ChallengedError(
            fault.message, challenges.who_are_you(request, body)
        ) from None
    message = _parsed(body)
    needed = scopes.needed(message)
    _require(caller, needed)
    rate = throttles.rate_of("POST", needed) if needed else Rate.READ
    charge = throttles.charge(caller.principal, rate)
    return _Entered(caller, charge, tasks.look_early(caller.principal, message))


def _parsed(body: bytes) -> Any:
    if b"rtk_" in body:
        refuse_exposed(body.decode("utf-8", "replace"))
    return loads(body)


def _require(caller: Caller, capabilities: tuple[str, ...]) -> None:
    if scopes.suffices(lambda name: holds(caller.principal, name), capabilities):
        return
    missing = " ".join(capabilities)
    if caller.scopes is not None and scopes.suffices(caller.scopes.__contains__, capabilities):
        # The token reaches it, its owner does not: another token would change nothing.
        raise NotAllowedError(missing)
    raise challenges.TooNarrowError(missing, challenges.too_narrow(capabilities))


def _bound(principal: Principal) -> AuthenticatedUser:
    """Return the identity that the SDK binds a `requestState` to."""
    subject = f"{principal.tenant_id}/{principal.user_id}"
    return AuthenticatedUser(
        AccessToken(token="", client_id=principal.actor, scopes=[], subject=subject)
    )


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a channel that gives the body once more, and then what really comes."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _counted(send: Send, charge: Charge | None) -> Send:
    """Return a way to answer that tells how many requests are left."""
    if charge is None:
        return send
    told = [(name.lower().encode(), value.encode()) for name, value in charge.headers.items()]

    async def tell(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *told]}
        await send(message)

    return tell


async def _refuse(send: Send, fault: RuntimeFault, request_id: str) -> None:
    """Answer a refusal: a JSON-RPC error for a body, a problem document for everything else."""
    named = {"X-Request-Id": request_id}
    if fault.code == "invalid_json":
        error = {"code": PARSE_ERROR, "message": fault.message, "data": {"code": fault.code}}
        body = {"jsonrpc": "2.0", "id": None, "error": error}
        await _answer(send, HTTPStatus.BAD_REQUEST, body, named)
        return
    problem = errors.handle(fault, {"request_id": request_id})
    headers = {**problem.headers, **named, "Content-Type": errors.MEDIA_TYPE}
    if isinstance(fault, challenges.ChallengedError | challenges.TooNarrowError):
        headers["WWW-Authenticate"] = fault.challenge
    await _answer(send, HTTPStatus(problem.status_code), problem.data, headers)


async def _answer(
    send: Send, status: HTTPStatus, body: Any, headers: dict[str, str] | None = None
) -> None:
    data = json.dumps(body).encode() if body else b""
    named = {
        "Content-Type": "application/json",
        "Content-Length": str(len(data)),
        **(headers or {}),
    }
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in named.items()]
    await send({"type": "http.response.start", "status": int(status), "headers": raw})
    await send({"type": "http.response.body", "body": data})
