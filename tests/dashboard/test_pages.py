"""Rules: every page answers, shows what it should to whom it should, and asks few queries."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from tasks_app.admission.principal import from_user
from tasks_app.admission.tasks import admit_task
from tasks_app.dashboard.taskpage import TABS
from tasks_app.engine.slice_runner import run_slice
from tasks_app.models import Approval, Artifact, Event, Step, Task, Tenant
from tests import factories

pytestmark = pytest.mark.django_db(transaction=True)

SCRIPT: list[dict[str, Any]] = [
    {"op": "say", "text": "hello"},
    {"op": "map", "count": 5, "fail": [2], "chunk": 2},
    {"op": "write", "path": "report.txt", "text": "the report"},
    {"op": "effect", "key": "publish", "approve": True},
]


@pytest.fixture
def tenant() -> Tenant:
    return factories.make_tenant()


def window(user: Any) -> Client:
    """Return a signed-in test client."""
    client = Client()
    client.force_login(user)
    return client


def run(task_id: Any) -> Task:
    """Run a task until it waits or ends."""
    while run_slice(task_id) not in {"idle", "lost"}:
        pass
    return read(task_id)


def read(task_id: Any) -> Task:
    """Return a task as it is stored now."""
    return Task.objects.all_tenants("test").get(pk=task_id)


def start(tenant: Tenant, script: list[dict[str, Any]] = SCRIPT, **more: Any) -> Task:
    """Admit a scripted task and run it until it waits or ends."""
    user = factories.make_member(tenant, ["submitter", "operator"])
    admitted = admit_task(
        from_user(user, tenant.pk), workflow="scripted", goal={"script": script}, source="dashboard",
        **more,
    )  # fmt: skip
    return run(admitted.task_id)


@pytest.mark.parametrize("tab", TABS)
def test_each_tab_of_a_waiting_task_answers(tenant: Tenant, tab: str) -> None:
    """All parts of a task's page can be read, and the live fragment has head and body."""
    task = start(tenant)
    client = window(task.initiator)
    suffix = "" if tab == "overview" else f"{tab}/"
    page = client.get(f"/tasks/{task.pk}/{suffix}")
    assert page.status_code == 200
    assert b"Input required" in page.content
    live = client.get(f"/tasks/{task.pk}/live/?tab={tab}")
    assert live.content.count(b"<hx-partial") == 2


def test_list_shows_only_the_tenants_tasks(tenant: Tenant) -> None:
    """Another tenant's task is neither listed nor found by its address."""
    mine = factories.make_task(tenant=tenant, title="Mine alone")
    other = factories.make_task(title="Somebody else's")
    client = window(factories.make_member(tenant, "operator"))
    page = client.get("/tasks/").content.decode()
    assert mine.title in page
    assert "Somebody else" not in page
    assert client.get(f"/tasks/{other.pk}/").status_code == 404
    assert client.get(f"/tasks/{other.pk}/live/").status_code == 404


def test_list_filters_by_state_title_and_id(tenant: Tenant) -> None:
    """The address bar carries the filter."""
    paused = factories.make_task(tenant=tenant, title="Alpha", status="paused")
    queued = factories.make_task(tenant=tenant, title="Beta")
    client = window(factories.make_member(tenant, "operator"))

    def found(query: str) -> set[str]:
        text = client.get(f"/tasks/?{query}").content.decode()
        return {task.title for task in (paused, queued) if f"t-{task.pk}" in text}

    assert found("state=paused") == {"Alpha"}
    assert found("q=bet") == {"Beta"}
    assert found(f"q={str(queued.pk)[:8]}") == {"Beta"}
    assert found("workflow=scripted") == {"Alpha", "Beta"}
    assert found("q=nothing") == set()


def test_list_pages_by_cursor(tenant: Tenant) -> None:
    """Sixty tasks make two pages without a row twice; a foreign cursor is refused."""
    owner = factories.make_member(tenant, "submitter")
    for _number in range(60):
        factories.make_task(tenant=tenant, initiator=owner)
    client = window(factories.make_member(tenant, "operator"))
    first = client.get("/tasks/")
    second = client.get(f"/tasks/?{first.context['next_query']}")
    ids = [row.id for page in (first, second) for row in page.context["page"].items]
    assert len(ids) == len(set(ids)) == 60
    cursor = first.context["page"].next_cursor
    assert client.get("/tasks/", {"cursor": cursor, "q": "x"}).status_code == 400


def test_list_and_task_page_ask_few_queries(
    tenant: Tenant, django_assert_max_num_queries: Any
) -> None:
    """At most 8 queries for the list and 14 for a task, without session and user (U30)."""
    task = start(tenant)
    client = window(task.initiator)
    with django_assert_max_num_queries(10):
        client.get("/tasks/")
    with django_assert_max_num_queries(18):
        client.get(f"/tasks/{task.pk}/")


