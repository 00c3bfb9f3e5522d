"""What surrounds tasks: control tools, resources, streams, approvals, leaving and older clients."""

import asyncio
import json
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from runtime_project.local.processes import wait_until
from tasks_app.api.visits import short_visit
from tasks_app.models import Approval, Task
from tests.mcp.site import McpSite, Wire
from tests.mcp.test_tasks import rows, until

pytestmark = pytest.mark.crash


def newest(site: McpSite) -> Task:
    found = Task.objects.for_tenant(site.tenant.id).order_by("-created_at").first()
    assert found is not None
    return found


def status_of(site: McpSite, task: str) -> str:
    return str(Task.objects.for_tenant(site.tenant.id).get(pk=task).status)


# --- control tools --------------------------------------------------------------------------


def test_handle_leads_to_the_result(site: McpSite) -> None:
    """A client without the extension whose task asks somebody gets a handle, and steers by tools."""
    client = Wire(site.url(), site.key, extension=False)
    told = client.call("confirm_delete", {"filename": "c.txt"})
    handle = told["structuredContent"]
    assert handle["statusTool"] == "task_status"
    seen = client.call("task_status", {"taskId": handle["taskId"]})["structuredContent"]
    assert seen["status"] == "input_required"
    steer = {
        "taskId": handle["taskId"],
        "type": "provide_input",
        "payload": {"answer": {"confirm": False}},
        "expectedVersion": seen["stateVersion"] + 1,
        "reason": "asked in the chat",
    }
    conflict = client.call("task_steer", steer)
    assert conflict["isError"]
    facts = conflict["structuredContent"]
    assert (facts["error"], facts["currentVersion"]) == ("version_conflict", seen["stateVersion"])
    given = client.call("task_steer", {**steer, "expectedVersion": seen["stateVersion"]})
    assert given["structuredContent"]["stateVersion"] > seen["stateVersion"]
    done = client.call("task_status", {"taskId": handle["taskId"], "waitSeconds": 25})
    assert done["structuredContent"]["result"] == "kept c.txt"
    listed = client.call("task_list", {"status": "completed"})["structuredContent"]
    assert [item["taskId"] for item in listed["items"]] == [handle["taskId"]]


def test_control_tools_know_no_foreign_task(site: McpSite) -> None:
    client = site.client()
    task = client.call("slow_compute", {"seconds": 0})["taskId"]
    other = site.client(site.key_of("submitter"))
    for tool, more in (
        ("task_status", {}),
        ("task_steer", {"type": "pause", "expectedVersion": 1, "reason": "x"}),
    ):
        answers = [
            {**other.call(tool, {"taskId": one, **more}), "_meta": None}
            for one in (task, str(uuid4()))
        ]
        assert answers[0] == answers[1]
        assert answers[0]["structuredContent"]["error"] == "not_found"


# --- resources ------------------------------------------------------------------------------


def test_task_is_a_resource_as_rest_tells_it(site: McpSite) -> None:
    client = site.client()
    task = client.call("slow_compute", {"seconds": 0})["taskId"]
    until(client, task, "completed")
    [content] = client.ask("resources/read", {"uri": f"task://{task}"})["contents"]
    rest = httpx.get(
        f"{site.webs[0].url}/runtime/tasks/{task}", headers=client.headers, trust_env=False
    ).json()
    assert json.loads(content["text"]) == rest
    listed = client.ask("resources/list")["resources"]
    assert [one["uri"] for one in listed] == [f"task://{task}"]
    other = site.client(site.key_of("submitter"))
    for uri in (f"task://{task}", f"task://{uuid4()}", "task://x", f"artifact://{task}/{uuid4()}"):
        error = other.error("resources/read", {"uri": uri})
        assert (error["code"], error["data"]) == (-32602, {"uri": uri})


# --- streams --------------------------------------------------------------------------------


class Listening:
    """A `subscriptions/listen` stream, read frame by frame."""

    def __init__(self, client: Wire, **wanted: Any) -> None:
        self._request = client.request("subscriptions/listen", {"notifications": wanted})
        self._frames: Any = None

    def __enter__(self) -> "Listening":
        self._http = httpx.Client(trust_env=False, timeout=45)
        self._stream = self._http.stream("POST", **self._request)
        self._lines = self._stream.__enter__().iter_lines()
        return self

    def __exit__(self, *facts: Any) -> None:
        self._stream.__exit__(*facts)
        self._http.close()

    def next(self) -> Any:
        """Return the next message."""
        for line in self._lines:
            if line.startswith("data: "):
                return json.loads(line[6:])
        raise AssertionError("the stream has ended")

    def end(self) -> tuple[list[str], Any]:
        """Return the statuses that are told until the listen result, and that result."""
        told = []
        while "result" not in (frame := self.next()):
            told.append(frame["params"]["status"])
        return told, frame["result"]


