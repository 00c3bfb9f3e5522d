"""What a request needs, read from its body before any handler runs (mcp.md section 8).

Headers of newer clients say the same, but older clients send none; the body is what will run.
"""

from collections.abc import Callable, Mapping
from typing import Any

from mcp.shared.inbound import MCP_METHOD_HEADER, MCP_NAME_HEADER, decode_header_value

from tasks_app.api.parsing import loads
from tasks_app.domain.errors import RuntimeFault
from tasks_app.mcp_server import control
from tasks_app.workflows import inline

# Who starts a task is shown it.
_STARTING = ("tasks:create", "tasks:read")
# Any of them lets the request in; the handler asks for the exact one.
_METHODS: dict[str, tuple[str, ...]] = {
    "tasks/get": ("tasks:read",),
    "tasks/cancel": ("tasks:cancel",),
    "tasks/update": ("tasks:steer", "approvals:decide"),
    "resources/list": ("tasks:read",),
    "resources/read": ("tasks:read",),
    "subscriptions/listen": ("tasks:read",),
}


# Of callers without a credential no more is read, only to tell them which one they need.
_HINT_BYTES = 65_536


def asked_for(headers: Mapping[str, str], body: bytes) -> tuple[str, ...]:
    """Return what somebody unknown needs: by the headers, or by a small body; empty if unclear."""
    method = headers.get(MCP_METHOD_HEADER)
    if method is not None:
        name = decode_header_value(headers.get(MCP_NAME_HEADER, ""))
        return needed({"method": method, "params": {"name": name}})
    if len(body) > _HINT_BYTES:
        return ()
    try:
        return needed(loads(body))
    except RuntimeFault:
        return ()


def needed(message: Any) -> tuple[str, ...]:
    """Return the capabilities that a message needs, see `suffices`; empty when anybody may send it."""
    if not isinstance(message, Mapping):
        return ()
    method = message.get("method")
    if method != "tools/call":
        return _METHODS.get(method, ()) if isinstance(method, str) else ()
    params = message.get("params")
    name, arguments = None, None
    if isinstance(params, Mapping):
        name, arguments = params.get("name"), params.get("arguments")
    if isinstance(name, str) and name in control.TOOLS:
        return control.needed(name, arguments)
    if isinstance(name, str) and inline.find_tool(name) is not None:
        return ()
    return _STARTING


def suffices(held: Callable[[str], bool], capabilities: tuple[str, ...]) -> bool:
    """Tell whether what is held lets a request in: one of the capabilities, to start a task all."""
    if not capabilities:
        return True
    return (all if capabilities is _STARTING else any)(map(held, capabilities))
