"""One command for many tasks: previewed, told one by one, never to what is not the caller's."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest

from ledger_app.models import AuditEntry
from tasks_app.models import SteeringCommand, Task, Tenant
from tests.api.calls import Api, api_of
from tests.factories import make_member, make_task, make_tenant

pytestmark = pytest.mark.django_db
COMMANDS = "/runtime/commands"


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


@pytest.fixture
def operator(tenant: Tenant) -> Api:
    return api_of(tenant, "operator")


def named(tasks: Sequence[Task], version: int | None = 1) -> list[dict[str, Any]]:
    return [{"taskId": str(task.pk), "expectedVersion": version} for task in tasks]


def ask(api: Api, *, key: str = "", **body: Any) -> Any:
    headers = {"Idempotency_Key": key} if key else {}
    return api.post(COMMANDS, {"type": "pause", "reason": "lunch", **body}, **headers)


def states(tenant: Tenant) -> list[str]:
    return sorted(Task.objects.for_tenant(tenant.id).values_list("status", flat=True))


def test_each_task_has_its_own_outcome(tenant: Tenant, operator: Api) -> None:
    """U21: told, stale, ended, another tenant's and unknown ones, in one answer."""
    good, stale = make_task(tenant=tenant), make_task(tenant=tenant, state_version=4)
    ended = make_task(tenant=tenant, status="cancelled")
    foreign = make_task(tenant=make_tenant())
    body = named([good, stale, ended, foreign])
    body.append({"taskId": str(uuid4()), "expectedVersion": 1})
    answer = ask(operator, tasks=body)
    assert answer.status_code == 200
    [done] = answer.json()["done"]
    assert (done["taskId"], done["status"], done["stateVersion"]) == (str(good.pk), "applied", 3)
    refused = answer.json()["refused"]
    assert [row["code"] for row in refused] == [
        "version_conflict", "task_terminal", "not_found", "not_found",
    ]  # fmt: skip
    assert [row["currentVersion"] for row in refused] == [4, None, None, None]
    assert refused[2] == {**refused[3], "taskId": str(foreign.pk)}
    assert states(tenant) == ["cancelled", "paused", "queued"]
    assert not AuditEntry.objects.filter(stream=f"task:{foreign.pk}").exists()


def test_dry_run_says_what_would_be_and_changes_nothing(tenant: Tenant, operator: Api) -> None:
    """Its `tasks` are sent back as they stand; what it refuses is refused then."""
    tasks = [make_task(tenant=tenant) for _ in range(2)]
    ended = make_task(tenant=tenant, status="cancelled")
    preview = ask(operator, tasks=named([*tasks, ended]), dryRun=True).json()
    assert [row["taskId"] for row in preview["tasks"]] == [str(task.pk) for task in tasks]
    assert [(row["taskId"], row["code"]) for row in preview["refused"]] == [
        (str(ended.pk), "task_terminal")
    ]
    assert preview["done"] == []
    assert states(tenant) == ["cancelled", "queued", "queued"]
    assert not SteeringCommand.objects.for_tenant(tenant.id).exists()
    done = ask(operator, tasks=preview["tasks"]).json()["done"]
    assert [row["taskId"] for row in done] == [str(task.pk) for task in tasks]


def test_a_filter_chooses_live_tasks(tenant: Tenant, operator: Api) -> None:
    """Ended ones only where the filter names their status."""
    for workflow in ("a", "a", "b"):
        make_task(tenant=tenant, workflow=workflow)
    make_task(tenant=tenant, workflow="a", status="cancelled")
    make_task(tenant=make_tenant(), workflow="a")
    dry = ask(operator, select={"workflow": "a"}, dryRun=True).json()
    assert (len(dry["tasks"]), dry["refused"]) == (2, [])
    ended = ask(operator, select={"status": ["cancelled"]}, dryRun=True).json()
    assert [row["code"] for row in ended["refused"]] == ["task_terminal"]
    assert len(ask(operator, select={"workflow": "a"}).json()["done"]) == 2
    assert states(tenant) == ["cancelled", "paused", "paused", "queued"]


