"""Streams as the real client reads them (acceptance A3, A4, A8 of the runs contract)."""

import asyncio
import random
from typing import Any

import pytest
from langgraph_sdk.client import LangGraphClient

from tests.clients.site import ASSISTANT, RunSite, ids, read, run_id, say, script
from tests.support.proxy import CuttingProxy
from tests.support.streams import listen

MODES: Any = ["values", "updates", "custom"]


async def started(client: LangGraphClient, *operations: dict[str, Any], **more: Any) -> Any:
    thread = await client.threads.create()
    return await client.runs.create(
        thread["thread_id"], ASSISTANT, input=script(*operations), **more
    )


def begun(site: RunSite, *operations: dict[str, Any], **more: Any) -> Any:
    return site.run(lambda client: started(client, *operations, **more))


def finished(site: RunSite, *operations: dict[str, Any], **more: Any) -> Any:
    async def use(client: LangGraphClient) -> Any:
        run = await started(client, *operations, **more)
        await client.runs.join(run["thread_id"], run["run_id"])
        return run

    return site.run(use)


def address(site: RunSite, run: Any, query: str = "") -> str:
    return f"{site.url}/threads/{run['thread_id']}/runs/{run['run_id']}/stream{query}"


def test_a3_stream_tells_everything_in_order(site: RunSite) -> None:
    """Metadata first, ids ascending, end last; three modes beside each other."""

    async def use(client: LangGraphClient) -> list[Any]:
        thread = await client.threads.create()
        return await read(
            client.runs.stream(
                thread["thread_id"],
                ASSISTANT,
                input=script(
                    say("one"), {"op": "set", "values": {"colour": "red"}}, say("two"),
                    messages=[{"type": "human", "content": "hello"}],
                ),
                stream_mode=MODES,
            )
        )  # fmt: skip

    parts = site.run(use)
    names = [part.event for part in parts]
    assert names[0] == "metadata"
    assert names[-1] == "end"
    assert parts[-1].data["status"] == "success"
    assert {"values", "updates", "custom"} <= set(names)
    assert ids(parts) == sorted(ids(parts))
    last = [part for part in parts if part.event == "values"][-1].data
    assert [message["content"] for message in last["messages"]] == ["hello", "one", "two"]
    assert last["colour"] == "red"
    assert last["result"] is not None


def test_a3_parts_of_the_second_version_parse(site: RunSite) -> None:
    """The client's own reading of names and interrupts."""

    async def use(client: LangGraphClient) -> list[Any]:
        thread = await client.threads.create()
        return await read(
            client.runs.stream(
                thread["thread_id"], ASSISTANT, input=script(say("one")),
                stream_mode=MODES, version="v2",
            )
        )  # fmt: skip

    parts = site.run(use)
    assert {part["type"] for part in parts} >= {"metadata", "values", "updates"}
    assert all(part["ns"] == [] for part in parts)


def test_a3_frames_of_a_child_carry_its_name(site: RunSite) -> None:
    """stream_subgraphs: what a started task says comes beside the run's own, under another name."""
    child = {"op": "task", "script": [say("from the child")]}

    async def use(client: LangGraphClient) -> tuple[list[Any], list[Any]]:
        asked: Any = {"input": script(child, say("from the run")), "stream_mode": ["values"]}
        with_child = await read(client.runs.stream(None, ASSISTANT, stream_subgraphs=True, **asked))
        return with_child, await read(client.runs.stream(None, ASSISTANT, **asked))

    with_child, without = site.run(use)
    named = [part for part in with_child if "|subagent:" in part.event]
    assert named
    assert named[0].event.startswith("values|subagent:")
    assert named[-1].data["messages"][0]["content"] == "from the child"
    assert with_child[-1].event == "end"
    assert {part.event for part in without} == {"metadata", "values", "end"}


def test_a4_a_cut_connection_loses_and_doubles_nothing(site: RunSite) -> None:
    """The client comes back by itself and sees each durable frame once."""
    words = [str(number) for number in range(8)]

    async def use(client: LangGraphClient) -> list[Any]:
        thread = await client.threads.create()
        return await read(
            client.runs.stream(
                thread["thread_id"], ASSISTANT, input=script(*map(say, words)),
                stream_mode=["updates"],
            )
        )  # fmt: skip

    with CuttingProxy(site.web.url) as proxy:
        proxy.cut_after = {b"event: updates": 3}
        parts = site.run(use, url=f"{proxy.url}/api")
        assert proxy.cuts == 1
    updates = [part for part in parts if part.event == "updates"]
    said = [one["messages"][0]["content"] for part in updates for one in part.data.values()]
    assert said == words
    assert parts[-1].event == "end"


