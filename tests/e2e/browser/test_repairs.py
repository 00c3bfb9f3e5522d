"""Rule B13: a held task is taken apart and repaired in the browser, with and without scripts."""

from typing import Any

import pytest
from playwright.sync_api import expect

from tests import factories
from tests.dashboard.test_held import damaged, doubtful
from tests.e2e.browser.conftest import SignIn
from tests.e2e.browser.test_pages import World


@pytest.fixture
def world(site: str) -> Any:
    from tasks_app.engine import lease

    yield World()
    lease.stop_keeper()


@pytest.mark.slow
def test_b13_damaged_checkpoint_is_repaired_from_the_one_before(
    world: World, sign_in: SignIn
) -> None:
    """The panel names both checksums; after the repair the same page follows the task to its end."""
    task = damaged(world.tenant)
    page = sign_in(world.operator).go(f"/tasks/{task.pk}/")
    expect(page.locator(".evidence .digest")).to_have_count(2)
    page.get_by_label("Reason").fill("a disk was bad")
    page.locator("summary", has_text="Continue from a checkpoint").click()
    page.get_by_role("button", name="Continue from a checkpoint").click()
    expect(page.get_by_text("Any worker takes it on")).to_be_visible()
    world.run(task.pk)
    expect(page.locator("#head .pill")).to_have_text("Completed")


@pytest.mark.slow
def test_b13_act_is_settled_without_scripts(world: World, sign_in: SignIn) -> None:
    """What was typed survives a refusal; settled as done, it is not called again."""
    task = doubtful(world.tenant)
    window = sign_in(world.operator, java_script_enabled=False)
    window.expected = ("422",)
    page = window.go(f"/tasks/{task.pk}/")
    page.get_by_label("Reason").fill("found in the portal")
    page.locator("summary", has_text="Settle the act").click()
    page.get_by_label("Done: it has happened").check()
    page.get_by_label("Result, if it is done").fill('{"key": "4711"}')
    page.get_by_role("button", name="Settle the act").click()
    expect(page.locator("#proof-err")).to_be_visible()
    expect(page.get_by_label("Reason")).to_have_value("found in the portal")
    page.get_by_label("Proof, if it is done").fill("number 4711")
    page.get_by_role("button", name="Settle the act").click()
    expect(page.get_by_text("Any worker takes it on")).to_be_visible()
    world.run(task.pk)
    assert (world.read(task.pk).status, world.read(task.pk).result) == (
        "completed",
        {"key": "4711"},
    )


@pytest.mark.slow
def test_page_follows_a_task_that_becomes_held(world: World, sign_in: SignIn) -> None:
    """The steering panel turns into the repair panel by itself."""
    task = world.working()
    page = sign_in(world.operator).go(f"/tasks/{task.pk}/")
    expect(page.get_by_role("heading", name="Steering")).to_be_visible()
    error = {"code": "too_many_recoveries", "message": "worker-1 vanished"}
    world.move(
        task, kind="status", status="dead_lettered", lease_owner=None, error=error, state_version=2
    )
    expect(page.get_by_role("heading", name="Repair")).to_be_visible()
    expect(page.get_by_role("heading", name="Too many recoveries")).to_be_visible()


@pytest.mark.slow
def test_many_are_repaired_without_scripts(world: World, sign_in: SignIn) -> None:
    """From the menu over cause and preview to one outcome for each; no page scrolls sideways."""
    owner = factories.make_member(world.tenant, "submitter")
    for number in range(3):
        factories.make_task(
            tenant=world.tenant, initiator=owner, status="dead_lettered", title=f"Worn {number}"
        )
    window = sign_in(
        world.operator, java_script_enabled=False, viewport={"width": 375, "height": 800}
    )
    page = window.go("/tasks/")
    page.get_by_role("link", name="Held").click()
    page.get_by_role("link", name="Show and repair all 3 tasks").click()
    page.get_by_role("link", name="Requeue task…").click()
    page.get_by_label("Reason").fill("workers are back")
    page.get_by_role("button", name="Requeue task (3)").click()
    expect(page.get_by_text("3 of 3 repaired")).to_be_visible()
