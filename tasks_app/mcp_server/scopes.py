"""What a request needs, read from its body before any handler runs (mcp.md section 8)."""

from collections.abc import Mapping
from typing import Any

from tasks_app.mcp_server import control
from tasks_app.workflows import inline

# Any of them lets the request in; the handler asks for the exact one.
_METHODS: dict[str, tuple[str, ...]] = {
    "tasks/get": ("tasks:read",),
    "tasks/cancel": ("tasks:cancel",),
    "tasks/update": ("tasks:steer", "approvals:decide"),
    "resources/list": ("tasks:read",),
    "resources/read": ("tasks:read",),
    "subscriptions/listen": ("tasks:read",),
}


def needed(message: Any) -> tuple[str, ...]:
    """Return the capabilities of which a message needs one; empty when any caller may send it."""
    if not isinstance(message, Mapping):
        return ()
    method = message.get("method")
    if method != "tools/call":
        return _METHODS.get(method, ()) if isinstance(method, str) else ()
    params = message.get("params")
    name = params.get("name") if isinstance(params, Mapping) else None
    if name in control.TOOLS:
        return control.TOOLS[name].capabilities
    if isinstance(name, str) and inline.find_tool(name) is not None:
        return ()
    return ("tasks:create",)
