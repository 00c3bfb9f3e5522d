"""Tasks over MCP, written by hand: what each field is, who may do what, and what repeats."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection

from runtime_project.local.processes import wait_until
from tasks_app.models import Task, WithdrawnRequest
from tests.mcp.site import TASKS, McpSite, Wire

pytestmark = pytest.mark.crash

KEY = "dev.perdure/idempotency-key"
BAD_PARAMS, MISSING_CAPABILITY, HEADER_MISMATCH = -32602, -32021, -32020
METHODS = ("tasks/get", "tasks/cancel", "tasks/update")


def until(client: Wire, task: str, *statuses: str) -> Any:
    seen: list[Any] = [None]

    def is_there() -> bool:
        seen[0] = client.ask("tasks/get", {"taskId": task})
        return seen[0]["status"] in statuses

    assert wait_until(is_there, seconds=45), seen[0]
    return seen[0]


def ask_about(client: Wire, method: str, task: str) -> Any:
    params: dict[str, Any] = {"taskId": task}
    if method == "tasks/update":
        params["inputResponses"] = {}
    return client.post(method, params)


def rows(site: McpSite) -> int:
    return int(Task.objects.for_tenant(site.tenant.id).count())


def test_task_is_made_at_one_server_and_read_at_the_other(site: McpSite) -> None:
    made = site.client().call("slow_compute", {"seconds": 0, "label": "x"})
    assert (made["resultType"], made["ttlMs"]) == ("task", None)
    assert UUID(made["taskId"]).version == 4
    done = until(site.client(web=1), made["taskId"], "completed")
    assert done["result"]["content"][0] == {"type": "text", "text": "computed x"}
    assert done["result"]["resultType"] == "complete"
    assert done["ttlMs"] >= 3_600_000
    assert done["_meta"]["dev.perdure/state"]["progress"] == 1.0


def test_open_task_has_no_time_to_live(site: McpSite) -> None:
    client = site.client()
    made = client.call("slow_compute", {"seconds": 600})
    told = client.ask("tasks/get", {"taskId": made["taskId"]})
    assert "ttlMs" in told
    assert told["ttlMs"] is None
    client.ask("tasks/cancel", {"taskId": made["taskId"]})
    assert until(client, made["taskId"], "cancelled")["ttlMs"] is not None
    again = client.ask("tasks/cancel", {"taskId": made["taskId"]})
    assert again.keys() == {"resultType", "_meta"}


def test_unknown_foreign_and_expired_tasks_are_answered_alike(site: McpSite) -> None:
    """Byte for byte, so that nobody learns whether an id was ever given."""
    mine = site.client()
    task = mine.call("slow_compute", {"seconds": 0})["taskId"]
    until(mine, task, "completed")
    other = site.client(site.key_of("submitter"))
    site.found_tenant()
    stranger = site.client()
    with connection.cursor() as cursor:
        expired = mine.call("slow_compute", {"seconds": 0})["taskId"]
        until(mine, expired, "completed")
        cursor.execute(
            "UPDATE tasks_app_task SET finished_at = finished_at - interval '2 h' WHERE id = %s",
            [expired],
        )
    for method in METHODS:
        answers = {
            ask_about(mine, method, str(uuid4())).content,
            ask_about(mine, method, "no-uuid").content,
            ask_about(mine, method, expired).content,
            ask_about(other, method, task).content,
            ask_about(stranger, method, task).content,
        }
        assert len(answers) == 1, answers
        assert mine.error(method, {"taskId": "x", "inputResponses": {}})["code"] == BAD_PARAMS


def test_task_goes_on_with_the_trace_of_its_call(site: McpSite) -> None:
    """The protocol's own keys of `_meta`; what is not valid counts as none."""
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    found = []
    for parent in (f"00-{trace_id}-00f067aa0ba902b7-01", "nonsense"):
        meta = {"traceparent": parent, "tracestate": "vendor=1"}
        made = site.client().call("slow_compute", {"seconds": 0}, meta=meta)
        task = Task.objects.for_tenant(site.tenant.id).get(pk=made["taskId"])
        found.append((task.traceparent[3:35] == trace_id, task.tracestate))
    assert found == [(True, "vendor=1"), (False, "")]


def test_twenty_calls_with_one_key_make_one_task(site: McpSite) -> None:
    key = {KEY: str(uuid4())}
    with ThreadPoolExecutor(20) as pool:
        calls = [
            pool.submit(site.client(web=n % 2).call, "slow_compute", {"seconds": 0}, meta=key)
            for n in range(20)
        ]
        ids = {call.result()["taskId"] for call in calls}
    assert len(ids) == 1
    assert rows(site) == 1
    params = {"name": "slow_compute", "arguments": {"seconds": 1}}
    refused = site.client().error("tools/call", params, meta=key)
    assert refused["data"] == {"reason": "idempotency_conflict"}
    assert rows(site) == 1


def test_reading_is_not_starting(site: McpSite) -> None:
    """No era lets a key that may only read start anything; the scope it lacks is named."""
    client = site.client(site.key_of("submitter", scopes=("tasks:read",)))
    answer = client.post("tools/call", {"name": "slow_compute", "arguments": {"seconds": 0}})
    assert answer.status_code == 403
    challenge = answer.headers["WWW-Authenticate"]
    assert 'error="insufficient_scope"' in challenge
    assert 'scope="tasks:create tasks:read"' in challenge
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "slow_compute", "arguments": {"seconds": 0}},
    }
    for version in ("2025-11-25", "2025-06-18", None):
        assert client.legacy(body, version).status_code == 403
    assert rows(site) == 0
    assert "slow_compute" not in {tool["name"] for tool in client.ask("tools/list")["tools"]}


