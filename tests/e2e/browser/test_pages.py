"""Rules B1 to B22, as far as their pages exist: a real browser against the whole project."""

import re
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from tasks_app.admission.principal import from_user
from tasks_app.admission.tasks import admit_task
from tasks_app.engine import lease
from tasks_app.engine.slice_runner import run_slice
from tasks_app.events import publisher
from tasks_app.models import Approval, ApprovalDecision, Task, Tenant
from tests import factories
from tests.e2e.browser.conftest import SignIn

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

WAITING: list[dict[str, Any]] = [
    {"op": "say", "text": "hello"},
    {"op": "write", "path": "report.txt", "text": "the report"},
    {"op": "effect", "key": "publish", "approve": True},
]


class World:
    """A tenant with its people, and tasks that really ran."""

    def __init__(self) -> None:
        self.tenant: Tenant = factories.make_tenant(name="Northwind")
        self.operator = self.person("operator-1", ["operator", "submitter"])
        self.second = self.person("operator-2", ["operator"])
        self.approver = self.person("approver-1", ["approver"])

    def person(self, name: str, roles: list[str]) -> User:
        user = factories.make_user(username=name, is_staff=True)
        return factories.make_member(self.tenant, roles, user=user)

    def start(self, script: list[dict[str, Any]] = WAITING, **more: Any) -> Task:
        made = admit_task(
            from_user(self.operator, self.tenant.pk), workflow="scripted",
            goal={"script": script}, source="dashboard", **more,
        )  # fmt: skip
        self.run(made.task_id)
        return self.read(made.task_id)

    def run(self, task_id: Any) -> None:
        while run_slice(task_id) not in {"idle", "lost"}:
            pass

    def read(self, task_id: Any) -> Task:
        return Task.objects.all_tenants("test").get(pk=task_id)

    def approval(self, task: Task) -> Approval:
        return Approval.objects.for_tenant(self.tenant.pk).get(task_id=task.pk)

    def working(self, **more: Any) -> Task:
        """Return a task row that looks executed, so that a test can move it by hand."""
        return factories.make_task(
            tenant=self.tenant, initiator=self.operator, status="working", phase="Reading",
            lease_owner="host:1:aa", fence=1, progress_done=1, progress_total=10,
            goal={"script": []}, event_seq=1, **more,
        )  # fmt: skip

    def move(
        self, task: Task, *, tell: bool = True, kind: str = "progress", **columns: Any
    ) -> None:
        """Change a task as the engine would, with the next event number, and publish it."""
        rows = Task.objects.for_tenant(self.tenant.pk).filter(pk=task.pk)
        seq = rows.values_list("event_seq", flat=True).get() + 1
        rows.update(event_seq=seq, **columns)
        if tell:
            now = self.read(task.pk)
            publisher.publish(now.tenant_id, now.pk, seq, kind, 0.5, now.phase, now.state_version)


@pytest.fixture
def world(site: str) -> Any:
    made = World()
    yield made
    lease.stop_keeper()


def live(page: Page) -> None:
    """Wait until the page hears its stream."""
    expect(page.locator("#stream")).to_have_attribute("data-state", "live", timeout=10_000)


def test_b2_events_reach_the_screen_and_disturb_nobody(world: World, sign_in: SignIn) -> None:
    """New progress within a second; typed reason, focus and an opened part survive."""
    task = world.working()
    page = sign_in(world.operator).go(f"/tasks/{task.pk}/")
    live(page)
    page.get_by_label("Reason").fill("half a sentence")
    page.locator("summary", has_text="How it was started").click()
    page.get_by_label("Reason").focus()
    for done in range(2, 7):
        world.move(task, progress_done=done, phase=f"Reading part {done}")
        expect(page.locator("#head .bar span")).to_have_text(f"{done}0 %", timeout=5_000)
    expect(page.locator("#head .phase")).to_contain_text("Reading part 6")
    expect(page.get_by_label("Reason")).to_have_value("half a sentence")
    expect(page.get_by_label("Reason")).to_be_focused()
    assert page.locator("details", has_text="How it was started").get_attribute("open") is not None


@pytest.mark.slow
def test_b3_a_gap_is_closed_by_the_snapshot(world: World, sign_in: SignIn) -> None:
    """Three silent changes, then one event: the page equals the snapshot."""
    task = world.working()
    page = sign_in(world.operator).go(f"/tasks/{task.pk}/")
    live(page)
    for done in (3, 5, 7):
        world.move(task, tell=False, progress_done=done)
    world.move(task, progress_done=8)
    expect(page.locator("#head .bar span")).to_have_text("80 %", timeout=5_000)
    expect(page.locator("#head")).to_have_attribute("data-seq", "5")


