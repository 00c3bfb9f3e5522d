"""Held tasks over REST: listed by cause, repaired one by one or many together, refused with a code."""

from typing import Any
from uuid import uuid4

import pytest

from tasks_app.models import Repair, Task, Tenant
from tests.api.calls import Api, api_of
from tests.factories import make_member, make_task, make_tenant

pytestmark = pytest.mark.django_db

GOAL = {"script": [{"op": "say"}]}


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


@pytest.fixture
def operator(tenant: Tenant) -> Api:
    return api_of(tenant, "operator")


def held(tenant: Tenant, cause: str = "too_many_recoveries", **more: Any) -> Task:
    """Return a task that is held for a cause."""
    error = {"code": cause, "message": "It is held.", "step": "classify"}
    return make_task(tenant=tenant, status="dead_lettered", error=error, goal=GOAL, **more)


def repair(api: Api, task: Task, verb: str, *, key: str = "", **more: Any) -> Any:
    body = {"verb": verb, "expectedVersion": task.state_version, "reason": "seen", **more}
    headers = {"Idempotency_Key": key} if key else {}
    return api.post(f"/runtime/tasks/{task.pk}/repairs", body, **headers)


def test_snapshot_tells_the_hold_and_what_the_caller_may_do(tenant: Tenant, operator: Api) -> None:
    """A held task is `working` outside, with the cause, since when, and the caller's verbs."""
    task = held(tenant)
    seen = operator.get(f"/runtime/tasks/{task.pk}").json()
    assert seen["outsideStatus"] == "working"
    assert seen["statusMessage"] == "Held for an operator: It is held."
    assert seen["hold"]["code"] == "too_many_recoveries"
    assert seen["hold"]["message"] == "It is held."
    assert seen["hold"]["since"] is not None
    assert seen["hold"]["verbs"] == ["requeue", "fork", "close"]
    viewer = api_of(tenant, "viewer").get(f"/runtime/tasks/{task.pk}").json()
    assert viewer["hold"]["verbs"] == []


def test_repair_is_accepted_once_and_told(tenant: Tenant, operator: Api) -> None:
    """202 with the new state; the same key replays it; the list names who, why and for what."""
    task = held(tenant)
    first = repair(operator, task, "requeue", key="k")
    again = repair(operator, task, "requeue", key="k")
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json() == again.json()
    assert again.headers["Idempotent-Replayed"] == "true"
    assert (first.json()["status"], first.json()["stateVersion"]) == ("queued", 2)
    assert repair(operator, task, "close", key="k").json()["code"] == "idempotency_mismatch"
    (row,) = operator.get(first.headers["Location"]).json()["items"]
    assert (row["verb"], row["cause"], row["reason"]) == ("requeue", "too_many_recoveries", "seen")
    assert operator.get(f"/runtime/tasks/{task.pk}").json()["hold"] is None


def test_fork_names_both_tasks(tenant: Tenant, operator: Api) -> None:
    """The answer leads to the new task, which says what it replaces."""
    task = held(tenant)
    forked = repair(operator, task, "fork", payload={"goal": {"note": "again"}}).json()
    assert forked["status"] == "cancelled"
    new = operator.get(f"/runtime/tasks/{forked['forkedTaskId']}").json()
    assert (new["forkedFrom"], new["goal"]["note"]) == (str(task.pk), "again")
    assert new["initiator"]["id"] == task.initiator_id


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"verb": "requeue", "expectedVersion": None}, 428, "version_required"),
        ({"verb": "requeue", "expectedVersion": 7}, 409, "version_conflict"),
        ({"verb": "continue_from"}, 409, "no_good_checkpoint"),
        ({"verb": "settle_effect", "payload": {"outcome": "not_done"}}, 409, "effect_not_in_doubt"),
        ({"verb": "settle_effect", "payload": {"outcome": "done"}}, 422, "invalid_input"),
        ({"verb": "requeue", "payload": {"x": 1}}, 422, "invalid_input"),
        ({"verb": "continue_from", "payload": {"checkpoint": "1"}}, 422, "invalid_input"),
        ({"verb": "resume"}, 422, "invalid_input"),
        ({"verb": "requeue", "reason": " "}, 422, "invalid_input"),
        ({"verb": "fork", "payload": {"goal": {"script": 1}}}, 422, "invalid_input"),
        ({"verb": "fork", "payload": {"goal": {"tenant_id": 1}}}, 400, "reserved_key"),
    ],
)
def test_refused_repairs_change_nothing(
    tenant: Tenant, operator: Api, body: dict[str, Any], status: int, code: str
) -> None:
    """Each refusal has its code, and the task is as it was."""
    task = held(tenant)
    answer = operator.post(
        f"/runtime/tasks/{task.pk}/repairs", {"expectedVersion": 1, "reason": "r", **body}
    )
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    row = Task.objects.for_tenant(tenant.id).get(pk=task.pk)
    assert (row.status, row.state_version) == ("dead_lettered", 1)
    assert not Repair.objects.for_tenant(tenant.id).exists()


