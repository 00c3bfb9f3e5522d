"""Many tasks on a page: chosen as in the list, previewed, ticked, each told by itself (U21)."""

from typing import Any

import pytest
from django.test import Client

from tasks_app.models import SteeringCommand, Task, Tenant
from tests import factories
from tests.dashboard.test_pages import window

pytestmark = pytest.mark.django_db


@pytest.fixture
def tenant() -> Tenant:
    return factories.make_tenant()


@pytest.fixture
def operator(tenant: Tenant) -> Client:
    return window(factories.make_member(tenant, "operator"))


def told(tasks: list[Task]) -> list[str]:
    return [f"{task.pk}:{task.state_version}" for task in tasks]


def post(client: Client, kind: str, tasks: list[Task], **more: Any) -> Any:
    body = {"task": told(tasks), "reason": "lunch", "bulk_id": "5" * 32, **more}
    return client.post(f"/tasks/many/{kind}/?workflow=a", body)


def test_list_leads_to_what_can_be_done_with_all(tenant: Tenant, operator: Client) -> None:
    """The links keep the filter; who may not steer has none."""
    factories.make_task(tenant=tenant, workflow="scripted")
    page = operator.get("/tasks/?workflow=scripted").content.decode()
    for kind in ("pause", "resume", "set_priority", "cancel"):
        assert f'href="/tasks/many/{kind}/?workflow=scripted"' in page
    viewer = window(factories.make_member(tenant, "viewer"))
    assert "/tasks/many/" not in viewer.get("/tasks/").content.decode()


def test_preview_shows_live_tasks_that_fit(tenant: Tenant, operator: Client) -> None:
    """Ticked where the command can apply; ended ones and other workflows are not there."""
    fits = [factories.make_task(tenant=tenant, workflow="a") for _ in range(2)]
    held = factories.make_task(tenant=tenant, workflow="a", status="dead_lettered")
    factories.make_task(tenant=tenant, workflow="a", status="cancelled")
    factories.make_task(tenant=tenant, workflow="b")
    answer = operator.get("/tasks/many/pause/?workflow=a")
    shown = {row["task"].task_id: row["blocked"] for row in answer.context["rows"]}
    assert shown.keys() == {held.pk, *(task.pk for task in fits)}
    assert [task_id for task_id, blocked in shown.items() if blocked] == [held.pk]
    page = answer.content.decode()
    assert page.count('type="checkbox"') == 2
    assert not SteeringCommand.objects.for_tenant(tenant.id).exists()


def test_ticked_tasks_are_told_and_each_has_an_outcome(tenant: Tenant, operator: Client) -> None:
    """One was changed meanwhile: it is refused, the others are told; a repeat tells nobody twice."""
    tasks = [factories.make_task(tenant=tenant, workflow="a") for _ in range(3)]
    Task.objects.for_tenant(tenant.id).filter(pk=tasks[1].pk).update(state_version=4)
    for answer in [post(operator, "pause", tasks) for _ in range(2)]:
        assert [bool(row["refused"]) for row in answer.context["rows"]] == [False, True, False]
        assert 'href="?workflow=a"' in answer.content.decode()
    rows = Task.objects.for_tenant(tenant.id)
    assert [rows.get(pk=task.pk).status for task in tasks] == ["paused", "queued", "paused"]
    assert SteeringCommand.objects.for_tenant(tenant.id).count() == 2


def test_priority_of_many_is_set(tenant: Tenant, operator: Client) -> None:
    """With the number that was written; without one nothing is done."""
    tasks = [factories.make_task(tenant=tenant, workflow="a")]
    assert post(operator, "set_priority", tasks, priority="").status_code == 422
    assert post(operator, "set_priority", tasks, priority="2").status_code == 200
    assert Task.objects.for_tenant(tenant.id).get().priority == 2


@pytest.mark.parametrize("query", ["status=completed", "state=waiting", "state=queued&x=1"])
def test_an_address_that_is_not_understood_chooses_nothing(operator: Client, query: str) -> None:
    """It would be every task otherwise."""
    assert operator.get(f"/tasks/many/cancel/?{query}").status_code == 404
    assert operator.get("/tasks/many/cancel/?state=queued&q=x&workflow=a").status_code == 200


def test_a_refused_form_keeps_the_choice(tenant: Tenant, operator: Client) -> None:
    """What was not ticked, or came since, is not; what was ticked keeps the version that was seen."""
    tasks = [factories.make_task(tenant=tenant, workflow="a") for _ in range(3)]
    chosen = told(tasks[:1])
    Task.objects.for_tenant(tenant.id).filter(pk=tasks[0].pk).update(state_version=4)
    factories.make_task(tenant=tenant, workflow="a")
    answer = post(operator, "cancel", tasks[:1], reason=" ")
    page = answer.content.decode()
    assert answer.status_code == 422
    assert (page.count('type="checkbox"'), page.count(" checked>")) == (4, 1)
    assert f'value="{chosen[0]}" checked>' in page
    [outcome] = post(operator, "cancel", tasks[:1]).context["rows"]
    assert outcome["refused"]


@pytest.mark.parametrize(
    ("body", "status"), [({"task": []}, 422), ({"reason": " "}, 422), ({"task": ["x:1"]}, 422)]
)
def test_unfit_forms_are_shown_again(
    tenant: Tenant, operator: Client, body: dict[str, Any], status: int
) -> None:
    """Nothing is told; what was written stays."""
    task = factories.make_task(tenant=tenant, workflow="a")
    answer = post(operator, "pause", [task], **body)
    assert answer.status_code == status
    assert not SteeringCommand.objects.for_tenant(tenant.id).exists()
    if "reason" not in body:
        assert ">lunch</textarea>" in answer.content.decode()


def test_who_may_not_is_told_what_is_missing(tenant: Tenant) -> None:
    """A viewer sees the capability's name, and a hand-made form is refused."""
    task = factories.make_task(tenant=tenant, workflow="a")
    viewer = window(factories.make_member(tenant, "viewer"))
    page = viewer.get("/tasks/many/cancel/").content.decode()
    assert "tasks:cancel" in page
    assert 'type="checkbox"' not in page
    assert post(viewer, "cancel", [task]).status_code == 403
    assert Task.objects.for_tenant(tenant.id).get().status == "queued"


def test_only_what_makes_sense_for_many_has_a_page(operator: Client) -> None:
    """A goal is changed task by task."""
    assert operator.get("/tasks/many/adjust_goal/").status_code == 404