@pytest.mark.slow
def test_a4_a_cut_join_goes_on_in_its_own_modes(site: RunSite) -> None:
    """Clients that come back send no query; the place that they come back to names the modes."""
    words = [str(number) for number in range(8)]
    run = finished(site, *map(say, words), stream_mode=["values"])

    async def use(client: LangGraphClient) -> list[Any]:
        return await read(
            client.runs.join_stream(
                run["thread_id"], run["run_id"], stream_mode=["updates"], last_event_id="0"
            )
        )

    with CuttingProxy(site.web.url) as proxy:
        proxy.cut_after = {b"event: updates": 3}
        parts = site.run(use, url=f"{proxy.url}/api")
        assert proxy.cuts == 1
    updates = [part.data for part in parts if part.event == "updates"]
    assert [one["messages"][0]["content"] for data in updates for one in data.values()] == words
    assert {part.event for part in parts} == {"metadata", "updates", "end"}


@pytest.mark.slow
def test_a4_f3_heartbeats_hold_an_idle_connection(site: RunSite) -> None:
    """A proxy that cuts idle links does not cut one whose run is silent for longer."""

    async def use(client: LangGraphClient) -> tuple[list[Any], Any]:
        silent = script(say("one"), {"op": "sleep", "s": 3}, say("two"))
        stream: Any = client.runs.stream(None, ASSISTANT, input=silent)
        wait: Any = client.runs.wait(None, ASSISTANT, input=silent)
        return await asyncio.gather(read(stream), wait)

    with CuttingProxy(site.web.url, idle_seconds=1.5) as proxy:
        parts, values = site.run(use, url=f"{proxy.url}/api")
        assert proxy.cuts == 0
    assert [part.event for part in parts].count("metadata") == 1
    assert [one["content"] for one in values["messages"]] == ["one", "two"]


def test_a8_replay_and_join_of_a_finished_run(site: RunSite) -> None:
    """From the first event when asked to; else the values and the end at once."""
    run = finished(site, say("one"), say("two"))

    async def use(client: LangGraphClient) -> None:
        join: Any = client.runs.join_stream
        place = (run["thread_id"], run["run_id"])
        replayed = await read(join(*place, stream_mode=["updates"], last_event_id="0"))
        said = [part.event for part in replayed]
        assert said == ["metadata", "updates", "updates", "end"]
        at_once = await read(join(*place, stream_mode=["values"]))
        assert [part.event for part in at_once] == ["metadata", "values", "end"]
        nothing_new = await read(join(*place, last_event_id=at_once[-1].id))
        assert [part.event for part in nothing_new] == ["metadata", "end"]
        beyond = await read(join(*place, last_event_id="100000"))
        assert [part.event for part in beyond] == ["metadata", "gap", "values", "end"]

    site.run(use)


def test_s13_what_happens_during_the_snapshot_is_told_once(site: RunSite) -> None:
    """S13: three events between the snapshot and the first look come once each, in order."""
    site.sync.hold("step.before")
    run = begun(site, say("one"), say("two"), say("three"))
    site.sync.wait_hit("step.before", run_id(run))
    site.sync.hold("stream.after_snapshot", run_id(run))
    with listen(
        address(site, run, "?stream_mode=updates"), headers={"X-Api-Key": site.key}
    ) as events:
        assert events.next().type == "metadata"
        site.sync.wait_hit("stream.after_snapshot", run_id(run))
        site.sync.release("step.before")

        async def join(client: LangGraphClient) -> None:
            await client.runs.join(run["thread_id"], run["run_id"])

        site.run(join)
        site.sync.release("stream.after_snapshot", run_id(run))
        parts = events.until("end")
    updates = [part for part in parts if part.type == "updates"]
    said = [one["messages"][0]["content"] for part in updates for one in part.data.values()]
    assert said == ["one", "two", "three"]
    numbers = [int(part.id) for part in parts if part.id]
    assert numbers == sorted(set(numbers))


@pytest.mark.slow
def test_f5_no_id_twice_and_no_event_lost_wherever_one_comes_back(site: RunSite) -> None:
    """F5: a burst of events; from each of 20 ids on, exactly the rest comes."""
    words = [str(number) for number in range(300)]
    run = finished(site, *map(say, words))
    headers = {"X-Api-Key": site.key}
    with listen(address(site, run, "?stream_mode=updates"),
                headers={**headers, "Last-Event-ID": "0"}) as events:  # fmt: skip
        whole = [part for part in events.until("end") if part.id]
    numbers = [int(part.id) for part in whole]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == len(words) + 1
    for place in random.Random(5).sample(range(len(whole) - 1), 20):  # noqa: S311 - repeatable
        came_back = {**headers, "Last-Event-ID": whole[place].id}
        with listen(address(site, run, "?stream_mode=updates"), headers=came_back) as events:
            rest = [part for part in events.until("end") if part.id]
        assert rest == whole[place + 1 :]