def test_nobody_without_a_credential(site: McpSite) -> None:
    answer = site.client("").post("tools/list")
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer ")
    assert site.client("rtk_test_wrong").post("tools/list").status_code == 401


def test_client_without_the_extension_waits_for_the_result(site: McpSite) -> None:
    client = Wire(site.url(), site.key, extension=False)
    told = client.call("slow_compute", {"seconds": 0, "label": "y"})
    assert told["content"][0]["text"] == "computed y"
    assert "taskId" not in told
    for method in METHODS:
        error = client.error(method, {"taskId": str(uuid4()), "inputResponses": {}})
        assert error["code"] == MISSING_CAPABILITY
        assert error["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}


def test_name_header_must_be_that_of_the_task(site: McpSite) -> None:
    client = site.client()
    task = client.call("slow_compute", {"seconds": 0})["taskId"]
    error = client.error("tasks/get", {"taskId": task}, headers={"Mcp-Name": str(uuid4())})
    assert error["code"] == HEADER_MISMATCH


def test_bad_arguments_start_nothing(site: McpSite) -> None:
    told = site.client().call("slow_compute", {"seconds": "many"})
    assert told["isError"]
    assert told["structuredContent"]["error"] == "invalid_input"
    assert rows(site) == 0
    unknown = site.client().error("tools/call", {"name": "no.such", "arguments": {}})
    assert unknown["code"] == BAD_PARAMS


def test_question_is_asked_and_answered(site: McpSite) -> None:
    client = site.client()
    task = client.call("confirm_delete", {"filename": "a.txt"})["taskId"]
    asked = until(client, task, "input_required")
    [(key, request)] = asked["inputRequests"].items()
    assert request["params"]["requestedSchema"]["properties"] == {"confirm": {"type": "boolean"}}
    wrong = {key: {"action": "accept", "content": {"confirm": "maybe"}}}
    error = client.error("tasks/update", {"taskId": task, "inputResponses": wrong})
    assert list(error["data"]["errors"]) == [key]
    assert until(client, task, "input_required")["inputRequests"].keys() == {key}
    answers = {
        key: {"action": "accept", "content": {"confirm": True, "extra": 1}},
        "inp_0": {"action": "accept", "content": {}},
    }
    client.ask("tasks/update", {"taskId": task, "inputResponses": answers})
    done = until(client, task, "completed")
    assert done["result"]["content"][0]["text"] == "deleted a.txt"


def test_request_that_nobody_could_see_is_not_offered_again(site: McpSite) -> None:
    """It stays open for people on pages; the client sees a task that works."""
    client = site.client()
    task = client.call("confirm_delete")["taskId"]
    [key] = until(client, task, "input_required")["inputRequests"]
    for _ in range(2):
        answers = {key: {"action": "cancel"}}
        client.ask("tasks/update", {"taskId": task, "inputResponses": answers})
    assert client.ask("tasks/get", {"taskId": task})["status"] == "working"
    withdrawn = WithdrawnRequest.objects.for_tenant(site.tenant.id).filter(task_id=task)
    assert list(withdrawn.values_list("key", flat=True)) == [key]
    row = Task.objects.for_tenant(site.tenant.id).get(pk=task)
    assert row.status == "input_required"


def test_client_that_cannot_ask_is_asked_nothing(site: McpSite) -> None:
    client = site.client()
    task = client.call("confirm_delete")["taskId"]
    until(client, task, "input_required")
    told = client.ask("tasks/get", {"taskId": task}, capabilities={"extensions": {TASKS: {}}})
    assert told["status"] == "working"
    assert "inputRequests" not in told


def test_every_server_is_started_anew_and_the_task_goes_on(site: McpSite) -> None:
    client = site.client()
    task = client.call("confirm_delete", {"filename": "b.txt"})["taskId"]
    [key] = until(client, task, "input_required")["inputRequests"]
    site.restart_webs()
    answers = {key: {"action": "accept", "content": {"confirm": True}}}
    client.ask("tasks/update", {"taskId": task, "inputResponses": answers})
    assert until(site.client(web=1), task, "completed")["result"]["isError"] is False


def test_methods_that_are_gone(site: McpSite) -> None:
    for method in ("tasks/result", "tasks/list"):
        answer = site.client().post(method, {"taskId": str(uuid4())})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, -32601)


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_only_post_is_taken(site: McpSite, method: str) -> None:
    assert site.client().raw(method).status_code == 405


def test_too_large_and_odd_bodies(site: McpSite) -> None:
    client = site.client()
    assert client.raw("POST", b" " * 1_048_577).status_code == 413
    for body in (b"{", b'{"a": 1, "a": 2}', b"[" * 40 + b"]" * 40, b'{"a": NaN}'):
        answer = client.raw("POST", body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32700)


def test_worker_is_killed_while_the_task_is_polled(site: McpSite) -> None:
    """Another worker finishes the same task; both servers tell of it."""
    client, other = site.client(), site.client(web=1)
    site.sync.hold("claim.before")
    task = client.call("slow_compute", {"seconds": 0, "label": "twice"})["taskId"]
    site.sync.hold("step.before", UUID(task))
    site.sync.release("claim.before")
    held = site.sync.wait_hit("step.before", UUID(task))
    assert other.ask("tasks/get", {"taskId": task})["status"] == "working"
    worker = site.fleet.owner_of(held.pid)
    worker.kill_group()
    site.fleet.replace(worker)
    site.sync.release("step.before", UUID(task))
    for one in (other, client):
        assert until(one, task, "completed")["result"]["content"][0]["text"] == "computed twice"
    assert rows(site) == 1
