"""The official Python client: over HTTP with a Tasks extension, over stdio, and as an older client."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, Request, RequestParams, Result
from pydantic import ConfigDict, Field
from typing_extensions import override

from tests import factories
from tests.mcp.site import TASKS, McpSite

pytestmark = pytest.mark.crash

T = TypeVar("T")
PATIENCE_SECONDS = 60.0
TERMINAL = {"completed", "failed", "cancelled"}


class CreatedTask(Result):
    """The answer to a call that became a task."""

    model_config = ConfigDict(extra="allow")

    result_type: Literal["task"] = Field("task", alias="resultType")
    task_id: str = Field(alias="taskId")


class TaskParams(RequestParams):
    task_id: str = Field(alias="taskId")


class UpdateParams(TaskParams):
    input_responses: dict[str, Any] = Field(alias="inputResponses")


class GetTask(Request[TaskParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams
    name_param = "taskId"


class UpdateTask(Request[UpdateParams, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"
    params: UpdateParams
    name_param = "taskId"


class CancelTask(Request[TaskParams, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: TaskParams
    name_param = "taskId"


class AnyResult(Result):
    model_config = ConfigDict(extra="allow")


class TasksExtension(ClientExtension):
    """Takes tasks as results and polls them to their end; answers with what it was given."""

    identifier = TASKS

    def __init__(self, answers: dict[str, Any] | None = None) -> None:
        self.answers = answers or {}
        self.tasks: list[str] = []

    @override
    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=CreatedTask, resolve=self.resolve)]

    async def resolve(self, created: CreatedTask, ctx: ClaimContext) -> CallToolResult:
        self.tasks.append(created.task_id)
        return await follow(ctx.session, created.task_id, self.answers)


async def get(session: Any, task: str) -> dict[str, Any]:
    request = GetTask(params=TaskParams(taskId=task))
    answer: AnyResult = await session.send_request(request, AnyResult)
    return answer.model_dump(by_alias=True)


async def follow(session: Any, task: str, answers: dict[str, Any]) -> CallToolResult:
    while (told := await get(session, task))["status"] not in TERMINAL:
        if told["status"] == "input_required":
            responses = {
                key: {"action": "accept", "content": answers} for key in told["inputRequests"]
            }
            params = UpdateParams(taskId=task, inputResponses=responses)
            await session.send_request(UpdateTask(params=params), AnyResult)
        await asyncio.sleep(0.05)
    return CallToolResult.model_validate(told["result"])


def use(
    site: McpSite,
    act: Callable[[Client], Awaitable[T]],
    *extensions: ClientExtension,
    mode: str = "auto",
    web: int = 0,
) -> T:
    async def used() -> T:
        headers = {"Authorization": f"Bearer {site.key}"}
        async with httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http:
            transport = streamable_http_client(site.url(web), http_client=http)
            async with asyncio.timeout(PATIENCE_SECONDS):
                async with Client(transport, mode=mode, extensions=list(extensions)) as client:
                    return await act(client)

    return asyncio.run(used())


def text_of(result: Any) -> str:
    return str(result.content[0].text)


async def refuse(context: Any, params: Any) -> Any:
    raise AssertionError("nobody is asked outside of tasks")


def test_start_poll_answer(site: McpSite) -> None:
    extension = TasksExtension({"confirm": True})

    async def act(client: Client) -> str:
        return text_of(await client.call_tool("confirm_delete", {"filename": "p.txt"}))

    # The client says that it can ask its person by giving a way to do so.
    async def used() -> str:
        headers = {"Authorization": f"Bearer {site.key}"}
        async with httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http:
            transport = streamable_http_client(site.url(), http_client=http)
            client = Client(transport, extensions=[extension], elicitation_callback=refuse)
            async with asyncio.timeout(PATIENCE_SECONDS), client:
                return await act(client)

    assert asyncio.run(used()) == "deleted p.txt"
    assert len(extension.tasks) == 1


def test_task_is_followed_by_its_id_after_every_server_was_started_anew(site: McpSite) -> None:
    async def start(client: Client) -> str:
        created: Any = await client.session.call_tool(
            "slow_compute", {"seconds": 1, "label": "again"}, allow_claimed=True
        )
        return str(created.task_id)

    task = use(site, start, TasksExtension())
    site.restart_webs()

    async def resume(client: Client) -> str:
        return text_of(await follow(client.session, task, {}))

    assert use(site, resume, TasksExtension(), web=1) == "computed again"


def test_cancel(site: McpSite) -> None:
    async def act(client: Client) -> str:
        created: Any = await client.session.call_tool(
            "slow_compute", {"seconds": 600}, allow_claimed=True
        )
        params = TaskParams(taskId=created.task_id)
        await client.session.send_request(CancelTask(params=params), AnyResult)
        while (told := await get(client.session, created.task_id))["status"] not in TERMINAL:
            await asyncio.sleep(0.05)
        return str(told["status"])

    assert use(site, act, TasksExtension()) == "cancelled"


def test_client_without_the_extension(site: McpSite) -> None:
    async def act(client: Client) -> str:
        return text_of(await client.call_tool("slow_compute", {"seconds": 0, "label": "plain"}))

    assert use(site, act) == "computed plain"


def test_older_client(site: McpSite) -> None:
    """It shakes hands as of 2025-11-25 and waits for the result."""

    async def act(client: Client) -> tuple[str, str]:
        result = await client.call_tool("slow_compute", {"seconds": 0, "label": "old"})
        return str(client.session.protocol_version), text_of(result)

    version, text = use(site, act, mode="legacy")
    assert (version, text) == ("2025-11-25", "computed old")


def test_stdio(site: McpSite) -> None:
    """The command stands for a person; the client starts it by itself."""
    user = factories.make_user(username=f"stdio-{site.tenant.slug}")
    factories.make_member(site.tenant, ("submitter",), user)
    root = Path(__file__).resolve().parents[2]
    command = StdioServerParameters(
        command=sys.executable,
        args=[str(root / "manage.py"), "mcp_stdio", "--user", user.username],
        env=dict(site.fleet.env),
        cwd=root,
    )

    async def used() -> str:
        async with asyncio.timeout(PATIENCE_SECONDS):
            async with Client(command, extensions=[TasksExtension()]) as client:
                result = await client.call_tool("slow_compute", {"seconds": 0, "label": "pipe"})
                return text_of(result)

    assert asyncio.run(used()) == "computed pipe"
