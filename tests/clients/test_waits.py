"""Waiting for a run with the real client (acceptance A5, A8 of the runs contract)."""

from typing import Any

import pytest
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.errors import APIStatusError, ConflictError

from tests.clients.site import ASSISTANT, RunSite, say, script

FAIL = {"op": "fail", "error": "Broken", "message": "as planned", "times": None}
QUESTION = {"op": "interrupt", "value": "go on?", "answer": {"type": "boolean"}}


def test_a5_failing_run_raises_with_class_and_text(site: RunSite) -> None:
    """The client raises what the run failed with, or returns it as data."""

    async def use(client: LangGraphClient) -> None:
        thread = (await client.threads.create())["thread_id"]
        with pytest.raises(Exception, match="Broken: as planned"):
            await client.runs.wait(thread, ASSISTANT, input=script(FAIL))
        told: Any = await client.runs.wait(thread, ASSISTANT, input=script(FAIL), raise_error=False)
        assert told == {"__error__": {"error": "Broken", "message": "as planned"}}
        run: Any = (await client.runs.list(thread))[0]
        assert (run["status"], run["error"]) == ("error", told["__error__"])
        assert (await client.threads.get(thread))["status"] == "error"

    site.run(use)


def test_a5_question_comes_back_as_an_interrupt(site: RunSite) -> None:
    """The answer goes into the same run; there is nothing to answer afterwards."""

    async def use(client: LangGraphClient) -> None:
        thread = (await client.threads.create())["thread_id"]
        told: Any = await client.runs.wait(
            thread, ASSISTANT, input=script(say("one"), QUESTION, say("two"))
        )
        assert told["__interrupt__"][0]["value"]["prompt"] == "go on?"
        assert [one["content"] for one in told["messages"]] == ["one"]
        asked: Any = await client.threads.get(thread)
        assert asked["status"] == "interrupted"
        run = (await client.runs.list(thread))[0]
        assert asked["interrupts"] == {run["run_id"]: told["__interrupt__"]}
        assert run["status"] == "interrupted"
        resumed = await client.runs.create(thread, ASSISTANT, command={"resume": True})
        assert resumed["run_id"] == run["run_id"]
        values: Any = await client.runs.join(thread, run["run_id"])
        assert [one["content"] for one in values["messages"]] == ["one", "two"]
        with pytest.raises(ConflictError) as refused:
            await client.runs.create(thread, ASSISTANT, command={"resume": True})
        assert refused.value.code == "no_pending_interrupt"

    site.run(use)


def test_a5_an_approval_comes_back_and_takes_more_than_a_resume(site: RunSite) -> None:
    """It shows the digest that its answer must name; nothing is done meanwhile."""
    act = {"op": "effect", "key": "a", "approve": True}

    async def use(client: LangGraphClient) -> None:
        thread = (await client.threads.create())["thread_id"]
        told: Any = await client.runs.wait(thread, ASSISTANT, input=script(act))
        asked = told["__interrupt__"][0]
        assert asked["value"]["args_sha256"]
        with pytest.raises(APIStatusError) as refused:
            await client.runs.create(thread, ASSISTANT, command={"resume": True})
        assert refused.value.code == "approval_digest_required"
        assert (await client.threads.get(thread))["status"] == "interrupted"

    site.run(use)


def test_a5_stream_goes_on_after_the_answer(site: RunSite) -> None:
    """A stream ends at the question with its interrupt; the answer's begins behind it."""

    async def use(client: LangGraphClient) -> None:
        thread = (await client.threads.create())["thread_id"]
        asked = [
            part
            async for part in client.runs.stream(
                thread, ASSISTANT, input=script(say("one"), QUESTION, say("two"))
            )
        ]
        assert asked[-1].event == "end"
        assert asked[-1].data["status"] == "interrupted"
        assert asked[-2].data["__interrupt__"][0]["value"]["prompt"] == "go on?"
        parts = [
            part
            async for part in client.runs.stream(
                thread, ASSISTANT, command={"resume": True}, stream_mode="messages-tuple"
            )
        ]
        said = [part.data[0] for part in parts if part.event == "messages"]
        assert [one["content"] for one in said if one["type"] == "ai"] == ["two"]
        assert parts[-1].data["status"] == "success"

    site.run(use)


def test_a8_runs_without_a_thread(site: RunSite) -> None:
    """Waited for, streamed, in a batch: each gets a thread of its own."""

    async def use(client: LangGraphClient) -> None:
        values: Any = await client.runs.wait(None, ASSISTANT, input=script(say("one")))
        assert [one["content"] for one in values["messages"]] == ["one"]
        parts = [
            part async for part in client.runs.stream(None, ASSISTANT, input=script(say("one")))
        ]
        assert (parts[0].event, parts[-1].event) == ("metadata", "end")
        bodies: Any = [{"assistant_id": ASSISTANT, "input": script(say(text))} for text in "ab"]
        made: Any = await client.runs.create_batch(bodies)
        assert len({run["thread_id"] for run in made}) == 2
        for run in made:
            await client.runs.join(run["thread_id"], run["run_id"])

    site.run(use)
