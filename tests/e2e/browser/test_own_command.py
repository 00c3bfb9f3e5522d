"""Rules: a person's own command never stands in their way; somebody else's is told as before."""

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tasks_app.engine import lease
from tasks_app.models import SteeringCommand, Task
from tests.e2e.browser.conftest import SignIn
from tests.e2e.browser.test_pages import World, live

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def world(site: str) -> Any:
    made = World()
    yield made
    lease.stop_keeper()


def apply_pause(world: World, task: Task) -> None:
    """Let the worker reach its safe point: the task is paused, the command applied."""
    now = world.read(task.pk)
    rows = SteeringCommand.objects.for_tenant(world.tenant.pk).filter(task_id=task.pk)
    version = now.state_version + 2
    rows.filter(type="pause").update(status="applied", new_version=version)
    world.move(task, kind="status", status="paused", lease_owner=None, state_version=version)


def pause(page: Page, task: Task) -> None:
    page.goto(page.url)
    live(page)
    page.locator("#reason").fill("a look at it")
    page.get_by_role("button", name="Pause task").click()
    expect(page.locator("#steer .note.t-green")).to_contain_text("Accepted")


def test_own_pause_is_followed_while_the_next_reason_is_written(
    world: World, sign_in: SignIn
) -> None:
    """The form goes on at the new version with text, focus and cursor; Resume is accepted."""
    task = world.working()
    page = sign_in(world.operator).go(f"/tasks/{task.pk}/")
    pause(page, task)
    page.locator("#reason").press_sequentially("go on")
    apply_pause(world, task)
    expect(page.locator("#steer h2")).to_contain_text("acting on version 4", timeout=10_000)
    expect(page.locator("#steer .stale")).to_be_hidden()
    expect(page.locator("#reason")).to_have_value("go on")
    expect(page.locator("#reason")).to_be_focused()
    expect(page.locator("#steer")).not_to_contain_text("Accepted")
    page.locator("#reason").press_sequentially(" now")
    page.get_by_role("button", name="Resume task").click()
    expect(page.locator("#steer .note.t-green")).to_contain_text("It has taken effect")
    row = SteeringCommand.objects.for_tenant(world.tenant.pk).get(task_id=task.pk, type="resume")
    assert row.reason == "go on now"


@pytest.mark.slow
def test_accepted_is_no_longer_said_when_it_is_applied(world: World, sign_in: SignIn) -> None:
    """The note stands until the worker has done it, also with the focus in it."""
    task = world.working()
    page = sign_in(world.operator).go(f"/tasks/{task.pk}/")
    pause(page, task)
    apply_pause(world, task)
    expect(page.locator("#steer .note.t-green")).to_have_count(0, timeout=10_000)
    expect(page.locator("#steer h2")).to_be_focused()


@pytest.mark.slow
def test_somebody_elses_command_is_told_and_the_text_kept(world: World, sign_in: SignIn) -> None:
    """What another person did while one was writing is not passed over."""
    task = world.working()
    page = sign_in(world.operator).go(f"/tasks/{task.pk}/")
    live(page)
    page.locator("#reason").fill("half a sentence")
    other = sign_in(world.second).go(f"/tasks/{task.pk}/")
    pause(other, task)
    apply_pause(world, task)
    expect(page.locator("#steer .stale")).to_contain_text("operator-2: Pause", timeout=10_000)
    expect(page.locator("#steer h2")).to_contain_text("acting on version 1")
    expect(page.locator("#reason")).to_have_value("half a sentence")
