"""The run door over a real server in this process; slices run when the test says so."""

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.utils import timezone

from runtime_project.asgi import OneThreadHandler
from runtime_project.local.processes import wait_until
from tasks_app.api.errors import handle
from tasks_app.api.langgraph import feeds
from tasks_app.domain.errors import QueueFullError
from tasks_app.domain.states import TaskStatus
from tasks_app.engine import lease
from tasks_app.events.slots import STREAMS
from tasks_app.models import ApiKey
from tests.api.door import Door, say
from tests.support.streams import WebServer, listen

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def door(settings: Any, tmp_path: Path) -> Iterator[Door]:
    settings.STATIC_ROOT = tmp_path
    if STREAMS.count():
        # An answer that another test did not read holds its place until the collector comes.
        gc.collect()
    with WebServer(OneThreadHandler()) as web:
        found = Door(web)
        yield found
        found.client.close()
        assert wait_until(lambda: STREAMS.count() == 0, seconds=10)
    lease.stop_keeper()


def test_who_missed_too_much_begins_anew(door: Door, settings: Any) -> None:
    """R48: the gap is told with the number of the values that follow, and the stream goes on."""
    settings.RUNTIME = {**settings.RUNTIME, "max_replayed_events": 2}
    run = door.run(say("a"), say("b"), say("c"))
    parts = door.frames(run, last="1")
    assert [part.type for part in parts] == ["metadata", "gap", "values", "end"]
    gap = parts[1]
    assert gap.data["code"] == "stream_replay_gap"
    assert (gap.data["requested_event_id"], gap.data["recovery"]) == (1, "reload_durable_state")
    assert int(gap.id) < int(parts[-1].id)
    assert [one["content"] for one in parts[2].data["messages"]] == ["a", "b", "c"]


def test_last_event_id_that_is_no_number_is_like_none(door: Door) -> None:
    """R47: also -1 and 0 are the same."""
    run = door.run(say("a"))
    assert [part.type for part in door.frames(run, last="abc")] == ["metadata", "values", "end"]
    assert door.frames(run, last="-1") == door.frames(run, last="0")


def test_end_and_last_event_tell_the_same(door: Door) -> None:
    """R42: run.end is there once, and its status is that of the run."""
    run = door.run(say("a"), {"op": "fail", "error": "Broken", "message": "boo"})
    ended = door.ask("GET", f"{door.place(run)}/events?event_types=run.end")
    assert [event["content"]["status"] for event in ended] == ["failed"]
    names = [part.type for part in door.frames(run, "?stream_mode=updates", last="0")]
    assert names == ["metadata", "updates", "error", "end"]
    error = door.frames(run)[-2]
    assert error.data == {"error": "Broken", "message": "boo", "name": "Broken"}
    events = door.ask("GET", f"{door.place(run)}/events")
    assert [event["run_seq"] for event in events] == list(range(1, len(events) + 1))
    said = door.ask("GET", f"{door.place(run)}/events?event_types=llm.ai.response,run.start")
    assert {event["event_type"] for event in said} == {"llm.ai.response", "run.start"}


def test_join_returns_what_the_run_left_whatever_came_later(door: Door) -> None:
    """R57: the same bytes, not the thread's head; R24: also for a key that was used before."""
    body = {"assistant_id": "scripted", "input": {"script": [say("a")]}, "if_not_exists": "create"}
    key = {"Idempotency-Key": "k"}
    run = door.ask("POST", "/threads/talk/runs", json=body, headers=key)
    door.drive(run)
    first = door.client.get(f"{door.place(run)}/join").content.strip()
    door.run(say("b"))
    assert door.client.get(f"{door.place(run)}/join").content.strip() == first
    again = door.client.post("/threads/talk/runs/wait", json=body, headers=key)
    assert again.content.strip() == first
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.headers["Location"] == f"{door.place(run)}/join"
    streamed = door.client.post("/threads/talk/runs/stream", json=body, headers=key)
    assert streamed.headers["Location"] == f"{door.place(run)}/stream"
    assert streamed.headers["Content-Location"] == door.place(run)
    assert streamed.headers["Cache-Control"] == "no-cache"
    assert streamed.headers["X-Accel-Buffering"] == "no"


