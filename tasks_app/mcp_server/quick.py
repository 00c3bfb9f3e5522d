"""Tools that answer inside the request and leave no task."""

from collections.abc import Mapping
from typing import Any

from mcp_types import CallToolRequestParams
from pydantic import BaseModel, ValidationError

from tasks_app.mcp_server import preflight, wire
from tasks_app.mcp_server.caller import Context, visit
from tasks_app.workflows.inline import InlineTool

Json = dict[str, Any]


def describe(tool: InlineTool) -> Json:
    """Return the tool as `tools/list` tells it."""
    return {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": schema(tool),
        "annotations": {"title": tool.title, "readOnlyHint": True},
    }


def schema(tool: InlineTool) -> Json:
    """Return the schema of the tool's arguments."""
    return {**tool.arguments.model_json_schema(), "type": "object"}


async def call(ctx: Context, tool: InlineTool, params: CallToolRequestParams) -> Json:
    """Run the tool and return its result; what it raises is told as an error of the tool."""
    asked = preflight.ask(ctx, params, tool.preflight)
    if asked.result is not None:
        return asked.result
    try:
        arguments = tool.arguments.model_validate(asked.arguments)
    except ValidationError as error:
        return invalid([f"{'/'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()])
    try:
        value = await visit(tool.call, arguments)
    except Exception as error:  # noqa: BLE001 - an author's code; its words are for the caller
        return wire.refused("tool_failed", str(error)[:500] or type(error).__name__)
    return wire.value_result(_plain(value), "Done.")


def invalid(problems: list[str]) -> Json:
    """Return that arguments do not fit, with each problem; nothing was started."""
    listed = "\n".join(problems[:20])
    return wire.refused("invalid_input", f"The arguments do not fit:\n{listed}", errors=problems)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return dict(value) if isinstance(value, Mapping) else value