def test_settling_needs_its_own_capability(tenant: Tenant) -> None:
    """A key without ledger:resolve may requeue, but not say what happened outside."""
    task = held(tenant)
    api = api_of(tenant, "operator", scopes=("tasks:read", "deadletters:manage"))
    answer = repair(api, task, "settle_effect", payload={"outcome": "not_done"})
    assert (answer.status_code, answer.json()["capability"]) == (403, "ledger:resolve")
    assert repair(api, task, "requeue").status_code == 202


def test_held_tasks_are_listed_and_counted_by_cause(tenant: Tenant, operator: Api) -> None:
    """The longest held first; another tenant's tasks, and those of others for submitters, are not."""
    first, second = held(tenant), held(tenant, "checkpoint_damaged")
    held(make_tenant())
    items = operator.get("/runtime/dead-letters").json()["items"]
    assert [item["taskId"] for item in items] == [str(first.pk), str(second.pk)]
    assert (items[0]["cause"], items[0]["step"]) == ("too_many_recoveries", "classify")
    narrowed = operator.get("/runtime/dead-letters?cause=checkpoint_damaged").json()["items"]
    assert [item["taskId"] for item in narrowed] == [str(second.pk)]
    causes = operator.get("/runtime/dead-letters/causes").json()["items"]
    assert [(row["cause"], row["count"]) for row in causes] == [
        ("checkpoint_damaged", 1),
        ("too_many_recoveries", 1),
    ]
    assert api_of(tenant, "submitter").get("/runtime/dead-letters").json()["items"] == []


def test_many_are_previewed_then_repaired(tenant: Tenant, operator: Api) -> None:
    """The preview changes nothing and names what to send back; each task has its own outcome."""
    owner = make_member(tenant, "submitter")
    tasks = [held(tenant, initiator=owner) for _ in range(3)]
    held(tenant, "checkpoint_damaged")
    ask = {"verb": "requeue", "cause": "too_many_recoveries", "dryRun": True}
    preview = operator.post("/runtime/repairs", ask).json()
    assert [row["taskId"] for row in preview["tasks"]] == [str(task.pk) for task in tasks]
    assert Task.objects.for_tenant(tenant.id).filter(status="dead_lettered").count() == 4
    Task.objects.for_tenant(tenant.id).filter(pk=tasks[1].pk).update(state_version=5)
    targets = [
        {"taskId": row["taskId"], "expectedVersion": row["expectedVersion"]}
        for row in preview["tasks"]
    ] + [{"taskId": str(uuid4()), "expectedVersion": 1}]
    body = {"verb": "requeue", "reason": "workers are back", "tasks": targets}
    answer = operator.post("/runtime/repairs", body, Idempotency_Key="many").json()
    assert [row["taskId"] for row in answer["done"]] == [str(tasks[0].pk), str(tasks[2].pk)]
    assert [row["code"] for row in answer["refused"]] == ["version_conflict", "not_found"]
    again = operator.post("/runtime/repairs", body, Idempotency_Key="many").json()
    assert again["done"] == answer["done"]
    assert Repair.objects.for_tenant(tenant.id).count() == 2


def test_preview_says_why_a_task_would_be_refused(tenant: Tenant, operator: Api) -> None:
    """A task without any good checkpoint is not among those to send back."""
    task = held(tenant, "checkpoint_damaged")
    ask = {"verb": "continue_from", "cause": "checkpoint_damaged", "dryRun": True}
    preview = operator.post("/runtime/repairs", ask).json()
    assert preview["tasks"] == []
    assert [(row["taskId"], row["code"]) for row in preview["refused"]] == [
        (str(task.pk), "no_good_checkpoint")
    ]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"verb": "requeue", "dryRun": True}, "/cause"),
        ({"verb": "requeue", "reason": "r"}, "/tasks"),
        ({"verb": "requeue", "tasks": [{"taskId": str(uuid4())}]}, "/reason"),
        ({"verb": "requeue", "reason": "r", "tasks": [{"taskId": str(uuid4())}] * 501}, "/tasks"),
    ],
)
def test_many_without_what_they_need_are_refused(
    operator: Api, body: dict[str, Any], pointer: str
) -> None:
    """422 at the field, before any task is touched."""
    answer = operator.post("/runtime/repairs", body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_tasks_of_the_preview_are_sent_back_as_they_stand(tenant: Tenant, operator: Api) -> None:
    """Nothing has to be picked out of the answer."""
    held(tenant, title="A task")
    ask = {"verb": "requeue", "cause": "too_many_recoveries", "dryRun": True}
    tasks = operator.post("/runtime/repairs", ask).json()["tasks"]
    body = {"verb": "requeue", "reason": "workers are back", "tasks": tasks}
    answer = operator.post("/runtime/repairs", body)
    assert answer.status_code == 200, answer.content
    assert len(answer.json()["done"]) == len(tasks) == 1
