"""Runs with the real client: made, followed, cancelled, refused (A2, A6, A7, A9 of the contract)."""

from typing import Any

import pytest
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.errors import (
    ConflictError,
    NotFoundError,
    PermissionDeniedError,
    UnprocessableEntityError,
)

from tests.clients.site import ASSISTANT, RunSite, run_id, say, script


async def new_thread(client: LangGraphClient) -> str:
    return (await client.threads.create())["thread_id"]


def test_a2_run_is_made_and_joined(site: RunSite) -> None:
    """Pending at first, with its place in a header; join and wait return the same values."""
    site.sync.hold("claim.before")

    async def make(client: LangGraphClient) -> tuple[str, Any]:
        thread = await new_thread(client)
        told: list[Any] = []
        run = await client.runs.create(
            thread, ASSISTANT, input=script(say("one")), on_run_created=told.append
        )
        assert told == [{"run_id": run["run_id"], "thread_id": thread}]
        assert run["status"] == "pending"
        assert (await client.threads.get(thread))["status"] == "busy"
        assert await client.runs.list(thread, status="pending") == [run]
        assert await client.runs.list(thread, status="success") == []
        return thread, run

    thread, run = site.run(make)
    site.sync.release("claim.before")

    async def join(client: LangGraphClient) -> None:
        values: Any = await client.runs.join(thread, run["run_id"])
        assert [one["content"] for one in values["messages"]] == ["one"]
        assert {"messages", "result", "artifacts"} <= values.keys()
        done: Any = await client.runs.get(thread, run["run_id"])
        assert (done["status"], done["message_count"]) == ("success", 1)
        state: Any = await client.threads.get_state(thread)
        assert state["checkpoint"]["checkpoint_id"] == done["final_checkpoint_id"]
        assert state["values"] == values
        again: Any = await client.runs.wait(
            await new_thread(client), ASSISTANT, input=script(say("one"))
        )
        assert again.keys() == values.keys()
        assert (await client.threads.get(thread))["status"] == "idle"

    site.run(join)


def test_a6_cancel(site: RunSite) -> None:
    """Twice is as good as once; one that waits comes back at rest; a finished run is 409."""
    site.sync.hold("step.before")

    async def begin(client: LangGraphClient) -> tuple[str, Any]:
        thread = await new_thread(client)
        return thread, await client.runs.create(thread, ASSISTANT, input=script(say("one")))

    thread, run = site.run(begin)
    site.sync.wait_hit("step.before", run_id(run))

    async def cancel(client: LangGraphClient) -> None:
        await client.runs.cancel(thread, run["run_id"])
        await client.runs.cancel(thread, run["run_id"])

    site.run(cancel)
    site.sync.release("step.before")

    async def after(client: LangGraphClient) -> None:
        await client.runs.cancel(thread, run["run_id"], wait=True)
        found: Any = await client.runs.get(thread, run["run_id"])
        assert (found["status"], found["stop_reason"]) == ("interrupted", "user_cancelled")
        result: Any = await client.runs.join(thread, run["run_id"])
        assert result == {"status": "interrupted", "stop_reason": "user_cancelled"}
        await client.runs.wait(thread, ASSISTANT, input=script(say("two")))
        finished = (await client.runs.list(thread))[0]
        with pytest.raises(ConflictError):
            await client.runs.cancel(thread, finished["run_id"])
        with pytest.raises(NotFoundError):
            await client.runs.cancel(thread, "11111111-1111-4111-8111-111111111111")

    site.run(after)


def test_a6_cancel_many(site: RunSite) -> None:
    """All of a status, or those that are named."""
    site.sync.hold("claim.before")

    async def use(client: LangGraphClient) -> None:
        first, second = await new_thread(client), await new_thread(client)
        runs = [
            await client.runs.create(thread, ASSISTANT, input=script(say("one")))
            for thread in (first, second)
        ]
        await client.runs.cancel_many(thread_id=first, run_ids=[runs[0]["run_id"]])
        assert [
            (await client.runs.get(run["thread_id"], run["run_id"]))["status"] for run in runs
        ] == ["interrupted", "pending"]
        await client.runs.cancel_many(status="all")
        assert (await client.runs.get(second, runs[1]["run_id"]))["status"] == "interrupted"
        with pytest.raises(UnprocessableEntityError):
            await client.runs.cancel_many(status="all", thread_id=first, run_ids=[])

    site.run(use)


def test_a7_one_run_of_a_thread_at_a_time(site: RunSite) -> None:
    """A second one is refused, or waits, or takes the place of the first."""
    site.sync.hold("claim.before")

    async def use(client: LangGraphClient) -> tuple[str, Any, Any, Any]:
        thread = await new_thread(client)
        first = await client.runs.create(thread, ASSISTANT, input=script(say("one")))
        with pytest.raises(ConflictError) as refused:
            await client.runs.create(thread, ASSISTANT, input=script(say("two")))
        assert refused.value.code == "thread_busy"
        waiting = await client.runs.create(
            thread, ASSISTANT, input=script(say("three")), multitask_strategy="enqueue"
        )
        last = await client.runs.create(
            thread, ASSISTANT, input=script(say("four")), multitask_strategy="interrupt"
        )
        return thread, first, waiting, last

    thread, first, waiting, last = site.run(use)
    site.sync.release("claim.before")

    async def after(client: LangGraphClient) -> None:
        values: Any = await client.runs.join(thread, last["run_id"])
        assert [one["content"] for one in values["messages"]] == ["four"]
        for run in (first, waiting):
            found: Any = await client.runs.get(thread, run["run_id"])
            assert (found["status"], found["stop_reason"]) == ("interrupted", "superseded")

    site.run(after)