def test_a_filter_goes_on_by_its_cursor(
    tenant: Tenant, operator: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than one call may choose: `nextCursor` leads on, and ends."""
    monkeypatch.setattr("tasks_app.admission.bulk.CHOSEN_MAX", 2)
    for _ in range(3):
        make_task(tenant=tenant)
    first = ask(operator, select={}).json()
    rest = ask(operator, select={"cursor": first["nextCursor"]}).json()
    assert (len(first["done"]), len(rest["done"]), rest["nextCursor"]) == (2, 1, None)
    foreign = ask(operator, select={"cursor": first["nextCursor"], "workflow": "x"})
    assert (foreign.status_code, foreign.json()["errors"][0]["pointer"]) == (422, "/select/cursor")


def test_a_repeat_tells_nothing_twice(tenant: Tenant, operator: Api) -> None:
    """U39: by a filter, too, the key means the tasks of the first time."""
    for _ in range(2):
        make_task(tenant=tenant)
    first = ask(operator, key="k", select={"status": ["queued"]})
    make_task(tenant=tenant)
    again = ask(operator, key="k", select={"status": ["queued"]})
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    assert [row["commandId"] for row in again.json()["done"]] == [
        row["commandId"] for row in first.json()["done"]
    ]
    assert {row["replayed"] for row in again.json()["done"]} == {True}
    assert SteeringCommand.objects.for_tenant(tenant.id).count() == 2
    assert states(tenant) == ["paused", "paused", "queued"]
    other = ask(operator, key="k", select={})
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_mismatch")


def test_a_repeat_tells_those_that_a_crash_left_out(
    tenant: Tenant, operator: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies after the first task: the same request tells the second, and only it."""
    tasks = [make_task(tenant=tenant) for _ in range(2)]
    body = named(tasks)
    from tasks_app.admission import commands

    submit = commands.submit_command
    told: list[int] = []

    def dying(*args: Any, **kwargs: Any) -> Any:
        if told:
            raise KeyboardInterrupt
        told.append(1)
        return submit(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(commands, "submit_command", dying)
        with pytest.raises(KeyboardInterrupt):
            ask(operator, key="k", tasks=body)
    again = ask(operator, key="k", tasks=body).json()
    assert [row["replayed"] for row in again["done"]] == [True, False]
    assert SteeringCommand.objects.for_tenant(tenant.id).count() == 2


def test_priority_is_set_for_many(tenant: Tenant, operator: Api) -> None:
    """The payload is that of one command."""
    tasks = [make_task(tenant=tenant) for _ in range(2)]
    answer = ask(operator, type="set_priority", payload={"priority": 1}, tasks=named(tasks))
    assert len(answer.json()["done"]) == 2
    rows = Task.objects.for_tenant(tenant.id)
    assert set(rows.values_list("priority", flat=True)) == {1}


def test_submitters_reach_their_own(tenant: Tenant) -> None:
    """What somebody else started is not there, by id and by filter."""
    owner = make_member(tenant, "submitter")
    task = make_task(tenant=tenant, initiator=owner)
    other = api_of(tenant, "submitter")
    assert [row["code"] for row in ask(other, tasks=named([task])).json()["refused"]] == [
        "not_found"
    ]
    assert ask(other, select={}).json()["done"] == []


def test_cancelling_needs_its_own_right(tenant: Tenant) -> None:
    """S14: who may pause may not cancel; no task is touched, and the key is free again."""
    make_task(tenant=tenant)
    api = api_of(tenant, "operator", scopes=("tasks:read", "tasks:steer"))
    answer = ask(api, key="k", type="cancel", select={})
    assert (answer.status_code, answer.json()["capability"]) == (403, "tasks:cancel")
    assert len(ask(api, key="k", select={}).json()["done"]) == 1


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, ""),
        ({"tasks": [{"taskId": str(uuid4())}], "select": {}}, ""),
        ({"tasks": []}, "/tasks"),
        ({"tasks": [{"taskId": str(uuid4())}] * 501}, "/tasks"),
        ({"select": {"colour": "red"}}, "/select/colour"),
        ({"select": {}, "type": "adjust_goal"}, "/type"),
        ({"select": {}, "payload": {"x": 1}}, "/payload/x"),
        ({"select": {}, "type": "set_priority"}, "/payload/priority"),
        ({"select": {}, "reason": ""}, "/reason"),
        ({"select": {}, "reason": " "}, "/reason"),
    ],
)
def test_what_does_not_fit_is_refused(operator: Api, body: dict[str, Any], pointer: str) -> None:
    """422 at the field, before any task is touched."""
    answer = ask(operator, **body)
    assert answer.status_code == 422, answer.content
    assert answer.json()["errors"][0]["pointer"] == pointer
