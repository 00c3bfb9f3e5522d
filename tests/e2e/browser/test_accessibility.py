"""Rules U26, B1: every page is quiet, fits and satisfies axe, in both themes, without exceptions."""

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from tests.dashboard.test_held import damaged, doubtful
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


def too_wide(page: Page) -> list[str]:
    """Return a line when the page scrolls sideways."""
    over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    width = page.evaluate("innerWidth")
    return [f"{over} px too wide at {width}"] if over > 0 else []


def addresses(world: World, audience: str) -> dict[User | None, list[str]]:
    """Return every kind of page that these people see, by who opens it."""
    task = world.start()
    approval = world.approval(task)
    if audience == "first":
        return {
            world.operator: [
                "/tasks/", "/tasks/new/contracts.review/", f"/tasks/{task.pk}/",
                f"/approvals/{approval.pk}/", f"/admin/tasks_app/task/{task.pk}/change/",
            ]
        }  # fmt: skip
    if audience == "others":
        return {
            world.approver: [
                "/approvals/", f"/approvals/{approval.pk}/",
                f"/admin/tasks_app/approval/{approval.pk}/change/",
            ],
            world.person("auditor-1", ["auditor", "admin"]): [
                "/admin/ledger_app/auditentry/", "/admin/tasks_app/membership/",
            ],
            None: ["/login/", "/admin/login/"],
        }  # fmt: skip
    done, failed = world.start([{"op": "say", "text": "short"}]), world.start([{"op": "fail"}])
    bad, doubt = damaged(world.tenant), doubtful(world.tenant)
    tabs = ("", "steps/", "checkpoints/", "effects/", "artifacts/", "events/", "audit/")
    return {
        world.operator: [
            "/tasks/", "/tasks/?q=nothing", "/tasks/many/set_priority/", f"/tasks/{done.pk}/", f"/tasks/{failed.pk}/",
            "/tasks/new/", "/tasks/new/contracts.review/", f"/tasks/{task.pk}/goal/",
            f"/approvals/{approval.pk}/", *(f"/tasks/{task.pk}/{tab}" for tab in tabs),
            "/dead-letters/", "/dead-letters/checkpoint_damaged/",
            "/dead-letters/effect_in_doubt/settle_effect/",
            f"/tasks/{bad.pk}/", f"/tasks/{doubt.pk}/",
            f"/admin/tasks_app/task/{doubt.pk}/change/",
            "/admin/", "/admin/tasks_app/task/", f"/admin/tasks_app/task/{task.pk}/change/",
            f"/admin/tasks_app/task/{task.pk}/history/",
        ],
    }  # fmt: skip


@pytest.mark.slow
# The suite looks at the pages that people open first; the slow stage at all, on a telephone too.
@pytest.mark.parametrize(
    ("scheme", "audience"),
    [
        ("light", "first"),
        *(
            pytest.param(scheme, audience, marks=pytest.mark.slow)
            for scheme in ("light", "dark")
            for audience in ("operator", "others")
        ),
    ],
)
def test_b1_pages_are_quiet_accessible_and_fit(
    world: World, sign_in: SignIn, scheme: Any, audience: str
) -> None:
    """No console error, CSP report, foreign request, axe finding or sideways scroll anywhere."""
    width = 1280 if scheme == "light" else 375
    problems: dict[str, Any] = {}
    for user, paths in addresses(world, audience).items():
        size: Any = {"width": width, "height": 800}
        window = sign_in(user, check=False, color_scheme=scheme, viewport=size)
        window.page.context.add_init_script(AXE)
        for path in paths:
            page = window.go(path)
            page.set_viewport_size(size)
            expect(page.locator("main, #content-main").first).to_be_visible()
            page.locator("details.act").evaluate_all("all => all.forEach(one => one.open = true)")
            page.wait_for_load_state("load")
            # What axe itself puts into a page offends the page's own policy: look before it.
            found = [*window.errors, *window.foreign, *violations(page), *too_wide(page)]
            page.set_viewport_size({"width": 320, "height": 800})
            if found := found + too_wide(page):
                problems[path] = found
            window.errors.clear()
    assert problems == {}