def test_stream_tells_every_change_until_all_tasks_have_ended(site: McpSite) -> None:
    client = site.client()
    task = client.call("confirm_delete")["taskId"]
    [key] = until(client, task, "input_required")["inputRequests"]
    with Listening(client, taskIds=[task, str(uuid4()), "x"]) as stream:
        first = stream.next()
        assert first["method"] == "notifications/subscriptions/acknowledged"
        assert first["params"]["notifications"] == {"taskIds": [task]}
        told = stream.next()["params"]
        assert (told["taskId"], told["status"], told["ttlMs"]) == (task, "input_required", None)
        assert told["_meta"]["io.modelcontextprotocol/subscriptionId"] == 1
        answers = {key: {"action": "accept", "content": {"confirm": True}}}
        client.ask("tasks/update", {"taskId": task, "inputResponses": answers})
        seen, result = stream.end()
    assert seen[-1] == "completed"
    assert result["_meta"]["io.modelcontextprotocol/subscriptionId"] == 1


def test_stream_ends_when_the_server_stops(site: McpSite) -> None:
    client = site.client()
    task = client.call("slow_compute", {"seconds": 600})["taskId"]
    with Listening(client, taskIds=[task]) as stream:
        stream.next()
        assert stream.next()["params"]["status"] == "working"
        site.restart_webs()
        # A worker may take the task meanwhile, which is told.
        assert set(stream.end()[0]) <= {"working"}
    assert client.ask("tasks/get", {"taskId": task})["status"] == "working"


def test_stream_of_a_hundred_and_one_tasks_is_refused(site: McpSite) -> None:
    wanted = {"taskIds": [str(uuid4()) for _ in range(101)]}
    error = site.client().error("subscriptions/listen", {"notifications": wanted})
    assert error["code"] == -32602


# --- approvals ------------------------------------------------------------------------------


@pytest.mark.parametrize("workflow", ["publish_by_page", "publish_by_form"])
def test_approval_is_offered_to_who_may_decide(site: McpSite, workflow: str) -> None:
    """Not to the caller whose task it is; on the page or as a form, as the workflow says."""
    client = site.client()
    task = client.call(workflow)["taskId"]
    assert wait_until(lambda: status_of(site, task) == "input_required", seconds=45)
    assert client.ask("tasks/get", {"taskId": task})["status"] == "working"
    approver = site.client(site.key_of("approver"))
    [(key, request)] = approver.ask("tasks/get", {"taskId": task})["inputRequests"].items()
    approval = Approval.objects.for_tenant(site.tenant.id).get(task_id=task)
    if workflow == "publish_by_page":
        assert request["params"]["url"].endswith(f"/approvals/{approval.id}/")
        content: dict[str, Any] = {}
    else:
        digest = request["params"]["requestedSchema"]["properties"]["digest"]["enum"]
        assert digest == [approval.args_sha256]
        wrong = {key: {"action": "accept", "content": {"approve": True, "digest": "0" * 64}}}
        approver.error("tasks/update", {"taskId": task, "inputResponses": wrong})
        content = {"approve": True, "digest": approval.args_sha256}
    answers = {key: {"action": "accept", "content": content}}
    for who in (client, approver):
        who.ask("tasks/update", {"taskId": task, "inputResponses": answers})
        if who is client or workflow == "publish_by_page":
            assert status_of(site, task) == "input_required"
    approval.refresh_from_db()
    if workflow == "publish_by_form":
        assert until(client, task, "completed")["result"]["content"][0]["text"] == "published"
        assert approval.status == "approved"
    else:
        assert approval.status == "pending"


# --- leaving, and older clients -------------------------------------------------------------


def leave(site: McpSite, request: dict[str, Any]) -> str:
    """Hang up while the server waits for the result of a task that sleeps; return the task."""

    async def hang_up() -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=45) as http:
            sent = asyncio.ensure_future(http.post(**request))
            while not await asyncio.to_thread(short_visit(rows), site):
                await asyncio.sleep(0.05)
            sent.cancel()
            await asyncio.gather(sent, return_exceptions=True)

    asyncio.run(hang_up())
    return str(newest(site).id)


def test_who_hangs_up_has_cancelled(site: McpSite) -> None:
    client = Wire(site.url(), site.key, extension=False)
    params = {"name": "slow_compute", "arguments": {"seconds": 600}}
    task = leave(site, client.request("tools/call", params))
    assert wait_until(lambda: status_of(site, task) == "cancelled", seconds=45)


def test_older_client_that_hangs_up_has_not(site: McpSite) -> None:
    client = site.client()
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "slow_compute", "arguments": {"seconds": 600}},
    }
    task = leave(site, client.legacy_request(body, "2025-11-25"))
    # Whatever follows in order has followed when the next request is answered.
    assert client.ask("tasks/get", {"taskId": task})["status"] == "working"
    row = Task.objects.for_tenant(site.tenant.id).get(pk=UUID(task))
    assert (row.status, row.cancel_requested_at) == ("queued", None)


def test_older_client_gets_the_result(site: McpSite) -> None:
    body = {
        "jsonrpc": "2.0",
        "id": 7,
        "method": "tools/call",
        "params": {"name": "slow_compute", "arguments": {"seconds": 0, "label": "old"}},
    }
    answer = site.client().legacy(body, "2025-11-25")
    text = answer.text
    told = (
        json.loads(text[text.index("data: ") + 6 :].splitlines()[0])
        if "data: " in text
        else (answer.json())
    )
    assert told["result"]["content"][0]["text"] == "computed old"
    refused = site.client().legacy({**body, "method": "tasks/get", "params": {"taskId": "x"}}, None)
    assert "-32021" in refused.text or "-32601" in refused.text