def test_a7_runs_wait_in_line_behind_one_that_took_back(site: RunSite) -> None:
    """A rollback begins where the run before it began; those behind it follow one by one."""

    async def begin(client: LangGraphClient) -> str:
        thread = await new_thread(client)
        await client.runs.wait(thread, ASSISTANT, input=script(say("before")))
        return thread

    thread = site.run(begin)
    site.sync.hold("claim.before")

    async def use(client: LangGraphClient) -> dict[str, Any]:
        runs: dict[str, Any] = {}
        for word, strategy in (
            ("taken back", "reject"),
            ("rollback", "rollback"),
            ("second", "enqueue"),
            ("third", "enqueue"),
        ):
            asked: Any = {"input": script(say(word)), "multitask_strategy": strategy}
            runs[word] = await client.runs.create(thread, ASSISTANT, **asked)
        return runs

    runs = site.run(use)
    site.sync.release("claim.before")

    async def after(client: LangGraphClient) -> None:
        values: Any = await client.runs.join(thread, runs["third"]["run_id"])
        said = [one["content"] for one in values["messages"]]
        assert said == ["before", "rollback", "second", "third"]
        taken: Any = await client.runs.get(thread, runs["taken back"]["run_id"])
        assert (taken["status"], taken["stop_reason"]) == ("error", "rolled_back")

    site.run(after)


def test_a7_a_key_stands_for_one_run(site: RunSite) -> None:
    """The same request twice is one run; another one under the key is refused."""

    async def use(client: LangGraphClient) -> None:
        thread = await new_thread(client)
        key = {"Idempotency-Key": "k"}
        asked: Any = {"input": script(say("one")), "headers": key}
        first = await client.runs.create(thread, ASSISTANT, **asked)
        again = await client.runs.create(thread, ASSISTANT, **asked)
        assert again["run_id"] == first["run_id"]
        await client.runs.join(thread, first["run_id"])
        parts = [part async for part in client.runs.stream(thread, ASSISTANT, **asked)]
        assert [part.event for part in parts] == ["metadata", "values", "end"]
        with pytest.raises(ConflictError) as refused:
            await client.runs.create(thread, ASSISTANT, input=script(say("two")), headers=key)
        assert refused.value.code == "idempotency_mismatch"

    site.run(use)


def test_s21_f6_rollback_takes_back_what_the_thread_knows(site: RunSite) -> None:
    """S21: the state before the run is the newest one, also for the next run; history keeps both."""

    async def use(client: LangGraphClient) -> str:
        thread = await new_thread(client)
        await client.runs.wait(thread, ASSISTANT, input=script(say("before")))
        return thread

    thread = site.run(use)
    site.sync.hold("step.before", at=[2])

    async def begin(client: LangGraphClient) -> Any:
        return await client.runs.create(thread, ASSISTANT, input=script(say("lost"), say("never")))

    run = site.run(begin)
    site.sync.wait_hit("step.before", run_id(run), count=2)

    async def cancel(client: LangGraphClient) -> None:
        await client.runs.cancel(thread, run["run_id"], action="rollback")

    site.run(cancel)
    site.sync.release("step.before")

    async def after(client: LangGraphClient) -> None:
        await client.runs.cancel(thread, run["run_id"], wait=True)
        found: Any = await client.runs.get(thread, run["run_id"])
        assert (found["status"], found["stop_reason"]) == ("error", "rolled_back")
        state: Any = await client.threads.get_state(thread)
        assert [one["content"] for one in state["values"]["messages"]] == ["before"]
        history: Any = await client.threads.get_history(thread, limit=100)
        assert history[0]["metadata"]["source"] == "rollback"
        values: Any = await client.runs.wait(thread, ASSISTANT, input=script(say("after")))
        assert [one["content"] for one in values["messages"]] == ["before", "after"]

    site.run(after)


def test_a9_refusals(site: RunSite) -> None:
    """Each refusal is the client's own class, says why, and leaves nothing."""

    async def use(client: LangGraphClient) -> None:
        with pytest.raises(NotFoundError):
            await client.runs.create("nowhere", ASSISTANT, input=script(say("one")))
        made = await client.runs.create(
            "nowhere", ASSISTANT, input=script(say("one")), if_not_exists="create"
        )
        assert made["thread_id"] == "nowhere"
        with pytest.raises(UnprocessableEntityError, match="events"):
            await client.runs.create(
                "nowhere", ASSISTANT, input=script(say("one")), stream_mode="events"
            )
        with pytest.raises(NotFoundError):
            await client.runs.create(await new_thread(client), "nobody", input=script(say("one")))

    site.run(use)


def test_a9_to_create_is_not_to_cancel(site: RunSite) -> None:
    """A key without tasks:cancel ends nothing, neither by name nor by a strategy."""
    key = site.key_of("submitter", scopes=("tasks:create", "tasks:read"))
    site.sync.hold("claim.before")

    async def use(client: LangGraphClient) -> None:
        thread = await new_thread(client)
        run = await client.runs.create(thread, ASSISTANT, input=script(say("one")))
        with pytest.raises(PermissionDeniedError):
            await client.runs.cancel(thread, run["run_id"])
        with pytest.raises(PermissionDeniedError):
            await client.runs.create(
                thread, ASSISTANT, input=script(say("two")), multitask_strategy="interrupt"
            )
        assert [one["status"] for one in await client.runs.list(thread)] == ["pending"]

    site.run(use, key=key)
