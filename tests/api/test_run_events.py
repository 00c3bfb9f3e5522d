"""What programs are told of a run: its files, its receipt, the tasks that it started, its use."""

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User

from tasks_app.api.langgraph.frames import Frames
from tasks_app.engine import lease
from tasks_app.models import Task
from tasks_app.queries.conversations import events_between
from tasks_app.queries.runs import get_head
from tests.api.calls import Api
from tests.factories import make_api_key
from tests.support.engine import Engine

pytestmark = pytest.mark.django_db

OUTPUT = {"op": "write", "path": "outputs/a.txt", "text": "one"}
OTHER = {"op": "write", "path": "outputs/b.txt", "text": "two"}
SHOWN = {"op": "present", "paths": ["outputs"]}


@pytest.fixture
def engine(db: None) -> Iterator[Engine]:
    yield Engine()
    lease.stop_keeper()


@pytest.fixture
def api(engine: Engine) -> Api:
    person = User.objects.get(pk=engine.submitter.user_id or 0)
    return Api(make_api_key(engine.tenant, person, ("tasks:read", "tasks:create"))[1])


def start(api: Api, *script: dict[str, Any], **more: Any) -> str:
    body = {"assistant_id": "scripted", "input": {"script": list(script)}, **more}
    answer = api.post("/api/threads/talk/runs", {"if_not_exists": "create", **body})
    assert answer.status_code == 200, answer.content
    return f"/api/threads/talk/runs/{answer.json()['run_id']}"


def test_changes_of_a_run_are_those_against_what_it_found(engine: Engine, api: Api) -> None:
    """R64: created and modified files, whether they are handed over or not."""
    first = start(api, OUTPUT, SHOWN)
    waiting = start(api, {**OUTPUT, "text": "new"}, OTHER, SHOWN, multitask_strategy="enqueue")
    assert api.get(f"{waiting}/workspace-changes").json()["available"] is False
    for place in (first, waiting):
        engine.drive(place.rpartition("/")[2])  # type: ignore[arg-type]
    told = api.get(f"{waiting}/workspace-changes").json()
    assert (told["available"], told["version"]) == (True, 1)
    assert told["summary"] == {"created": 1, "modified": 1, "deleted": 0}
    assert [(one["path"], one["change"]) for one in told["files"]] == [
        ("outputs/a.txt", "modified"),
        ("outputs/b.txt", "created"),
    ]


def test_receipt_is_an_event_of_the_run(engine: Engine, api: Api) -> None:
    """R66: one `run.delivery` in the category of outputs, just before `run.end`."""
    place = start(api, OUTPUT, SHOWN)
    engine.drive(place.rpartition("/")[2])  # type: ignore[arg-type]
    events = api.get(f"{place}/events").json()
    assert [event["event_type"] for event in events][-2:] == ["run.delivery", "run.end"]
    (told,) = api.get(f"{place}/events?event_types=run.delivery").json()
    assert told["category"] == "outputs"
    assert set(told["content"]) == {
        "outcome", "presented", "paths", "by_tool", "produced_paths", "matched_paths", "satisfied",
        "sha256", "effects",
    }  # fmt: skip
    assert told["content"]["produced_paths"] == ["outputs/a.txt"]


def test_incomplete_delivery_is_the_runs_error(engine: Engine, api: Api) -> None:
    """R4, R65: status, error and reason say so."""
    place = start(api, OUTPUT)
    engine.drive(place.rpartition("/")[2])  # type: ignore[arg-type]
    run = api.get(place).json()
    assert (run["status"], run["stop_reason"]) == ("error", "delivery_incomplete")
    assert run["error"]["error"] == "delivery_incomplete"


def test_events_of_one_started_task(engine: Engine, api: Api) -> None:
    """R72: by the id from outside that it answers, by its own, or by its own as `task_id`."""
    child = {"op": "task", "script": [{"op": "say"}], "wait": False}
    place = start(api, {**child, "external_id": "call"}, child)
    engine.drive(place.rpartition("/")[2])  # type: ignore[arg-type]
    first, second = api.get(f"{place}/events?event_types=subagent.start").json()
    assert (first["category"], first["content"]["type"]) == ("subagent", "task_started")
    own = [one["content"]["execution_id"] for one in (first, second)]
    assert [one["content"]["task_id"] for one in (first, second)] == ["call", own[1]]
    assert api.get(f"{place}/events?task_id=call").json() == [first]
    assert api.get(f"{place}/events?execution_id={own[0]}").json() == [first]
    assert api.get(f"{place}/events?task_id={own[1]}").json() == [second]
    assert api.get(f"{place}/events?task_id={own[0]}").json() == []


@pytest.mark.django_db(transaction=True)
def test_streams_tell_of_started_tasks(engine: Engine, api: Api) -> None:
    """R51: as `task_…` in custom frames, and in the mode of tasks."""
    place = start(api, {"op": "task", "script": [{"op": "say"}], "external_id": "call"})
    task_id = UUID(place.rpartition("/")[2])
    engine.run(task_id)
    child = Task.objects.for_tenant(engine.tenant.id).get(parent_id=task_id)
    engine.drive(child.id)
    engine.drive(task_id)
    head = get_head(engine.submitter, task_id)
    events = events_between(engine.submitter, task_id, after=0, up_to=head.seq, types=["child"])

    def data(mode: str) -> list[Any]:
        texts = [Frames(head, [mode], {}).of(event, ()) for event in events]
        assert all(text.startswith(f"event: {mode}\n") for text in texts)
        return [json.loads(text.splitlines()[1].removeprefix("data: ")) for text in texts]

    assert [one["type"] for one in data("custom")] == [
        "task_started", "task_running", "task_completed",
    ]  # fmt: skip
    assert {one["id"] for one in data("tasks")} == {str(child.id)}
    assert data("tasks")[-1]["error"] is None


def test_error_of_a_model_and_its_last_call_are_told(engine: Engine, api: Api) -> None:
    """R68, R75: `llm.error` among the events; the newest call in the thread's usage."""
    assert api.post("/api/threads", {"thread_id": "talk"}).status_code == 200
    assert api.get("/api/threads/talk/token-usage").json()["context_usage"] is None
    say = {"op": "say", "tokens": [10, 2], "call_id": "one", "model": "large", "impure": True}
    place = start(api, say, {"op": "llm_fallback", "text": "try later"})
    engine.drive(place.rpartition("/")[2])  # type: ignore[arg-type]
    run = api.get(place).json()
    assert (run["status"], run["error"]["message"]) == ("error", "try later")
    told = api.get(f"{place}/events?event_types=llm.error").json()
    assert {one["category"] for one in told} == {"trace"}
    usage = api.get("/api/threads/talk/token-usage").json()
    assert usage["context_usage"] == {
        "model": "large", "input_tokens": 10, "output_tokens": 2, "total_tokens": 12,
    }  # fmt: skip
