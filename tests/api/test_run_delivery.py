"""What programs are told of a run's files and receipt."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User

from tasks_app.engine import lease
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
