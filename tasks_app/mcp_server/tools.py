"""`tools/list` and `tools/call`: every workflow that is listed, quick tools, and the control tools."""

from typing import Any

from mcp.server.context import HandlerResult
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolRequestParams, PaginatedRequestParams
from pydantic import TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError

from tasks_app.domain.principal import Principal
from tasks_app.mcp_server import control, quick, starting, wire
from tasks_app.mcp_server.caller import Context, caller_of
from tasks_app.policy.capabilities import holds
from tasks_app.workflows import inline, registry
from tasks_app.workflows.definition import WorkflowInfo
from tasks_app.workflows.inline import NAME

Json = dict[str, Any]

# What a client that knows no tasks gets in the place of a result.
_HANDLE_SCHEMA: Json = {
    "type": "object",
    "properties": {
        "taskId": {"type": "string"},
        "status": {"type": "string"},
        "pollAfterSeconds": {"type": "integer"},
        "statusTool": {"const": "task_status"},
    },
    "required": ["taskId", "statusTool"],
}


async def list_tools(ctx: Context, params: PaginatedRequestParams | None) -> HandlerResult:
    """Answer `tools/list` with what the caller may use, by name."""
    return {"resultType": "complete", "tools": tools_of(caller_of(ctx).principal)}


async def call_tool(ctx: Context, params: CallToolRequestParams) -> HandlerResult:
    """Answer `tools/call`."""
    name, arguments = params.name, params.arguments or {}
    if name in control.TOOLS:
        return await control.call(ctx, name, arguments)
    tool = inline.find_tool(name)
    if tool is not None:
        return await quick.call(ctx, tool, params)
    definition = registry.find_definition(name)
    if definition is None or not definition.mcp.listed:
        raise MCPError(INVALID_PARAMS, f"Unknown tool: {name[:100]}")
    return await starting.call(ctx, definition, params)


def tools_of(principal: Principal) -> list[Json]:
    """Return the tools that a principal may use, by name."""
    tools = [control.describe(name) for name in control.TOOLS if control.may_use(principal, name)]
    tools += [quick.describe(tool) for tool in inline.list_tools()]
    if holds(principal, "tasks:create"):
        workflows = registry.list_workflows()
        tools += [_describe(info) for info in workflows if _is_listed(info)]
    return sorted(tools, key=lambda tool: str(tool["name"]))


def schema_of(name: str) -> Json | None:
    """Return the schema of a tool's arguments, whoever asks; for the check of headers."""
    if name in control.TOOLS:
        return control.describe(name)["inputSchema"]  # type: ignore[no-any-return]
    tool = inline.find_tool(name)
    if tool is not None:
        return quick.schema(tool)
    definition = registry.find_definition(name)
    return None if definition is None else input_schema(registry.get_workflow(name))


def input_schema(info: WorkflowInfo) -> Json:
    """Return the schema of a workflow's arguments; its root is an object."""
    return {**info.schema, "type": "object"}


def _is_listed(info: WorkflowInfo) -> bool:
    return info.definition.mcp.listed and NAME.fullmatch(info.name) is not None


def _describe(info: WorkflowInfo) -> Json:
    acts = f" It acts outside: {', '.join(info.acts)}." if info.acts else ""
    tool: Json = {
        "name": info.name,
        "title": info.title,
        "description": f"{info.description or info.title}{acts} Runs as a task.".strip(),
        "inputSchema": input_schema(info),
        "annotations": {
            "title": info.title,
            "readOnlyHint": info.definition.mcp.read_only,
            "destructiveHint": bool(info.effects),
            "idempotentHint": False,
            "openWorldHint": bool(info.effects),
        },
        "_meta": {wire.meta_key("version"): info.version},
    }
    output = _output_schema(info)
    if output is not None:
        tool["outputSchema"] = {"type": "object", "anyOf": [output, _HANDLE_SCHEMA]}
    return tool


def _output_schema(info: WorkflowInfo) -> Json | None:
    """Return the schema of a result that is an object; other results carry no schema."""
    try:
        schema = TypeAdapter(info.definition.result_type()).json_schema(mode="serialization")
    except (PydanticSchemaGenerationError, TypeError, ValueError):
        return None
    return schema if schema.get("type") == "object" and schema.get("properties") else None
