"""Who calls, what the caller's client declared with this very request, and short visits to the database."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import INVALID_PARAMS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from tasks_app.api.visits import short_visit
from tasks_app.domain.errors import NotFoundError, RuntimeFault
from tasks_app.domain.principal import Principal
from tasks_app.mcp_server.wire import EXTENSION

P = ParamSpec("P")
T = TypeVar("T")
Context = ServerRequestContext[Any, Any]

SCOPE_KEY = "perdure.caller"
MISSING_CAPABILITY = -32021
UNKNOWN_TASK = "There is no such task."

_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls; `confirm` looks again whether the credential still stands, and raises if not."""

    principal: Principal
    confirm: Callable[[], Principal]
    # The scopes of an OAuth token; None for whoever came with another credential.
    scopes: frozenset[str] | None = None


def caller_of(ctx: Context) -> Caller:
    """Return who has sent a request: the door put it there, or whoever started the server on stdio."""
    request = ctx.request
    found = request.scope[SCOPE_KEY] if request is not None else ctx.lifespan_context[SCOPE_KEY]
    if not isinstance(found, Caller):
        raise TypeError("the door let nobody in")
    return found


def is_modern(ctx: Context) -> bool:
    """Tell whether the request is of a revision that knows extensions at all."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def knows_tasks(ctx: Context) -> bool:
    """Tell whether this request declares the Tasks extension; earlier ones do not count."""
    extensions = _declared(ctx).get("extensions")
    return is_modern(ctx) and isinstance(extensions, Mapping) and EXTENSION in extensions


def require_tasks(ctx: Context) -> None:
    """Refuse a request that does not declare the extension. Raises: MCPError -32021."""
    if not knows_tasks(ctx):
        raise missing_extension()


def missing_extension() -> MCPError:
    """Return the error that names the extension a request needs."""
    return MCPError(
        MISSING_CAPABILITY,
        "This needs the Tasks extension.",
        {"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
    )


def elicitation_modes(ctx: Context) -> frozenset[str]:
    """Return in which modes the client can ask its person; none declared means forms."""
    declared = _declared(ctx).get("elicitation")
    if not is_modern(ctx) or not isinstance(declared, Mapping):
        return frozenset()
    return frozenset(declared) & {"form", "url"} or frozenset({"form"})


def meta_of(ctx: Context) -> Mapping[str, Any]:
    """Return the request's `_meta` as it came."""
    meta = (ctx.params or {}).get("_meta")
    return meta if isinstance(meta, Mapping) else {}


def name_header(ctx: Context) -> str | None:
    """Return what the Mcp-Name header names; None without one, empty when it cannot be read."""
    request = ctx.request
    value = None if request is None else request.headers.get(MCP_NAME_HEADER)
    return None if value is None else decode_header_value(value) or ""


def _declared(ctx: Context) -> Mapping[str, Any]:
    declared = meta_of(ctx).get(_CAPABILITIES)
    return declared if isinstance(declared, Mapping) else {}


async def visit(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function that uses the database in a thread of its own, which keeps no connection."""
    call = functools.partial(short_visit(function), *args, **kwargs)
    return await sync_to_async(call, thread_sensitive=False)()


def as_error(fault: RuntimeFault) -> MCPError:
    """Return the protocol's error of a refusal; what is not seen and what is not there are one."""
    if isinstance(fault, NotFoundError):
        return MCPError(INVALID_PARAMS, UNKNOWN_TASK)
    return MCPError(INVALID_PARAMS, fault.message, {"reason": fault.code})