def test_stream_with_an_action_cancels_first(door: Door) -> None:
    """POST only; with wait it answers when the run has come to rest, and says nothing."""
    run = door.start(say("a"))
    refused = door.client.get(f"{door.place(run)}/stream?action=interrupt")
    assert (refused.status_code, refused.headers["Allow"]) == (405, "POST")
    waited = door.client.post(f"{door.place(run)}/stream?action=interrupt&wait=1")
    assert (waited.status_code, waited.content) == (204, b"")
    parts = door.frames(run)
    assert [part.type for part in parts] == ["metadata", "values", "end"]
    assert parts[-1].data["stop_reason"] == "user_cancelled"
    followed = door.client.post(f"{door.place(door.start(say('b')))}/stream?action=rollback")
    assert b"event: end" in followed.content
    assert b"rolled_back" in followed.content


def test_messages_of_a_run_that_was_rolled_back_are_left_out(door: Door) -> None:
    """R62: unless they are asked for."""
    run = door.start(say("a"), input={"messages": [{"type": "human", "content": "hello"}]})
    assert door.client.post(f"{door.place(run)}/cancel?action=rollback").status_code == 202
    assert door.ask("GET", "/threads/talk/messages") == []
    shown = door.ask("GET", "/threads/talk/messages?include_superseded=true")
    assert [event["event_type"] for event in shown] == ["llm.human.input"]
    assert shown[0]["content"]["content"] == "hello"


def test_validation_is_422_and_says_why_in_one_line(door: Door) -> None:
    """R8: also for queries; `detail` is one string."""
    for method, path, body in (
        ("GET", "/threads/talk/runs?limit=0", None),
        ("GET", "/threads/talk/runs?unknown=1", None),
        ("GET", "/threads/talk/runs/page?before_created_at=x", None),
        ("POST", "/threads/search", {"unknown": 1}),
        ("POST", "/runs/wait", {"assistant_id": "scripted", "stream_mode": "events"}),
        ("POST", "/runs/cancel", {}),
    ):
        answer = door.client.request(method, path, json=body)
        assert answer.status_code == 422, path
        assert isinstance(answer.json()["detail"], str)
        assert answer.json()["code"] == "invalid_input"


def test_a_thread_made_for_one_run_goes_with_it(door: Door) -> None:
    """on_completion: hidden once the run has ended, unless it is to be kept; the run stays."""
    body = {"assistant_id": "scripted", "input": {"script": [say("a")]}}
    run = door.ask("POST", "/runs", json=body)
    kept = door.ask("POST", "/runs", json={**body, "on_completion": "keep"})
    assert door.ask("POST", "/threads/count", json={}) == 2
    assert door.drive(run) is door.drive(kept) is TaskStatus.COMPLETED
    found = door.ask("POST", "/threads/search", json={})
    assert [thread["thread_id"] for thread in found] == [kept["thread_id"]]
    assert door.client.get(f"/threads/{run['thread_id']}").status_code == 404
    assert door.ask("GET", f"{door.place(run)}/join")["messages"][0]["content"] == "a"
    assert door.ask("GET", door.place(run))["status"] == "success"


def test_facts_of_the_server_are_dropped(door: Door) -> None:
    """R19: no refusal and no effect."""
    made = door.ask("POST", "/threads", json={"metadata": {"a": 1, "tenant_id": "x"}})
    assert made["metadata"] == {"a": 1}


