"""Rules: every write is a plain form; what is refused comes back with the text kept."""

from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from tasks_app.models import Approval, ApprovalDecision, Membership, SteeringCommand, Task, Tenant
from tests import factories
from tests.dashboard.test_pages import read, start, window

pytestmark = pytest.mark.django_db(transaction=True)
HTMX = {"HX-Request": "true"}


@pytest.fixture
def tenant() -> Tenant:
    return factories.make_tenant()


def steer(
    client: Client,
    task: Task,
    type_: str,
    *,
    htmx: bool = False,
    extra: dict[str, str] | None = None,
    **more: Any,
) -> Any:
    posted = {
        "type": type_, "reason": "because", "expected_version": task.state_version,
        "idempotency_key": uuid4(), **more, **(extra or {}),
    }  # fmt: skip
    return client.post(f"/tasks/{task.pk}/steer/", posted, headers=HTMX if htmx else {})


def decide(client: Client, approval: Approval, decision: str, **more: Any) -> Any:
    posted = {
        "decision": decision, "reason": "read it", "version": approval.version,
        "args_sha256": approval.args_sha256, **more,
    }  # fmt: skip
    return client.post(f"/approvals/{approval.pk}/", posted)


def open_approval(task: Task) -> Approval:
    return Approval.objects.for_tenant(task.tenant_id).get(task_id=task.pk)


def test_pause_without_scripts_leads_back_to_the_task(tenant: Tenant) -> None:
    """Post, redirect, get; the command is stored with reason and source."""
    task = start(tenant)
    client = window(task.initiator)
    answer = steer(client, task, "pause", reason="Quarter end")
    assert (answer.status_code, answer["Location"]) == (302, f"/tasks/{task.pk}/")
    page = client.get(answer["Location"]).content.decode()
    assert "It has taken effect." in page
    assert "Resume task" in page
    assert "Quarter end" in page
    assert read(task.pk).status == "paused"
    command = SteeringCommand.objects.for_tenant(tenant.pk).get(task_id=task.pk)
    assert (command.reason, command.source) == ("Quarter end", "dashboard")


def test_pause_by_htmx_returns_the_panel_alone(tenant: Tenant) -> None:
    """The fragment says accepted and acts on the new version."""
    task = start(tenant)
    answer = steer(window(task.initiator), task, "pause", htmx=True)
    text = answer.content.decode()
    assert answer.status_code == 200
    assert text.lstrip().startswith('<form id="steer"')
    assert f'data-version="{read(task.pk).state_version}"' in text


@pytest.mark.parametrize("htmx", [True, False])
def test_stale_version_is_a_conflict_with_the_text_kept(tenant: Tenant, htmx: bool) -> None:
    """409 names both versions and who changed it; "Use version" adopts; then it is applied."""
    task = start(tenant)
    other = factories.make_member(tenant, "operator")
    steer(window(other), task, "set_priority", priority="1")
    client = window(task.initiator)
    answer = steer(client, task, "pause", reason="my long reason", htmx=htmx)
    text = answer.content.decode()
    now = read(task.pk)
    assert answer.status_code == 409
    assert now.status == "input_required"
    assert f"from version {task.state_version} to {now.state_version}" in text
    assert "my long reason" in text
    assert other.username in text
    adopted = steer(
        client, task, "pause", reason="my long reason", htmx=htmx, adopt=now.state_version
    )
    assert "my long reason" in adopted.content.decode()
    assert read(task.pk).status == "input_required"
    assert f'name="expected_version" value="{now.state_version}"' in adopted.content.decode()
    steer(client, now, "pause", reason="my long reason", htmx=htmx)
    assert read(task.pk).status == "paused"


def test_two_people_at_one_version_one_is_applied(tenant: Tenant) -> None:
    """Of two commands with one version exactly one is accepted (U19, M16.4)."""
    task = start(tenant)
    second = factories.make_member(tenant, "operator")
    codes = [
        steer(window(user), task, "pause", htmx=True).status_code
        for user in (task.initiator, second)
    ]
    assert codes == [200, 409]


def test_the_same_form_twice_counts_once(tenant: Tenant) -> None:
    """A double click sends the same key; the second answer is the first one."""
    task = start(tenant)
    client, key = window(task.initiator), uuid4()
    codes = [steer(client, task, "pause", idempotency_key=key).status_code for _again in range(2)]
    assert codes == [302, 302]
    assert SteeringCommand.objects.for_tenant(tenant.pk).filter(task_id=task.pk).count() == 1


def test_missing_reason_is_shown_at_its_field(tenant: Tenant) -> None:
    """422 with the field marked; other text stays."""
    task = start(tenant)
    answer = steer(
        window(task.initiator), task, "set_priority", reason=" ", priority="3", htmx=True
    )
    text = answer.content.decode()
    assert answer.status_code == 422
    assert 'aria-invalid="true"' in text
    assert 'id="reason-err"' in text
    assert 'value="3"' in text


