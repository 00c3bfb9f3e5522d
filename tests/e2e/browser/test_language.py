"""Rule U27: the language is one press away, on narrow screens and without JavaScript too."""

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests import factories
from tests.e2e.browser.conftest import SignIn

NARROW: Any = {"width": 375, "height": 800}


def one_row(page: Page) -> bool:
    """Tell whether everything above the navigation stands in one row, inside the page."""
    return bool(
        page.evaluate(
            """() => {
              const brand = document.querySelector('.brand').getBoundingClientRect();
              const tools = document.querySelector('.tools').getBoundingClientRect();
              const middle = (brand.top + brand.bottom) / 2;
              const width = document.documentElement.clientWidth;
              return tools.top < middle && middle < tools.bottom && tools.right <= width
                && document.documentElement.scrollWidth <= width;
            }"""
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_switch_changes_the_page_and_back(sign_in: SignIn, script: bool) -> None:
    """A press of the button turns the page; the next one turns it back."""
    user = factories.make_member(factories.make_tenant(), "operator")
    page = sign_in(user, viewport=NARROW, java_script_enabled=script).go("/tasks/?q=x")
    page.get_by_role("button", name="简体中文").click()
    expect(page.get_by_role("heading", name="任务", exact=True)).to_be_visible()
    assert page.url.endswith("/tasks/?q=x")
    page.get_by_role("button", name="English").click()
    expect(page.get_by_role("heading", name="Tasks", exact=True)).to_be_visible()


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "zh-CN"])
def test_header_stays_in_one_row(sign_in: SignIn, language: str) -> None:
    """At 375 px, whatever the indicator says; a long text takes two lines of the same row."""
    user = factories.make_member(factories.make_tenant(), ["operator", "approver"])
    page = sign_in(user, viewport=NARROW, locale=language).go("/tasks/")
    texts = page.eval_on_selector("#stream", "e => Object.values({...e.dataset}).concat('')")
    for text in texts:
        page.eval_on_selector("#stream", "(e, text) => { e.textContent = text; }", text)
        assert one_row(page), text
