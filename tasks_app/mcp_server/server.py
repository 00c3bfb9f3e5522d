"""Which handler serves which method, and how the SDK's server is set up (mcp.md section 7)."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from django.conf import settings
from mcp.server.caching import CacheHint
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity

from tasks_app.mcp_server import listen, resources, tasks, tools, wire

NAME = "perdure"
INSTRUCTIONS = (
    "Each workflow is a tool that starts a durable task. Clients that know the Tasks extension get"
    " the task; others get its result, or a taskId to follow with task_status."
)
STATE_SECONDS = 600

_CACHE = {
    "server/discover": CacheHint(60_000, "public"),
    "tools/list": CacheHint(5_000, "private"),
    "resources/list": CacheHint(0, "private"),
    "resources/templates/list": CacheHint(3_600_000, "public"),
    "resources/read": CacheHint(0, "private"),
}


def build(lifespan_state: Mapping[str, Any] | None = None) -> Server[dict[str, Any]]:
    """Return a server; `lifespan_state` is what its handlers find where no request brings it."""

    @asynccontextmanager
    async def lifespan(_: Server[Any]) -> AsyncIterator[dict[str, Any]]:
        yield dict(lifespan_state or {})

    server: Server[dict[str, Any]] = Server(
        NAME,
        version=settings.RELEASE,
        title="Perdure",
        instructions=INSTRUCTIONS,
        cache_hints=_CACHE,  # type: ignore[arg-type]
        lifespan=lifespan,
        get_tool_input_schema=tools.schema_of,
        on_list_tools=tools.list_tools,  # type: ignore[arg-type]
        on_call_tool=tools.call_tool,  # type: ignore[arg-type]
        on_list_resources=resources.list_resources,  # type: ignore[arg-type]
        on_list_resource_templates=resources.list_templates,  # type: ignore[arg-type]
        on_read_resource=resources.read_resource,  # type: ignore[arg-type]
        on_subscriptions_listen=listen.listen,  # type: ignore[arg-type]
    )
    server.add_request_handler("tasks/get", tasks.TaskParams, tasks.get_task)
    server.add_request_handler("tasks/update", tasks.UpdateParams, tasks.update_task)
    server.add_request_handler("tasks/cancel", tasks.TaskParams, tasks.cancel_task)
    # Exactly empty: clients take anything else for "not supported".
    server.extensions[wire.EXTENSION] = {}
    state = RequestStateSecurity(keys=[key.encode() for key in _keys()], ttl=STATE_SECONDS)
    server.middleware.append(RequestStateBoundary(state, default_audience=NAME))
    return server


def _keys() -> list[str]:
    return [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