@pytest.mark.slow
def test_b5_a_burst_that_ends_shows_the_end(world: World, sign_in: SignIn) -> None:
    """300 events in a row ending in `terminal`: the page shows Completed and says Finished."""
    task = world.working()
    page = sign_in(world.operator).go(f"/tasks/{task.pk}/")
    live(page)
    for seq in range(2, 301):
        publisher.publish(task.tenant_id, task.pk, seq, "log", 0.5, "Reading", 1)
    Task.objects.for_tenant(world.tenant.pk).filter(pk=task.pk).update(
        status="queued", lease_owner=None, event_seq=300
    )
    Task.objects.for_tenant(world.tenant.pk).filter(pk=task.pk).update(status="cancelled")
    world.move(task, kind="terminal", state_version=2)
    expect(page.locator("#head .pill")).to_have_text("Cancelled", timeout=10_000)
    expect(page.locator("#stream")).to_have_text("Finished", timeout=10_000)


def test_b8_two_people_one_version(world: World, sign_in: SignIn) -> None:
    """One applied, one told of the conflict with the text kept; "Use version", then applied."""
    task = world.start()
    first = sign_in(world.operator).go(f"/tasks/{task.pk}/")
    window = sign_in(world.second)
    window.expected = ("409",)
    second = window.go(f"/tasks/{task.pk}/")
    live(first)
    live(second)
    second.get_by_label("Reason").fill("second person's long reason")
    first.get_by_label("Reason").fill("first")
    first.get_by_role("button", name="Pause task").click()
    expect(first.locator("#steer .note.t-green")).to_contain_text("It has taken effect")
    expect(second.locator("#steer .stale")).to_contain_text("while you were writing")
    expect(second.get_by_label("Reason")).to_have_value("second person's long reason")
    second.locator("summary", has_text="Priority").click()
    second.get_by_label("Priority, 0 runs first").fill("2")
    second.get_by_role("button", name="Set priority").click()
    alert = second.locator("#conflict")
    expect(alert).to_be_focused()
    expect(alert).to_contain_text("operator-1")
    expect(second.get_by_label("Reason")).to_have_value("second person's long reason")
    assert world.read(task.pk).priority == 5
    second.get_by_role("button", name=re.compile("Use version")).click()
    expect(alert).to_have_count(0)
    second.get_by_role("button", name="Set priority").click()
    expect(second.locator("#steer .note.t-green")).to_contain_text("It has taken effect")
    assert world.read(task.pk).priority == 2
    assert world.read(task.pk).status == "paused"


@pytest.mark.slow
def test_untouched_steering_form_follows_the_task(world: World, sign_in: SignIn) -> None:
    """Nobody typed: the form acts on the newest version by itself (U19)."""
    task = world.start()
    page = sign_in(world.second).go(f"/tasks/{task.pk}/")
    live(page)
    world.move(task, kind="status", state_version=task.state_version + 1)
    expect(page.locator("#steer")).to_have_attribute(
        "data-version", str(task.state_version + 1), timeout=5_000
    )


def test_b9_approve_consumes_exactly_the_shown_digest(world: World, sign_in: SignIn) -> None:
    """Digest on the page = in the row = consumed; then the task finishes."""
    task = world.start()
    window = sign_in(world.approver)
    page = window.go("/approvals/")
    live(page)
    page.locator("#rows a").first.click()
    digest = page.locator("#digest").inner_text()
    assert digest == world.approval(task).args_sha256
    page.get_by_label("Reason").fill("read it in full")
    page.get_by_role("button", name=re.compile("^Approve")).click()
    expect(page.locator(".messages")).to_contain_text("approved")
    decision = ApprovalDecision.objects.for_tenant(world.tenant.pk).get()
    assert decision.args_sha256 == digest
    world.run(task.pk)
    assert world.approval(task).status == "consumed"
    assert world.read(task.pk).status == "completed"
    own = sign_in(world.operator).go(f"/approvals/{world.approval(task).pk}/")
    expect(own.get_by_role("button", name=re.compile("^Approve"))).to_have_count(0)