def test_every_answer_without_a_body_says_so(door: Door) -> None:
    """R10: never an empty 200."""
    run = door.run(say("a"))
    patched = door.client.patch(
        "/threads/talk", content=json.dumps({"metadata": {}}),
        headers={"Prefer": "return=minimal", "Content-Type": "application/json"},
    )  # fmt: skip
    deleted = door.client.delete(door.place(run))
    assert [answer.status_code for answer in (patched, deleted)] == [204, 204]
    assert door.client.get(door.place(run)).status_code == 404
    assert door.client.delete("/threads/talk").status_code == 204
    assert door.client.get("/threads/talk/messages").status_code == 404


def test_an_approval_is_never_answered_by_a_bare_resume(door: Door, tmp_path: Path) -> None:
    """The digest of what was shown, from somebody who may decide; the same run goes on."""
    act = {"op": "effect", "key": "k", "append": str(tmp_path / "acts"), "approve": True}
    run = door.start(act)
    assert door.drive(run) is TaskStatus.INPUT_REQUIRED
    told = door.ask("GET", f"{door.place(run)}/join")
    (asked,) = told["__interrupt__"]
    assert asked["value"]["kind"] == "approval"
    state = door.ask("GET", "/threads/talk/state")
    assert state["interrupts"] == [asked]
    assert state["tasks"][0]["interrupts"] == [asked]
    assert door.ask("GET", "/threads/talk")["interrupts"] == {run["run_id"]: [asked]}

    def resume(answer: Any, headers: dict[str, str]) -> httpx.Response:
        body = {"assistant_id": "scripted", "command": {"resume": answer}}
        return door.client.post("/threads/talk/runs", json=body, headers=headers)

    decision = {asked["id"]: {"decision": "approve", "args_sha256": asked["value"]["args_sha256"]}}
    colleague = door.headers_of(door.engine.person("approver", "submitter"))
    assert resume(True, colleague).json()["code"] == "approval_digest_required"
    assert resume(decision, door.headers).status_code == 403
    resumed = resume(decision, colleague)
    assert resumed.json()["run_id"] == run["run_id"], resumed.text
    assert door.drive(run) is TaskStatus.COMPLETED
    parts = door.frames(run, "?stream_mode=updates", last="0")
    interrupted = [part.data for part in parts if "__interrupt__" in (part.data or {})]
    assert [one["__interrupt__"][0]["id"] for one in interrupted] == [asked["id"]]


def test_a_held_run_is_interrupted_for_an_operator(door: Door) -> None:
    """A dead letter ends streams with what holds it; it is no error yet."""
    run = door.start({"op": "fail", "error": "Broken", "message": "boo", "on_failure": "ask"})
    assert door.drive(run) is TaskStatus.DEAD_LETTERED
    parts = door.frames(run)
    assert [part.type for part in parts] == ["metadata", "values", "end"]
    assert parts[1].data["__interrupt__"][0]["value"]["kind"] == "dead_letter"
    assert parts[-1].data["status"] == "interrupted"
    assert door.ask("GET", "/threads/talk")["status"] == "interrupted"
    assert door.ask("GET", door.place(run))["error"] is None


def test_a_stream_ends_with_the_right_to_follow_it(
    door: Door, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S27: a key that was revoked hears nothing more, and no end either."""
    settings.RUNTIME = {**settings.RUNTIME, "stream_heartbeat_seconds": 0.05}
    monkeypatch.setattr(feeds, "RECHECK_SECONDS", 0.0)
    run = door.start(say("a"))
    with listen(f"{door.url}{door.place(run)}/stream", headers=door.headers) as events:
        assert events.next().type == "metadata"
        keys = ApiKey.objects.for_tenant(door.engine.tenant.id)
        keys.update(revoked_at=timezone.now())
        assert "end" not in [part.type for part in events]


def test_who_is_one_too_many_is_told_when_to_come_back() -> None:
    """R26: 429 with Retry-After."""
    answer = handle(QueueFullError(50), {})
    assert answer.status_code == 429
    assert answer.headers["Retry-After"] == "10"
