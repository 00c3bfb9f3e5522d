"""Rule U26, B1: axe finds nothing on any page, in both themes. No list of exceptions."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.browser.conftest import SignIn
from tests.e2e.browser.test_pages import World

# axe-core 4.14.1 from npm, MPL-2.0, unchanged: data of this test, no part of the product.
AXE = (Path(__file__).parent / "axe/axe-4.14.1.min.js").read_text()
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


@pytest.fixture
def world(site: str) -> Any:
    from tasks_app.engine import lease

    yield World()
    lease.stop_keeper()


def violations(page: Page) -> list[str]:
    """Return what axe finds, one line for each kind with the first place."""
    found = page.evaluate("rules => axe.run(document, {runOnly: rules})", RULES)
    assert len(found["passes"]) > 5, "axe did not look at the page"
    return [
        f"{v['id']}: {v['nodes'][0]['html'][:160]} {v['nodes'][0]['failureSummary'][:300]}"
        for v in found["violations"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_have_no_violations(world: World, sign_in: SignIn, scheme: Any) -> None:
    """Every kind of page, wide in the light theme and narrow in the dark one."""
    width = 1280 if scheme == "light" else 375
    task, done = world.start(), world.start([{"op": "say", "text": "short"}])
    failed = world.start([{"op": "fail"}])
    approval = world.approval(task)
    own = [
        "/tasks/", "/tasks/?q=nothing", f"/tasks/{done.pk}/", f"/tasks/{failed.pk}/",
        "/tasks/new/", "/tasks/new/contracts.review/", f"/tasks/{task.pk}/goal/",
        *(
            f"/tasks/{task.pk}/{tab}"
            for tab in ("", "steps/", "checkpoints/", "effects/", "artifacts/", "events/", "audit/")
        ),
        "/admin/", "/admin/tasks_app/task/", f"/admin/tasks_app/task/{task.pk}/change/",
    ]  # fmt: skip
    decisions = [
        "/approvals/", f"/approvals/{approval.pk}/",
        f"/admin/tasks_app/approval/{approval.pk}/change/",
    ]  # fmt: skip
    problems = {}
    ledger = ["/admin/ledger_app/auditentry/", "/admin/tasks_app/membership/"]
    for user, paths in (
        (world.operator, own),
        (world.approver, decisions),
        (world.person("auditor-1", ["auditor", "admin"]), ledger),
        (None, ["/login/"]),
    ):
        window = sign_in(
            user, check=False, color_scheme=scheme, viewport={"width": width, "height": 800}
        )
        window.page.context.add_init_script(AXE)
        for path in paths:
            page = window.go(path)
            expect(page.locator("main, #content-main").first).to_be_visible()
            if found := violations(page):
                problems[path] = found
    assert problems == {}
