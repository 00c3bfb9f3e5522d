"""Clients and servers that go away while a run is at work (S22, S24 of the runs contract)."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from langgraph_sdk.client import LangGraphClient

from runtime_project.local.processes import wait_until
from tasks_app.models import Run
from tests.clients.site import ASSISTANT, RunSite, read, run_id, say, script
from tests.support.streams import EventReader, listen

pytestmark = [pytest.mark.crash]

PATIENCE = 30.0


@contextmanager
def creating(site: RunSite, **more: Any) -> Iterator[tuple[EventReader, dict[str, Any]]]:
    """Make a run by a stream and leave it open; held before its first step."""
    site.sync.hold("step.before")
    body = {"assistant_id": ASSISTANT, "input": script(say("one")), **more}
    headers = {"X-Api-Key": site.key, "Content-Type": "application/json"}
    with (
        httpx.Client(timeout=20, headers=headers, trust_env=False) as client,
        client.stream("POST", f"{site.url}/runs/stream", content=json.dumps(body)) as response,
    ):
        assert response.status_code == 200, response.read()
        events = EventReader(response)
        run = events.next("metadata").data
        site.sync.wait_hit("step.before", run_id(run))
        yield events, run


def row(site: RunSite, run: dict[str, Any]) -> Run:
    found: Run = Run.objects.for_tenant(site.tenant.id).get(pk=run["run_id"])
    return found


def deadline_is_set(site: RunSite, run: dict[str, Any]) -> bool:
    return row(site, run).disconnect_deadline is not None


def end_of(site: RunSite, run: dict[str, Any]) -> dict[str, Any]:
    async def use(client: LangGraphClient) -> Any:
        await client.runs.join(run["thread_id"], run["run_id"])
        return await client.runs.get(run["thread_id"], run["run_id"])

    found: dict[str, Any] = site.run(use)
    return found


def stream_of(site: RunSite, run: dict[str, Any]) -> str:
    return f"{site.url}/threads/{run['thread_id']}/runs/{run['run_id']}/stream"


def test_s22_a_run_ends_when_its_creator_does_not_come_back(site: RunSite) -> None:
    """on_disconnect=cancel: the time runs out, and the run is cancelled for that reason."""
    with creating(site, on_disconnect="cancel") as (_, run):
        pass
    assert wait_until(lambda: row(site, run).cancel_action != "", seconds=PATIENCE)
    site.sync.release("step.before")
    found = end_of(site, run)
    assert (found["status"], found["stop_reason"]) == ("interrupted", "client_disconnected")


def test_s22_a_creator_who_comes_back_keeps_the_run(site: RunSite) -> None:
    """Any stream of the same person within the time lets it go on."""
    with creating(site, on_disconnect="cancel") as (_, run):
        pass
    assert wait_until(lambda: deadline_is_set(site, run), seconds=PATIENCE)
    with listen(stream_of(site, run), headers={"X-Api-Key": site.key}) as events:
        events.next("metadata")
        assert not deadline_is_set(site, run)
        site.sync.release("step.before")
        assert events.until("end")[-1].data["status"] == "success"


def test_s22_who_only_looks_on_ends_nothing(site: RunSite) -> None:
    """An observer who leaves, and a creator who did not ask for it, change nothing."""
    with creating(site) as (_, run):
        pass
    with listen(stream_of(site, run), headers={"X-Api-Key": site.key}) as events:
        events.next("metadata")
    site.sync.release("step.before")
    assert end_of(site, run)["status"] == "success"
    assert row(site, run).cancel_action == ""


@pytest.mark.filterwarnings("ignore:Request failed, attempting reconnect")
def test_s24_restart_of_the_web_process(site: RunSite) -> None:
    """S24: stream and wait of the real client survive it; each durable frame comes once."""
    words = ["one", "two", "three"]
    # Each step's commit is its own, so the stream has told of one when the server stops.
    told = script(*(say(word, impure=True) for word in words))
    site.sync.hold("step.before", at=[2])
    found: dict[str, Any] = {}

    async def stream(client: LangGraphClient) -> None:
        found["parts"] = await read(
            client.runs.stream(
                None, ASSISTANT, input=told, stream_mode=["updates"],
                on_disconnect="cancel",
            )
        )  # fmt: skip

    async def wait(client: LangGraphClient) -> None:
        found["values"] = await client.runs.wait(
            None, ASSISTANT, input=told, on_disconnect="cancel"
        )

    clients = [threading.Thread(target=site.run, args=(use,)) for use in (stream, wait)]
    for client in clients:
        client.start()
    rows = Run.objects.for_tenant(site.tenant.id)
    assert wait_until(lambda: rows.count() == 2, seconds=PATIENCE)
    for task_id in rows.values_list("pk", flat=True):
        site.sync.wait_hit("step.before", task_id, count=2)
    site.restart_web()
    site.sync.release("step.before")
    for client in clients:
        client.join(PATIENCE)
    updates = [part.data for part in found["parts"] if part.event == "updates"]
    assert [one["messages"][0]["content"] for data in updates for one in data.values()] == words
    assert found["parts"][-1].event == "end"
    assert [one["content"] for one in found["values"]["messages"]] == words
