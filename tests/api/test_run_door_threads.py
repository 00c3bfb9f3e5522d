"""Threads that runs make or enter: made with the run or not at all (R18, R29)."""

from typing import Any

import pytest

from tasks_app.admission import threads
from tasks_app.models import AgentIdentity, Run, Thread
from tests.api.calls import Api, api_of, without_id
from tests.factories import make_tenant
from tests.support.engine import Engine

pytestmark = pytest.mark.django_db

SAY = {"op": "say", "text": "x"}
RUN: dict[str, Any] = {"assistant_id": "scripted", "input": {"script": [SAY]}}
MAKES = {**RUN, "if_not_exists": "create"}
STATELESS, NAMED = "/api/runs", "/api/threads/talk/runs"
REFUSED: dict[str, dict[str, Any]] = {
    "a goal that does not fit": {"input": {"script": [{"op": "nothing"}]}},
    "no object as input": {"input": 7},
    "nothing to continue": {"input": None},
    "a resume of nothing": {"command": {"resume": True}},
    "an unknown model": {"context": {"model_name": "nobody"}},
    "an unknown workflow": {"assistant_id": "nobody"},
    "an unknown state": {"checkpoint_id": "nowhere"},
}


def door_of(engine: Engine, *roles: str) -> Api:
    return api_of(engine.tenant, *roles)


def threads_of(engine: Engine) -> list[str]:
    return sorted(Thread.objects.for_tenant(engine.tenant.id).values_list("key", flat=True))


@pytest.mark.parametrize("path", [STATELESS, NAMED])
@pytest.mark.parametrize("why", REFUSED)
def test_refused_run_leaves_no_thread(path: str, why: str) -> None:
    """R29: whatever the reason, there is nothing of it."""
    engine = Engine()
    answer = door_of(engine, "submitter").post(path, {**MAKES, **REFUSED[why]})
    assert 400 <= answer.status_code < 500, answer.content
    assert threads_of(engine) == []


def test_run_refused_in_its_transaction_leaves_no_thread() -> None:
    """R29: also when admission itself says no."""
    engine = Engine()
    door = door_of(engine, "submitter")
    AgentIdentity.objects.create(tenant=engine.tenant, name="default", status="disabled")
    for path in (STATELESS, NAMED):
        assert door.post(path, MAKES).status_code == 403
    assert threads_of(engine) == []


@pytest.mark.parametrize("path", [STATELESS, NAMED])
def test_replay_makes_no_thread(path: str) -> None:
    """R22: it answers the first run; another request with the key makes nothing either."""
    engine = Engine()
    door = door_of(engine, "submitter")
    first = door.post(path, MAKES, Idempotency_Key="k").json()
    before = threads_of(engine)
    again = door.post(path, MAKES, Idempotency_Key="k")
    assert again.json()["run_id"] == first["run_id"]
    assert again["Idempotent-Replayed"] == "true"
    other = door.post(path, {**MAKES, "input": {"script": []}}, Idempotency_Key="k")
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_mismatch")
    assert threads_of(engine) == before == [first["thread_id"]]


def test_key_means_another_run_in_another_thread() -> None:
    """R21: and outside of threads, whatever a thread is called."""
    engine = Engine()
    door = door_of(engine, "submitter")
    places = (STATELESS, NAMED, "/api/threads/stateless/runs")
    made = [door.post(path, MAKES, Idempotency_Key="k").json()["run_id"] for path in places]
    assert len(set(made)) == 3


def test_foreign_thread_is_like_none() -> None:
    """R18: another person's, another tenant's and no thread get one answer, and no run."""
    engine, elsewhere = Engine(), Engine()
    threads.create_thread(engine.submitter, key="hers", metadata={})
    threads.create_thread(elsewhere.submitter, key="theirs", metadata={})
    door = door_of(engine, "submitter")
    answers = [door.post(f"/api/threads/{key}/runs", RUN) for key in ("nowhere", "hers", "theirs")]
    answers.append(door.post("/api/threads/hers/runs", MAKES))
    answers.append(door.post(STATELESS, {**RUN, "config": {"configurable": {"thread_id": "hers"}}}))
    assert {answer.status_code for answer in answers} == {404}
    assert len({str(without_id(answer)) for answer in answers}) == 1
    assert not Run.objects.for_tenant(engine.tenant.id).exists()
    assert door.post("/api/threads/theirs/runs", MAKES).status_code == 200


def test_name_of_a_thread_that_is_gone_makes_no_other() -> None:
    """Deleted, or gone with its run: unknown to who wants it, taken to who would make it."""
    engine = Engine()
    door = door_of(engine, "submitter")
    assert door.post("/api/threads", {"thread_id": "talk"}).status_code == 200
    gone = door.client.delete("/api/threads/talk", headers=door.headers())
    assert gone.status_code == 204
    run = door.post(STATELESS, RUN).json()
    engine.drive(run["run_id"])
    for key in ("talk", run["thread_id"]):
        path = f"/api/threads/{key}/runs"
        assert door.post(path, RUN).status_code == 404
        assert door.post(path, MAKES).json()["code"] == "thread_exists"


def test_who_sees_a_thread_and_may_start_runs_starts_one_in_it() -> None:
    """The table of rights decides on this door, too: an operator sees every thread."""
    engine = Engine()
    owner = door_of(engine, "submitter")
    assert owner.post(NAMED, MAKES).status_code == 200
    later = {**RUN, "multitask_strategy": "enqueue"}
    assert door_of(engine, "operator", "submitter").post(NAMED, later).status_code == 200
    assert door_of(engine, "operator").post(NAMED, later).status_code == 403


@pytest.mark.parametrize("strategy", ["interrupt", "rollback"])
def test_strategy_ends_only_what_one_may_cancel(strategy: str) -> None:
    """S14: who sees another person's run and may cancel only own ones ends nothing."""
    engine = Engine()
    assert door_of(engine, "submitter").post(NAMED, MAKES).status_code == 200
    ending = {**RUN, "multitask_strategy": strategy}
    refused = door_of(engine, "approver", "submitter").post(NAMED, ending)
    assert (refused.status_code, refused.json()["capability"]) == (403, "tasks:cancel")
    runs = Run.objects.for_tenant(engine.tenant.id)
    assert list(runs.values_list("cancel_action", flat=True)) == [""]
    assert door_of(engine, "operator", "submitter").post(NAMED, ending).status_code == 200
    assert runs.exclude(cancel_action="").count() == 1


def test_tenant_alone_shares_no_names() -> None:
    """S21: a name of another tenant's thread is free."""
    engine = Engine()
    threads.create_thread(engine.submitter, key="talk", metadata={})
    other = make_tenant()
    made = api_of(other, "submitter").post(NAMED, MAKES)
    assert (made.status_code, made.json()["thread_id"]) == (200, "talk")
