"""Streams as the real client reads them (acceptance A3, A8 of the runs contract)."""

from typing import Any

import pytest
from langgraph_sdk.client import LangGraphClient

from tests.clients.site import ASSISTANT, RunSite, ids, read, say, script

pytestmark = [pytest.mark.crash]


def test_a3_stream_tells_everything_in_order(site: RunSite) -> None:
    """metadata first, ids ascending, end last; three modes beside each other."""

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
                stream_mode=["values", "updates", "custom"],
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