@pytest.mark.slow
def test_b16_everything_works_without_scripts(world: World, sign_in: SignIn) -> None:
    """List, filter, start, pause with a conflict, approve: plain forms and links."""
    window = sign_in(world.operator, java_script_enabled=False)
    window.expected = ("409",)
    page = window.go("/tasks/new/scripted/")
    page.get_by_label("Title").fill("Made without scripts")
    page.get_by_label("Script").fill('[{"op": "effect", "key": "publish", "approve": true}]')
    page.get_by_role("button", name="Start task").click()
    expect(page.locator("h1")).to_have_text("Made without scripts")
    task = Task.objects.for_tenant(world.tenant.pk).get(title="Made without scripts")
    world.run(task.pk)
    page = window.go("/tasks/?state=input_required")
    page.get_by_role("link", name="Made without scripts").click()
    world.move(task, tell=False, state_version=world.read(task.pk).state_version + 1)
    page.get_by_label("Reason").fill("no scripts here")
    page.get_by_role("button", name="Pause task").click()
    expect(page.locator("#conflict")).to_contain_text("Nothing was sent")
    expect(page.get_by_label("Reason")).to_have_value("no scripts here")
    page.get_by_role("button", name=re.compile("Use version")).click()
    page.get_by_role("button", name="Pause task").click()
    expect(page.locator("#head .pill")).to_have_text("Paused")
    approver = sign_in(world.approver, java_script_enabled=False).go("/approvals/")
    approver.locator("#rows a").first.click()
    approver.get_by_label("Reason").fill("fine")
    approver.get_by_role("button", name=re.compile("^Deny")).click()
    expect(approver.locator(".messages")).to_contain_text("denied")


@pytest.mark.slow
def test_b18_admin_panel_acts_and_tells_history(world: World, sign_in: SignIn) -> None:
    """Pause with a reason, a stale version named, History entry, a viewer without buttons."""
    task = world.start()
    change = f"/admin/tasks_app/task/{task.pk}/change/"
    window = sign_in(world.operator)
    stale = sign_in(world.second).go(change)
    page = window.go(change)
    page.get_by_label("Reason").fill("from the admin")
    page.get_by_role("button", name="Pause task").click()
    expect(page.locator(".messagelist")).to_contain_text("Pause accepted")
    stale.get_by_label("Reason").fill("too late")
    stale.get_by_role("button", name="Cancel task").click()
    expect(stale.locator(".messagelist")).to_contain_text("Nothing was changed")
    assert world.read(task.pk).status == "paused"
    page.get_by_role("link", name="History").click()
    expect(page.locator("#change-history")).to_contain_text("Pause accepted")
    viewer = sign_in(world.person("viewer-1", ["viewer"])).go(change)
    expect(viewer.get_by_role("button", name="Resume task")).to_be_disabled()


@pytest.mark.slow
def test_b22_hostile_text_stays_text(world: World, sign_in: SignIn) -> None:
    """Markup, reordering characters and a 100 kB line in title, goal, log and name."""
    evil = "<script>alert(1)</script>\u202e<img src=x onerror=alert(2)>"
    script: list[dict[str, Any]] = [
        {"op": "say", "text": evil},
        {"op": "set", "values": {"long": "x" * 100_000, "evil": evil}},
        {"op": "write", "path": f"{evil[:40]}.txt", "text": "x"},
    ]
    task = world.start(script, title=evil)
    window = sign_in(world.operator, viewport={"width": 320, "height": 700})
    dialogs: list[str] = []
    window.page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    for path in (
        "/tasks/", f"/tasks/{task.pk}/", f"/tasks/{task.pk}/events/",
        f"/tasks/{task.pk}/artifacts/", f"/tasks/{task.pk}/steps/",
        f"/admin/tasks_app/task/{task.pk}/change/",
    ):  # fmt: skip
        page = window.go(path)
        expect(page.locator("body")).to_contain_text("<script>alert(1)</script>")
        over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert over <= 0, f"{path} is {over} px too wide"
    assert dialogs == []


@pytest.mark.slow
def test_download_arrives_with_its_name(world: World, sign_in: SignIn, tmp_path: Path) -> None:
    """An output is a file on disk, never a page."""
    task = world.start([{"op": "write", "path": "report.html", "text": "<h1>hi</h1>"}])
    page = sign_in(world.operator).go(f"/tasks/{task.pk}/artifacts/")
    with page.expect_download() as waiting:
        page.get_by_role("link", name="report.html").click()
    assert waiting.value.suggested_filename == "report.html"