def test_bad_priority_opens_its_part_with_the_error(tenant: Tenant) -> None:
    """A field problem inside a folded part unfolds it."""
    task = start(tenant)
    answer = steer(window(task.initiator), task, "set_priority", priority="77", htmx=True)
    assert answer.status_code == 422
    assert 'id="priority-err"' in answer.content.decode()


def test_viewer_is_refused_with_the_capability_named(tenant: Tenant) -> None:
    """A hand-made post by a viewer changes nothing and says what is missing."""
    task = start(tenant)
    answer = steer(window(factories.make_member(tenant, "viewer")), task, "pause", htmx=True)
    assert answer.status_code == 403
    assert "tasks:steer" in answer.content.decode()
    assert read(task.pk).status == "input_required"


def test_foreign_task_cannot_be_steered(tenant: Tenant) -> None:
    """Another tenant's task is not found, whatever is posted."""
    task = start(tenant)
    stranger = factories.make_member(factories.make_tenant(), "operator")
    assert steer(window(stranger), task, "cancel").status_code == 404


def test_question_is_answered_by_its_form(tenant: Tenant) -> None:
    """Fields of the question's schema become the answer; a wrong one is refused."""
    answer_schema = {
        "type": "object",
        "required": ["entity"],
        "additionalProperties": False,
        "properties": {"entity": {"type": "string", "enum": ["A", "B"]}},
    }
    task = start(tenant, [{"op": "interrupt", "value": "Which?", "answer": answer_schema}])
    client = window(task.initiator)
    missing = steer(client, task, "provide_input", htmx=True)
    assert missing.status_code == 422
    assert "needed" in missing.content.decode()
    steer(client, task, "provide_input", extra={"goal/entity": "B"})
    assert read(task.pk).status != "input_required"


def test_goal_form_sends_only_what_was_changed(tenant: Tenant) -> None:
    """The merge patch holds the one changed field; nothing changed sends nothing."""
    task = start(tenant)
    client = window(task.initiator)
    page = client.get(f"/tasks/{task.pk}/goal/")
    posted = {
        "expected_version": page.context["form"].expected_version,
        "idempotency_key": page.context["form"].idempotency_key,
        "base": page.context["base"],
        "type": "adjust_goal",
        "reason": "because",
    } | {f.name: f.value for f in page.context["form"].fields if f.kind != "boolean"}
    same = client.post(f"/tasks/{task.pk}/goal/", posted)
    assert same.status_code == 422
    assert "Nothing was changed" in same.content.decode()
    changed = client.post(f"/tasks/{task.pk}/goal/", posted | {"goal/note": "new note"})
    assert changed.status_code == 302
    command = SteeringCommand.objects.for_tenant(tenant.pk).get(task_id=task.pk)
    assert command.payload == {"note": "new note"}
    assert read(task.pk).goal["note"] == "new note"
    assert "goal changed" in client.get(f"/tasks/{task.pk}/steps/").content.decode()


def test_goal_form_shows_a_preview_without_a_script(tenant: Tenant) -> None:
    """E72: what the plan would keep is told with the text kept; nothing is stored."""
    task = start(tenant)
    client = window(task.initiator)
    page = client.get(f"/tasks/{task.pk}/goal/")
    form = page.context["form"]
    posted = {
        "expected_version": form.expected_version,
        "idempotency_key": form.idempotency_key,
        "base": page.context["base"],
        "type": "adjust_goal",
        "reason": "",
        "preview": "1",
    } | {f.name: f.value for f in form.fields if f.kind != "boolean"}
    url = f"/tasks/{task.pk}/goal/"
    shown = client.post(url, posted | {"goal/note": "maybe"})
    assert shown.status_code == 200
    assert "Preview: nothing was changed." in shown.content.decode()
    assert shown.context["preview"].difference["added"]["count"] == 0
    assert 'value="maybe"' in shown.content.decode()
    assert shown.context["form"].idempotency_key == form.idempotency_key
    assert client.post(url, posted | {"expected_version": "9", "goal/note": "x"}).status_code == 409
    assert read(task.pk).goal == task.goal
    assert not SteeringCommand.objects.for_tenant(tenant.pk).filter(task_id=task.pk).exists()


def test_new_task_starts_once_for_a_double_click(tenant: Tenant) -> None:
    """The form's key makes the second press lead to the same task."""
    client = window(factories.make_member(tenant, "submitter"))
    posted = {
        "title": "From a form", "priority": "4", "idempotency_key": str(uuid4()),
        "goal/script": '[{"op": "say", "text": "hi"}]', "goal/note": "",
    }  # fmt: skip
    first = client.post("/tasks/new/scripted/", posted)
    second = client.post("/tasks/new/scripted/", posted)
    assert first.status_code == 302
    assert first["Location"] == second["Location"]
    task = Task.objects.for_tenant(tenant.pk).get()
    assert (task.title, task.priority, task.source) == ("From a form", 4, "dashboard")


