"""The MCP door counts requests as the other doors do (S127)."""

import asyncio
from typing import Any

import httpx
import pytest

from tasks_app.mcp_server.asgi import McpDoor
from tests import factories
from tests.mcp.site import Wire

pytestmark = pytest.mark.django_db(transaction=True)


def answers(requests: list[dict[str, Any]]) -> list[httpx.Response]:
    door = McpDoor()

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=door)
        async with door.running(), httpx.AsyncClient(transport=transport) as client:
            return [await client.post(**request) for request in requests]

    return asyncio.run(ask())


def test_who_asks_too_often_is_told_when_to_come_again(settings: Any) -> None:
    """Reading does not use up starting."""
    limits = {"read": 3, "create": 1}
    settings.RUNTIME = {**settings.RUNTIME, "throttle": True, "requests_per_minute": limits}
    tenant = factories.make_tenant()
    _, key = factories.make_api_key(tenant, factories.make_member(tenant, ["submitter"]))
    wire = Wire("http://localhost:8000/mcp", str(key))
    call = wire.request("tools/call", {"name": "scripted", "arguments": {"script": []}})
    told = answers([*[wire.request("tools/list")] * 4, call, call])
    assert [answer.status_code for answer in told] == [200, 200, 200, 429, 200, 429]
    assert told[0].headers["RateLimit"] == '"read";r=2'
    refused = told[3]
    assert refused.json()["code"] == "too_many_requests"
    assert int(refused.headers["Retry-After"]) >= 1