@pytest.mark.slow
def test_keyboard_reaches_the_decision(world: World, sign_in: SignIn) -> None:
    """Ctrl+Enter on a focused choice submits it; Enter in the reason does not (U25)."""
    task = world.start()
    approval = world.approval(task)
    page = sign_in(world.approver).go(f"/approvals/{approval.pk}/")
    page.get_by_label("Reason").fill("by keyboard")
    page.get_by_label("Reason").press("Enter")
    assert world.approval(task).status == "pending"
    page.get_by_role("button", name=re.compile("^Approve")).focus()
    page.keyboard.press("Control+Enter")
    expect(page.locator(".messages")).to_contain_text("approved")
    assert world.approval(task).status == "approved"


@pytest.mark.slow
def test_stream_notices_a_sign_out_elsewhere(world: World, sign_in: SignIn) -> None:
    """A page whose session ended says so instead of looking alive (U15)."""
    from django.contrib.sessions.models import Session

    task = world.working()
    window = sign_in(world.operator)
    window.expected = ("401", "EventSource", "Failed to load resource")
    page = window.go(f"/tasks/{task.pk}/")
    live(page)
    Session.objects.all().delete()
    world.move(task, progress_done=4)
    expect(page.locator("#stream")).to_have_attribute("data-state", "out", timeout=30_000)


@pytest.mark.slow
def test_b4_a_silent_stream_is_probed(world: World, sign_in: SignIn) -> None:
    """The row changed and no event came: after 30 s of silence the page asks, and is current."""
    task = world.working()
    window = sign_in(world.operator)
    window.page.clock.install()
    page = window.go(f"/tasks/{task.pk}/")
    live(page)
    world.move(task, tell=False, progress_done=9)
    page.clock.run_for(31_000)
    expect(page.locator("#head .bar span")).to_have_text("90 %", timeout=5_000)
    page.clock.run_for(4_000)
    live(page)


@pytest.mark.slow
def test_b7_a_hidden_page_gives_its_connection_back(world: World, sign_in: SignIn) -> None:
    """Hidden for 5 s: the stream is closed; seen again: open and current (U16)."""
    task = world.working()
    window = sign_in(world.operator)
    window.page.clock.install()
    page = window.go(f"/tasks/{task.pk}/")
    live(page)
    show = "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});"
    show += " document.dispatchEvent(new Event('visibilitychange')); }"
    page.evaluate(show, True)
    page.clock.run_for(6_000)
    expect(page.locator("#stream")).to_have_text("Paused while hidden")
    world.move(task, progress_done=8)
    page.evaluate(show, False)
    live(page)
    expect(page.locator("#head .bar span")).to_have_text("80 %", timeout=5_000)


@pytest.mark.slow
def test_b21_a_failed_request_keeps_the_text(world: World, sign_in: SignIn) -> None:
    """No network, then a failing server: the text stays and the page says what was not done."""
    task = world.start()
    window = sign_in(world.operator)
    window.expected = ("Failed to load resource", "net::ERR", "Failed to fetch")
    page = window.go(f"/tasks/{task.pk}/")
    live(page)
    page.get_by_label("Reason").fill("typed with care")
    page.route("**/steer/", lambda route: route.abort())
    page.get_by_role("button", name="Pause task").click()
    expect(page.locator("#trouble")).to_contain_text("Nothing was sent")
    page.unroute("**/steer/")
    page.route("**/steer/", lambda route: route.fulfill(status=500, body="<h1>broken</h1>"))
    page.get_by_role("button", name="Pause task").click()
    expect(page.locator("#trouble")).to_contain_text("could not do this")
    expect(page.get_by_label("Reason")).to_have_value("typed with care")
    page.unroute("**/steer/")
    page.get_by_role("button", name="Pause task").click()
    expect(page.locator("#steer .note.t-green")).to_contain_text("It has taken effect")
    expect(page.locator("#trouble")).to_be_hidden()


@pytest.mark.slow
def test_list_follows_the_tenant(world: World, sign_in: SignIn) -> None:
    """A change of any task refreshes its row in place."""
    task = world.working(title="Watched from the list")
    page = sign_in(world.operator).go("/tasks/")
    live(page)
    world.move(task, progress_done=7)
    row = page.locator(f"#t-{task.pk}")
    expect(row.locator(".bar span")).to_have_text("70 %", timeout=8_000)


@pytest.mark.slow
def test_a_draft_survives_a_reload(world: World, sign_in: SignIn) -> None:
    """What was typed into a form is there again after the page was loaded anew."""
    page = sign_in(world.operator).go("/tasks/new/scripted/")
    page.get_by_label("Title").fill("Half written")
    page.reload()
    expect(page.get_by_label("Title")).to_have_value("Half written")