def test_hostile_text_is_shown_as_text(tenant: Tenant) -> None:
    """Markup is escaped and hidden characters are made visible, wherever a document speaks (U29)."""
    evil = "<script>alert(1)</script>\u202eevil"
    script: list[dict[str, Any]] = [
        {"op": "say", "text": evil},
        {"op": "set", "values": {evil: evil}},
    ]
    task = start(tenant, script, title=evil)
    client = window(task.initiator)
    for tab in TABS:
        suffix = "" if tab == "overview" else f"{tab}/"
        page = client.get(f"/tasks/{task.pk}/{suffix}").content.decode()
        assert "<script>alert" not in page
        assert "U+202E" in page


def test_download_is_an_attachment_and_scoped(tenant: Tenant) -> None:
    """The browser never draws an output; another tenant gets 404."""
    task = start(tenant)
    artifact = Artifact.objects.for_tenant(tenant.pk).get(task_id=task.pk, name="report.txt")
    answer = window(task.initiator).get(f"/artifacts/{artifact.pk}/")
    assert b"".join(answer.streaming_content) == b"the report"  # type: ignore[attr-defined]
    assert answer["Content-Disposition"].startswith("attachment")
    assert answer["Content-Security-Policy"] == "sandbox"
    stranger = factories.make_member(factories.make_tenant(), "operator")
    assert window(stranger).get(f"/artifacts/{artifact.pk}/").status_code == 404


def test_pages_need_a_sign_in_and_fragments_say_so() -> None:
    """A page leads to the login and back; a fragment answers 401, so that nothing is swapped."""
    client = Client()
    page = client.get("/tasks/?state=paused")
    assert page.status_code == 302
    assert page["Location"] == "/login/?next=/tasks/%3Fstate%3Dpaused"
    assert client.get("/tasks/live/", headers={"HX-Request": "true"}).status_code == 401


def test_login_signs_in_and_out() -> None:
    """The form works without scripts and refuses a wrong password in one way."""
    tenant = factories.make_tenant()
    user = factories.make_member(tenant, "viewer")
    client = Client()
    wrong = client.post("/login/", {"username": user.username, "password": "no"})
    assert b'role="alert"' in wrong.content
    right = client.post("/login/", {"username": user.username, "password": factories.PASSWORD})
    assert right["Location"] == "/tasks/"
    assert client.get("/tasks/").status_code == 200
    assert client.post("/logout/")["Location"] == "/login/"
    assert client.get("/tasks/").status_code == 302


def test_user_without_a_tenant_is_told_so() -> None:
    """Signed in but no member: a page that says it, not an empty list."""
    page = window(factories.make_user()).get("/tasks/")
    assert page.status_code == 403
    assert b"not a member" in page.content


def test_tenant_is_switched_only_to_ones_own(tenant: Tenant) -> None:
    """The switcher changes what is listed; a tenant without membership is ignored."""
    second, foreign = factories.make_tenant(name="Second"), factories.make_tenant()
    user = factories.make_member(tenant, "operator")
    factories.make_member(second, "operator", user=user)
    factories.make_task(tenant=second, title="In the second")
    client = window(user)
    client.post("/tenant/", {"tenant": second.slug})
    assert b"In the second" in client.get("/tasks/").content
    client.post("/tenant/", {"tenant": foreign.slug})
    assert b"In the second" in client.get("/tasks/").content


def test_theme_is_kept_in_a_cookie_and_leads_back_home(tenant: Tenant) -> None:
    """The server writes the theme into the page; a foreign address is not followed."""
    client = window(factories.make_member(tenant, "viewer"))
    answer = client.post("/theme/", {"theme": "dark", "next": "https://evil.example/"})
    assert answer["Location"] == "/"
    assert b'data-theme="dark"' in client.get("/tasks/").content


def test_viewer_sees_why_buttons_are_missing(tenant: Tenant) -> None:
    """A viewer's steering buttons are disabled with the missing capability as text."""
    task = start(tenant)
    page = (
        window(factories.make_member(tenant, "viewer")).get(f"/tasks/{task.pk}/").content.decode()
    )
    assert "Needs the capability tasks:steer." in page
    assert "Needs the capability tasks:cancel." in page


def test_events_are_paged_from_the_newest(tenant: Tenant) -> None:
    """The newest hundred first, older ones by the address."""
    task = factories.make_task(tenant=tenant)
    for seq in range(1, 151):
        Event.objects.create(
            tenant=tenant, task=task, seq=seq, type="log", data={"message": f"line {seq}"}
        )
    client = window(factories.make_member(tenant, "operator"))
    first = client.get(f"/tasks/{task.pk}/events/")
    assert [e.seq for e in first.context["body"]["events"]] == list(range(150, 50, -1))
    older = client.get(f"/tasks/{task.pk}/events/?before={first.context['body']['older']}")
    assert [e.seq for e in older.context["body"]["events"]] == list(range(50, 0, -1))


def test_approval_page_shows_every_argument_and_the_digest(tenant: Tenant) -> None:
    """What is decided is readable in full, with its digest; who asked for it cannot decide."""
    task = start(tenant)
    approval = Approval.objects.for_tenant(tenant.pk).get(task_id=task.pk)
    page = window(factories.make_member(tenant, "approver")).get(f"/approvals/{approval.pk}/")
    text = page.content.decode()
    assert approval.args_sha256 in text
    assert "operation" in text
    assert 'value="approve"' in text
    own = window(task.initiator).get(f"/approvals/{approval.pk}/").content.decode()
    assert 'value="approve"' not in own


