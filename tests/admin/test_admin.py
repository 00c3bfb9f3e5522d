"""Rules: the admin shows one tenant, changes nothing by itself, and acts through admission."""

import re
from typing import Any
from uuid import uuid4

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from ledger_app.models import AuditEntry, AuditStream, Effect, Receipt, Usage
from tasks_app import models
from tasks_app.admin.base import ReadOnlyAdmin
from tasks_app.admission.principal import from_user
from tasks_app.admission.tasks import admit_task
from tasks_app.engine.slice_runner import run_slice
from tasks_app.models import Approval, Repair, SteeringCommand, Task, Tenant
from tests import factories

pytestmark = pytest.mark.django_db(transaction=True)

SCRIPT = [
    {"op": "say", "text": "hello"},
    {"op": "write", "path": "report.txt", "text": "the report"},
    {"op": "effect", "key": "publish", "approve": True},
]
EVERY_ROLE = ["submitter", "operator", "admin", "auditor"]
OURS = [
    model
    for model, model_admin in admin.site._registry.items()
    if isinstance(model_admin, ReadOnlyAdmin)
]


def make_staff(tenant: Tenant, roles: Any) -> User:
    return factories.make_member(tenant, roles, user=factories.make_user(is_staff=True))


def window(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def waiting_task(tenant: Tenant, owner: User) -> Task:
    """Return a task that waits for an approval, with a row in every table."""
    principal = from_user(owner, tenant.pk)
    goal = {"script": SCRIPT}
    made = admit_task(principal, workflow="scripted", goal=goal, source="admin")
    while run_slice(made.task_id) not in {"idle", "lost"}:
        pass
    return read(made.task_id)


def read(task_id: Any) -> Task:
    return Task.objects.all_tenants("test").get(pk=task_id)


def act(client: Client, task: Task, type_: str, **more: Any) -> str:
    """Press a button of the act panel and return the text of the page that follows."""
    posted = {
        "type": type_, "reason": "because", "expected_version": task.state_version,
        "idempotency_key": uuid4(), **more,
    }  # fmt: skip
    address = reverse("admin:tasks_app_task_act", args=[task.pk])
    return client.post(address, posted, follow=True).content.decode()


@pytest.fixture
def tenant() -> Tenant:
    return factories.make_tenant()


@pytest.mark.parametrize("model", OURS, ids=lambda model: model.__name__)
def test_list_search_and_page_answer(tenant: Tenant, model: Any) -> None:
    """Every list can be shown, searched and, where it has rows, opened."""
    staff = make_staff(tenant, EVERY_ROLE)
    waiting_task(tenant, staff)
    client = window(staff)
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
    assert client.get(reverse(f"{name}_changelist")).status_code == 200
    assert client.get(reverse(f"{name}_changelist"), {"q": "abc"}).status_code == 200
    request = type("R", (), {"user": staff, "session": {}})()
    row = admin.site._registry[model].get_queryset(request).first()
    if row is not None:
        page = client.get(reverse(f"{name}_change", args=[row.pk]))
        assert page.status_code == 200
        assert b'name="_save"' not in page.content


def test_every_model_of_the_contract_has_a_page() -> None:
    """The admin leaves no table of the runtime out."""
    wanted = {
        models.Task, models.Thread, models.Step, models.Slice, models.Checkpoint,
        models.SteeringCommand, models.Approval, models.Event, models.Outbox, models.Artifact,
        models.Tenant, models.Membership, models.ApiKey, models.AgentIdentity, models.Attempt,
        models.Repair, models.Run, models.ThreadState, models.Schedule,
        models.WebhookEndpoint, models.WebhookDelivery,
        Effect, Receipt, Usage, AuditEntry,
    }  # fmt: skip
    assert wanted <= set(OURS)


@pytest.mark.parametrize(
    ("model", "one", "many"),
    [
        (models.AgentIdentity, "agent identity", "agent identities"),
        (models.ApiKey, "API key", "API keys"),
        (models.Outbox, "outbox message", "outbox messages"),
        (AuditEntry, "audit entry", "audit entries"),
        (Usage, "usage", "usage"),
    ],
)
def test_models_are_named_as_people_would(model: Any, one: str, many: str) -> None:
    """The names come from the models, so that every page of the admin says the same."""
    assert (str(model._meta.verbose_name), str(model._meta.verbose_name_plural)) == (one, many)


def test_nothing_can_be_added_changed_or_deleted(tenant: Tenant) -> None:
    """Forms of the model pages do not exist, and a hand-made POST is refused (S130)."""
    staff = make_staff(tenant, EVERY_ROLE)
    task = factories.make_task(tenant=tenant)
    client = window(staff)
    assert client.get(reverse("admin:tasks_app_task_add")).status_code == 403
    page = reverse("admin:tasks_app_task_change", args=[task.pk])
    assert client.post(page, {"title": "x"}).status_code == 403
    gone = reverse("admin:tasks_app_task_delete", args=[task.pk])
    assert client.post(gone, {"post": "yes"}).status_code == 403
    assert read(task.pk).title == task.title


def test_another_tenants_rows_are_not_shown(tenant: Tenant) -> None:
    """List, page and act panel know only the active tenant; a guess leads nowhere."""
    foreign = factories.make_task(title="Somebody else's")
    client = window(make_staff(tenant, EVERY_ROLE))
    assert b"Somebody else" not in client.get(reverse("admin:tasks_app_task_changelist")).content
    page = client.get(reverse("admin:tasks_app_task_change", args=[foreign.pk]))
    assert page.status_code == 302
    address = reverse("admin:tasks_app_task_act", args=[foreign.pk])
    assert client.post(address, {"type": "pause"}).status_code == 404
    history = client.get(reverse("admin:tasks_app_task_history", args=[foreign.pk]))
    assert history.status_code == 302


def test_superuser_without_membership_sees_nothing_of_a_tenant(tenant: Tenant) -> None:
    """Being a superuser gives no right in a tenant (S12, A45)."""
    factories.make_task(tenant=tenant)
    client = window(factories.make_user(is_staff=True, is_superuser=True))
    assert client.get(reverse("admin:tasks_app_task_changelist")).status_code == 403
    assert b"tasks_app/task/" not in client.get("/admin/").content


def test_act_panel_pauses_with_a_reason_and_writes_history(tenant: Tenant) -> None:
    """The panel submits the same command as REST; History tells it besides the audit."""
    staff = make_staff(tenant, EVERY_ROLE)
    task = waiting_task(tenant, staff)
    page = act(window(staff), task, "pause", reason="Quarter end")
    assert "Pause accepted" in page
    assert read(task.pk).status == "paused"
    command = SteeringCommand.objects.for_tenant(tenant.pk).get(task_id=task.pk)
    assert (command.reason, command.source, command.requested_by) == ("Quarter end", "admin", staff)
    assert LogEntry.objects.get(object_id=str(task.pk)).user == staff


def test_act_panel_refuses_a_stale_version_and_an_empty_reason(tenant: Tenant) -> None:
    """Both versions are named and nothing changes; without a reason nothing is sent."""
    staff = make_staff(tenant, EVERY_ROLE)
    task = waiting_task(tenant, staff)
    client = window(staff)
    act(client, task, "set_priority", priority="2")
    page = act(client, task, "pause")
    assert f"you acted on version {task.state_version}" in page
    moved = read(task.pk)
    assert (moved.status, moved.priority) == ("input_required", 2)
    assert "Say why" in act(client, moved, "pause", reason=" ")
    assert read(task.pk).status == "input_required"


def test_act_panel_changes_the_goal_and_cancels(tenant: Tenant) -> None:
    """A merge patch changes the goal; a broken one is refused; cancel ends the task."""
    staff = make_staff(tenant, EVERY_ROLE)
    task = waiting_task(tenant, staff)
    client = window(staff)
    for patch in ("{nope", '{"note": 1, "note": 2}', '{"note": NaN}'):
        assert "is not JSON" in act(client, task, "adjust_goal", patch=patch)
    act(client, task, "adjust_goal", patch='{"note": "new"}')
    assert read(task.pk).goal["note"] == "new"
    act(client, read(task.pk), "cancel")
    assert read(task.pk).status == "cancelled"


def test_act_panel_does_not_act_on_get(tenant: Tenant) -> None:
    """Reading an address changes nothing."""
    staff = make_staff(tenant, EVERY_ROLE)
    task = waiting_task(tenant, staff)
    address = reverse("admin:tasks_app_task_act", args=[task.pk])
    assert window(staff).get(address, {"type": "cancel"}).status_code == 405
    assert read(task.pk).status == "input_required"


def test_viewer_sees_no_usable_button_and_is_refused(tenant: Tenant) -> None:
    """Staff with the role viewer reads; a hand-made POST changes nothing."""
    task = waiting_task(tenant, make_staff(tenant, EVERY_ROLE))
    client = window(make_staff(tenant, "viewer"))
    page = client.get(reverse("admin:tasks_app_task_change", args=[task.pk])).content.decode()
    buttons = re.findall(r'<button class="rt-btn[^>]*>', page)
    assert buttons
    assert all("disabled" in button for button in buttons)
    assert "Nothing was changed" in act(client, task, "pause")
    assert read(task.pk).status == "input_required"


def test_approver_approves_exactly_the_shown_digest(tenant: Tenant) -> None:
    """The panel carries version and digest; another digest is refused."""
    task = waiting_task(tenant, make_staff(tenant, EVERY_ROLE))
    approval = Approval.objects.for_tenant(tenant.pk).get(task_id=task.pk)
    client = window(make_staff(tenant, "approver"))
    address = reverse("admin:tasks_app_approval_act", args=[approval.pk])
    posted = {
        "decision": "approve", "reason": "read it", "version": approval.version,
        "args_sha256": "0" * 64,
    }  # fmt: skip
    assert "Nothing was changed" in client.post(address, posted, follow=True).content.decode()
    page = client.get(reverse("admin:tasks_app_approval_change", args=[approval.pk]))
    assert approval.args_sha256 in page.content.decode()
    answer = client.post(address, posted | {"args_sha256": approval.args_sha256}, follow=True)
    assert "Approved." in answer.content.decode()
    assert Approval.objects.for_tenant(tenant.pk).get(pk=approval.pk).status == "approved"


def test_list_action_asks_first_then_reports_each_row(tenant: Tenant) -> None:
    """The intermediate page names what will not change; the outcome has one line for each row."""
    staff = make_staff(tenant, EVERY_ROLE)
    live = waiting_task(tenant, staff)
    ended = factories.make_task(tenant=tenant, status="completed", title="Long over")
    client = window(staff)
    chosen = {"action": "pause_tasks", "_selected_action": [str(live.pk), str(ended.pk)]}
    listed = reverse("admin:tasks_app_task_changelist")
    preview = client.post(listed, chosen).content.decode()
    assert "1 task will change." in preview
    assert "already ended" in preview
    assert read(live.pk).status == "input_required"
    hidden = dict(re.findall(r'name="((?:version|key)-[^"]+)" value="([^"]+)"', preview))
    outcome = client.post(listed, chosen | hidden | {"confirmed": "yes", "reason": "stop"})
    assert "accepted" in outcome.content.decode()
    assert read(live.pk).status == "paused"


def test_held_task_is_repaired_from_its_panel(tenant: Tenant) -> None:
    """Only verbs that can apply are buttons; the repair is told in the page, its table and History."""
    staff = make_staff(tenant, EVERY_ROLE)
    task = factories.make_task(tenant=tenant, status="dead_lettered", title="Worn out")
    client = window(staff)
    address = reverse("admin:tasks_app_task_change", args=[task.pk])
    page = client.get(address).content.decode()
    assert 'value="requeue"' in page
    assert 'value="continue_from"' not in page
    assert 'value="pause"' not in page
    assert "Nothing was changed" in act(client, task, "continue_from", checkpoint="1")
    assert "Requeue task: done." in act(client, task, "requeue")
    assert read(task.pk).status == "queued"
    repair = Repair.objects.for_tenant(tenant.pk).get()
    assert (repair.source, repair.requested_by_id) == ("admin", staff.pk)
    assert "Too many recoveries" in client.get(address).content.decode()
    history = client.get(reverse("admin:tasks_app_task_history", args=[task.pk]))
    assert "Requeue task: done." in history.content.decode()
    shown = client.get(reverse("admin:tasks_app_repair_change", args=[repair.pk]))
    assert shown.status_code == 200


def test_held_tasks_are_closed_from_the_list(tenant: Tenant) -> None:
    """The intermediate page names what is not held; the others are closed with one reason."""
    staff = make_staff(tenant, EVERY_ROLE)
    held = factories.make_task(tenant=tenant, status="dead_lettered", title="Held")
    free = factories.make_task(tenant=tenant, title="Free")
    client = window(staff)
    chosen = {"action": "close_tasks", "_selected_action": [str(held.pk), str(free.pk)]}
    listed = reverse("admin:tasks_app_task_changelist")
    preview = client.post(listed, chosen).content.decode()
    assert "is not held" in preview
    hidden = dict(re.findall(r'name="((?:version|key)-[^"]+)" value="([^"]+)"', preview))
    client.post(listed, chosen | hidden | {"confirmed": "yes", "reason": "hopeless"})
    assert (read(held.pk).status, read(free.pk).status) == ("failed", "queued")


def test_index_counts_what_needs_a_person(tenant: Tenant) -> None:
    """The front page counts waiting approvals and dead letters, each with its list."""
    staff = make_staff(tenant, EVERY_ROLE)
    waiting_task(tenant, staff)
    factories.make_task(tenant=tenant, status="dead_lettered")
    needs = window(staff).get("/admin/").context["rt_needs"]
    assert [need["count"] for need in needs] == [1, 1, 0, 0]
    for need in needs:
        assert window(staff).get(need["url"]).status_code == 200


def test_secrets_of_keys_are_never_shown(tenant: Tenant) -> None:
    """Neither the digest nor the text of a key is on its page."""
    staff = make_staff(tenant, EVERY_ROLE)
    key, text = factories.make_api_key(tenant, staff)
    page = window(staff).get(reverse("admin:tasks_app_apikey_change", args=[key.pk]))
    assert key.key_id in page.content.decode()
    assert text not in page.content.decode()
    assert bytes(key.digest).hex() not in page.content.decode()


def test_audit_pages_show_the_tenants_streams_only(tenant: Tenant) -> None:
    """Entries belong to streams, and streams to tenants."""
    staff = make_staff(tenant, EVERY_ROLE)
    waiting_task(tenant, staff)
    other = factories.make_tenant()
    foreign = make_staff(other, EVERY_ROLE)
    waiting_task(other, foreign)
    own = set(AuditStream.objects.filter(tenant_id=tenant.pk).values_list("stream", flat=True))
    page = window(staff).get(reverse("admin:ledger_app_auditentry_changelist"))
    shown = {row.stream for row in page.context["cl"].result_list}
    assert shown
    assert shown <= own


def test_index_counts_only_what_its_reader_may_see(tenant: Tenant) -> None:
    """A false zero would hide work; a link would lead to a refusal."""
    waiting_task(tenant, make_staff(tenant, ["operator", "submitter"]))
    client = window(make_staff(tenant, ["admin"]))
    needs = client.get("/admin/").context["rt_needs"]
    assert needs
    for need in needs:
        assert client.get(need["url"]).status_code == 200, need
    operator = window(make_staff(tenant, ["operator"]))
    assert len(operator.get("/admin/").context["rt_needs"]) == 4
