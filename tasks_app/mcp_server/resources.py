"""Tasks and their outputs as resources."""

import base64
import json
import re
from typing import Any
from uuid import UUID

from mcp.server.context import HandlerResult
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, PaginatedRequestParams, ReadResourceRequestParams

from tasks_app.api.outputs import TaskOut
from tasks_app.domain.errors import InvalidInputError, NotFoundError, RuntimeFault
from tasks_app.domain.principal import Principal
from tasks_app.mcp_server import tasks, wire
from tasks_app.mcp_server.caller import Context, caller_of, visit
from tasks_app.policy.capabilities import require
from tasks_app.queries.artifacts import get_artifact
from tasks_app.queries.tasks import TaskFilters, list_tasks
from tasks_app.tools.artifact_store import open_blob

Json = dict[str, Any]

PAGE_SIZE = 50
BLOB_MAX = 1_048_576

_ID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_TASK = re.compile(f"task://({_ID})")
_ARTIFACT = re.compile(f"artifact://({_ID})/({_ID})")


class TooLargeError(RuntimeFault):
    """An output is too large to be read as a resource; `path` is where REST serves it."""

    code = "payload_too_large"


async def list_resources(ctx: Context, params: PaginatedRequestParams | None) -> HandlerResult:
    """Answer `resources/list` with the newest tasks that the caller sees."""
    cursor = None if params is None else params.cursor
    try:
        return await visit(_page, caller_of(ctx).principal, cursor)
    except InvalidInputError as fault:
        raise MCPError(INVALID_PARAMS, fault.message) from None


async def list_templates(ctx: Context, params: PaginatedRequestParams | None) -> HandlerResult:
    """Answer `resources/templates/list`."""
    return {
        "resultType": "complete",
        "resourceTemplates": [
            {
                "uriTemplate": "task://{taskId}",
                "name": "task",
                "title": "State of a task",
                "mimeType": "application/json",
            },
            {
                "uriTemplate": "artifact://{taskId}/{artifactId}",
                "name": "artifact",
                "title": "Output of a task",
            },
        ],
    }


async def read_resource(ctx: Context, params: ReadResourceRequestParams) -> HandlerResult:
    """Answer `resources/read`; what is not there and what is not seen are one."""
    uri = str(params.uri)
    try:
        content = await visit(read, caller_of(ctx).principal, uri)
    except TooLargeError as fault:
        data = {"uri": uri, "reason": fault.code, **fault.fields}
        raise MCPError(INVALID_PARAMS, fault.message, data) from None
    except RuntimeFault:
        raise MCPError(INVALID_PARAMS, "There is no such resource.", {"uri": uri}) from None
    return {"resultType": "complete", "contents": [content]}


def read(principal: Principal, uri: str) -> Json:
    """Return the content of a resource. Raises: NotFoundError, NotAllowedError, TooLargeError."""
    if found := _TASK.fullmatch(uri):
        snapshot = tasks.find(principal, UUID(found[1]))
        told = TaskOut.of(snapshot).model_dump(mode="json", by_alias=True)
        text = json.dumps(told, ensure_ascii=False)
        return {"uri": uri, "mimeType": "application/json", "text": text}
    if found := _ARTIFACT.fullmatch(uri):
        return _artifact(principal, uri, UUID(found[1]), UUID(found[2]))
    raise NotFoundError("Not found.")


def _artifact(principal: Principal, uri: str, task_id: UUID, artifact_id: UUID) -> Json:
    require(principal, "artifacts:read")
    tasks.find(principal, task_id)
    row = get_artifact(principal, artifact_id)
    if row.task_id != task_id:
        raise NotFoundError("Not found.")
    if row.size_bytes > BLOB_MAX:
        path = wire.download_path(row)
        raise TooLargeError(f"Larger than {BLOB_MAX} bytes: download it.", path=path)
    with open_blob(row.tenant_id, row.sha256) as file:
        data = file.read()
    content: Json = {"uri": uri, "mimeType": row.media_type}
    if row.media_type.startswith("text/") or row.media_type == "application/json":
        return {**content, "text": data.decode("utf-8", "replace")}
    return {**content, "blob": base64.b64encode(data).decode("ascii")}


def _page(principal: Principal, cursor: str | None) -> Json:
    require(principal, "tasks:read")
    page = list_tasks(principal, TaskFilters(), cursor, PAGE_SIZE)
    resources = [
        {
            "uri": f"task://{row.id}",
            "name": str(row.id),
            "title": row.title,
            "description": f"{row.workflow}: {row.status}",
            "mimeType": "application/json",
        }
        for row in page.items
    ]
    told: Json = {"resultType": "complete", "resources": resources}
    return {**told, "nextCursor": page.next_cursor} if page.next_cursor else told