@pytest.mark.parametrize(
    ("field", "value", "where"),
    [
        ("goal/script", "{nope", 'id="f-script-err"'),
        ("goal/script", "", 'id="f-script-err"'),
        ("goal/script", '[{"op": "unknown"}]', 'id="f-script-err"'),
        ("priority", "abc", 'id="priority-err"'),
        ("goal/refuse_goal", "true", "The script refuses its goal."),
    ],
)
def test_bad_input_is_shown_at_its_field_and_nothing_is_stored(
    tenant: Tenant, field: str, value: str, where: str
) -> None:
    """422, the error beside its field, the rest of the text kept (U20)."""
    client = window(factories.make_member(tenant, "submitter"))
    posted = {
        "title": "Kept title", "priority": "4", "idempotency_key": str(uuid4()),
        "goal/script": '[{"op": "say", "text": "hi"}]', field: value,
    }  # fmt: skip
    answer = client.post("/tasks/new/scripted/", posted)
    text = answer.content.decode()
    assert answer.status_code == 422
    assert where in text
    assert "Kept title" in text
    assert not Task.objects.for_tenant(tenant.pk).exists()


def test_run_again_fills_the_form(tenant: Tenant) -> None:
    """The form starts from the goal of the task it was pressed on; a foreign one is not found."""
    task = start(tenant, [{"op": "say", "text": "again please"}])
    client = window(task.initiator)
    page = client.get(f"/tasks/new/scripted/?from={task.pk}").content.decode()
    assert "again please" in page
    foreign = factories.make_task()
    assert client.get(f"/tasks/new/scripted/?from={foreign.pk}").status_code == 404


def test_approve_binds_the_digest_and_leads_to_the_next(tenant: Tenant) -> None:
    """The decision stores the digest that was shown; the next waiting one follows."""
    first, second = start(tenant), start(tenant)
    client = window(factories.make_member(tenant, "approver"))
    answer = decide(client, open_approval(first), "approve")
    assert answer["Location"] == f"/approvals/{open_approval(second).pk}/"
    stored = ApprovalDecision.objects.for_tenant(tenant.pk).get()
    assert stored.args_sha256 == open_approval(first).args_sha256
    assert decide(client, open_approval(second), "deny")["Location"] == "/approvals/"
    assert open_approval(second).status == "denied"


def test_changed_arguments_are_a_conflict_with_the_difference(tenant: Tenant) -> None:
    """What was read and what waits now are shown line by line; nothing is decided (S58)."""
    task = start(tenant)
    approval = open_approval(task)
    client = window(factories.make_member(tenant, "approver"))
    read_text = client.get(f"/approvals/{approval.pk}/").context["read"]
    Approval.objects.for_tenant(tenant.pk).filter(pk=approval.pk).update(
        arguments={"args": [{"op": "effect", "key": "another"}], "kwargs": {}},
        args_sha256="f" * 64, version=approval.version + 1,
    )  # fmt: skip
    answer = decide(client, approval, "approve", read=read_text)
    text = answer.content.decode()
    assert answer.status_code == 409
    assert "<del>" in text
    assert "another" in text
    assert "read it" in text
    assert not ApprovalDecision.objects.for_tenant(tenant.pk).exists()


def test_own_request_cannot_be_decided(tenant: Tenant) -> None:
    """Four eyes: no button on the page, and a hand-made post is refused (S59)."""
    task = start(tenant)
    Membership.objects.for_tenant(tenant.pk).filter(user=task.initiator).update(
        roles=["submitter", "operator", "approver"]
    )
    client = window(task.initiator)
    assert b'value="approve"' not in client.get(f"/approvals/{open_approval(task).pk}/").content
    assert decide(client, open_approval(task), "approve").status_code == 403
    assert open_approval(task).status == "pending"


def test_decision_without_reason_keeps_the_page(tenant: Tenant) -> None:
    """A reason is asked for at its field; nothing is decided."""
    task = start(tenant)
    client = window(factories.make_member(tenant, "approver"))
    answer = decide(client, open_approval(task), "deny", reason="")
    assert answer.status_code == 422
    assert b'id="reason-err"' in answer.content
    assert open_approval(task).status == "pending"


def test_writes_need_a_csrf_token(tenant: Tenant) -> None:
    """A form from elsewhere does nothing (S131)."""
    task = start(tenant)
    client = Client(enforce_csrf_checks=True)
    client.force_login(task.initiator)
    assert steer(client, task, "cancel").status_code == 403
    assert read(task.pk).status == "input_required"