def test_inbox_counts_what_waits_for_me(tenant: Tenant) -> None:
    """The navigation shows the number of approvals that this person can decide."""
    start(tenant)
    approver = window(factories.make_member(tenant, "approver"))
    assert approver.get("/tasks/").context["chrome"].waiting == 1
    assert len(approver.get("/approvals/").context["approvals"]) == 1
    assert approver.get("/approvals/?tab=decided").context["approvals"] == []
    operator = window(factories.make_member(tenant, "operator"))
    assert operator.get("/tasks/").context["chrome"].waiting == 0


def test_unknown_addresses_are_404(tenant: Tenant) -> None:
    """A tab, task or workflow that does not exist is not found; a bad number is not a failure."""
    task = factories.make_task(tenant=tenant)
    client = window(factories.make_member(tenant, ["operator", "submitter"]))
    assert client.get(f"/tasks/{task.pk}/nonsense/").status_code == 404
    assert client.get(f"/tasks/{uuid4()}/").status_code == 404
    assert client.get("/tasks/new/nonsense/").status_code == 404
    assert client.get(f"/tasks/{task.pk}/events/?before=abc").status_code == 200


def test_waiting_queue_says_that_no_worker_came(tenant: Tenant) -> None:
    """A due task that nobody takes explains why nothing moves."""
    late = timezone.now() - timedelta(minutes=2)
    task = factories.make_task(tenant=tenant, next_wake_at=late)
    page = window(factories.make_member(tenant, "operator")).get(f"/tasks/{task.pk}/")
    assert b"No worker has taken it" in page.content


@pytest.mark.parametrize("workflow", ["scripted", "contracts.review"])
def test_each_workflow_has_a_form(tenant: Tenant, workflow: str) -> None:
    """Every installed workflow's schema becomes a form that can be shown."""
    client = window(factories.make_member(tenant, "submitter"))
    assert workflow.encode() in client.get("/tasks/new/").content
    assert client.get(f"/tasks/new/{workflow}/").status_code == 200


def test_goal_and_question_are_shown_as_forms(tenant: Tenant) -> None:
    """A waiting question is asked by a form from its schema; the goal can be changed by one."""
    answer = {
        "type": "object",
        "required": ["entity"],
        "properties": {"entity": {"type": "string", "title": "Entity", "enum": ["A", "B"]}},
    }
    task = start(tenant, [{"op": "interrupt", "value": "Which entity?", "answer": answer}])
    client = window(task.initiator)
    page = client.get(f"/tasks/{task.pk}/").content.decode()
    assert "Which entity?" in page
    assert 'name="goal/entity"' in page
    assert client.get(f"/tasks/{task.pk}/goal/").status_code == 200


def test_long_plan_is_folded(tenant: Tenant) -> None:
    """A plan of 300 steps is a few rows with counts, small enough to refresh (U30)."""
    script = [{"op": "say", "text": f"line {number}"} for number in range(300)]
    task = start(tenant, [*script, {"op": "effect", "key": "publish", "approve": True}])
    client = window(task.initiator)
    page = client.get(f"/tasks/{task.pk}/steps/")
    rows = page.context["body"]["steps"]
    assert [(r.method, r.items_done, r.items_total, r.status) for r in rows] == [
        ("run", 300, 300, "succeeded"),
        ("approve_act_publish", 0, 1, "waiting"),
        ("act", 0, 1, "planned"),
    ]
    assert len(page.content) < 120_000


def test_audit_tab_shows_the_newest_entries(tenant: Tenant) -> None:
    """The last entry of the task's stream comes first, people by name."""
    task = start(tenant)
    client = window(task.initiator)
    client.post(
        f"/tasks/{task.pk}/steer/",
        {"type": "pause", "reason": "r", "expected_version": task.state_version,
         "idempotency_key": uuid4()},
    )  # fmt: skip
    entries = client.get(f"/tasks/{task.pk}/audit/").context["body"]["entries"]
    assert entries[0].seq == len(entries)
    assert entries[0].action == "command.accepted"
    assert entries[0].who == task.initiator.username


def test_calls_of_one_step_can_be_told_apart(tenant: Tenant) -> None:
    """A loop calls its steps in every turn: the table names the turn, and so does the drawing."""
    user = factories.make_member(tenant, ["submitter", "operator"])
    made = admit_task(
        from_user(user, tenant.pk), workflow="scripted.loop", goal={"turns": 2}, source="dashboard"
    )
    task = run(made.task_id)
    text = window(task.initiator).get(f"/tasks/{task.pk}/steps/").content.decode()
    said = list(
        Step.objects.for_tenant(tenant.pk).filter(method="say").values_list("key", flat=True)
    )
    assert len(said) == 2
    for key in said:
        assert f'<span class="mono mut">{key}</span>' in text
