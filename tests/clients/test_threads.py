"""Assistants and threads with the real client (acceptance A1 of the runs contract)."""

from typing import Any

import pytest
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.errors import ConflictError, NotFoundError

from tests.clients.site import ASSISTANT, RunSite, say, script


def test_a1_assistants_are_the_workflows(site: RunSite) -> None:
    """Found, counted, shown with graph and schemas; an unknown one is 404."""

    async def use(client: LangGraphClient) -> None:
        found = await client.assistants.search(limit=50)
        names = [one["assistant_id"] for one in found]
        assert ASSISTANT in names
        assert await client.assistants.count() == len(names)
        assert (await client.assistants.get(ASSISTANT))["graph_id"] == ASSISTANT
        graph: Any = await client.assistants.get_graph(ASSISTANT)
        assert {"nodes", "edges"} <= graph.keys()
        schemas: Any = await client.assistants.get_schemas(ASSISTANT)
        assert "script" in schemas["input_schema"]["properties"]
        with pytest.raises(NotFoundError):
            await client.assistants.get("nobody")

    site.run(use)


def test_a1_threads_live_and_die(site: RunSite) -> None:
    """Made once under a name, described, found, written to, read back, deleted for good."""

    async def use(client: LangGraphClient) -> None:
        made = await client.threads.create(thread_id="talk", metadata={"topic": "a"})
        assert (made["thread_id"], made["status"]) == ("talk", "idle")
        with pytest.raises(ConflictError):
            await client.threads.create(thread_id="talk")
        again = await client.threads.create(thread_id="talk", if_exists="do_nothing")
        assert again["created_at"] == made["created_at"]
        await client.threads.create(metadata={"topic": "b"})
        found = await client.threads.search(metadata={"topic": "a"})
        assert [one["thread_id"] for one in found] == ["talk"]
        assert await client.threads.count() == 2
        changed = await client.threads.update("talk", metadata={"more": 1})
        assert changed["metadata"] == {"topic": "a", "more": 1}
        await client.threads.update_state("talk", {"colour": "red"})
        await client.threads.update_state(
            "talk", {"messages": [{"type": "human", "content": "hello", "id": "m1"}]}
        )
        state: Any = await client.threads.get_state("talk")
        assert state["values"]["colour"] == "red"
        assert state["values"]["messages"][0]["content"] == "hello"
        assert (state["next"], state["interrupts"]) == ([], [])
        history: Any = await client.threads.get_history("talk")
        assert [len(one["values"]["messages"]) for one in history] == [1, 0]
        assert history[0]["checkpoint"] == state["checkpoint"]
        assert history[0]["parent_checkpoint"] == history[1]["checkpoint"]
        older: Any = await client.threads.get_history("talk", before=history[0]["checkpoint"])
        assert older == history[1:]
        past: Any = await client.threads.get_state("talk", checkpoint=history[1]["checkpoint"])
        assert past == history[1]
        await client.threads.delete("talk")
        with pytest.raises(NotFoundError):
            await client.threads.get("talk")
        with pytest.raises(ConflictError):
            await client.threads.create(thread_id="talk")

    site.run(use)


def test_history_shows_what_was_between_runs_and_within_them(site: RunSite) -> None:
    """The newest state is the head; every state in the list can be read by its name."""

    async def use(client: LangGraphClient) -> None:
        thread = (await client.threads.create())["thread_id"]
        await client.runs.wait(thread, ASSISTANT, input=script(say("one"), say("two")))
        await client.runs.wait(thread, ASSISTANT, input=script(say("three")))
        history: Any = await client.threads.get_history(thread, limit=100)
        state: Any = await client.threads.get_state(thread)
        assert history[0] == state
        said = [[one["content"] for one in state["values"]["messages"]] for state in history]
        assert said[0] == ["one", "two", "three"]
        assert ["one", "two"] in said
        for one in history:
            assert await client.threads.get_state(thread, checkpoint=one["checkpoint"]) == one

    site.run(use)
