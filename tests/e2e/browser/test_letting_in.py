"""A person lets a program in, in a real browser: the page's policy lets the answer reach it."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import urlencode

import pytest
from oauth2_provider.models import Grant
from playwright.sync_api import expect
from typing_extensions import override

from tests import factories
from tests.e2e.browser.conftest import SignIn
from tests.e2e.browser.test_accessibility import AXE, too_wide, violations
from tests.oauth.door import make_client, make_token
from tests.oauth.test_page import asking

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


class Program(BaseHTTPRequestHandler):
    """A program on the person's machine that waits for the browser."""

    def do_GET(self) -> None:
        body = b"<!doctype html><title>Desk</title><h1>You may close this window</h1>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def callback() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Program) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/callback"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("look", ["light", "dark"])
def test_person_lets_a_program_in(sign_in: SignIn, callback: str, look: str) -> None:
    """The page satisfies axe and fits a phone; yes leads to the program with a code, no without."""
    tenant = factories.make_tenant(name="Northwind")
    person = factories.make_member(tenant, "submitter")
    program = make_client("Desk")
    window = sign_in(person, check=False, color_scheme=look, viewport={"width": 390, "height": 844})
    scopes = "tasks:create tasks:read approvals:decide"
    path = f"/o/authorize/?{urlencode(asking(program, redirect_uri=callback, scope=scopes))}"
    page = window.go(path)
    page.evaluate(AXE)
    assert violations(page) + too_wide(page) == []
    page.get_by_role("button", name="Let it in").click()
    expect(page.get_by_role("heading")).to_have_text("You may close this window")
    assert f"code={Grant.objects.get().code}" in page.url
    window.go(path)
    page.get_by_role("button", name="No").click()
    expect(page.get_by_role("heading")).to_have_text("You may close this window")
    assert "error=access_denied" in page.url
    assert Grant.objects.count() == 1
    make_token(tenant, person, application=program)
    page = window.go("/o/programs/")
    page.evaluate(AXE)
    assert violations(page) + too_wide(page) == []
    page.get_by_role("button", name="End Desk").click()
    expect(page.get_by_role("heading")).to_have_text(["Programs", "No program acts in your name"])
    assert window.errors == []


@pytest.mark.parametrize(("width", "links"), [(375, 1), (1280, 0)])
def test_programs_are_reached_on_a_phone(sign_in: SignIn, width: int, links: int) -> None:
    """Where there is no room for the name at the top, which leads there, the menu does."""
    person = factories.make_member(factories.make_tenant(), ["operator", "approver"])
    page = sign_in(person, viewport={"width": width, "height": 800}).go("/tasks/")
    link = page.get_by_role("navigation").get_by_role("link", name="Programs", exact=True)
    expect(link).to_have_count(links)
    by_name = page.locator(".tools").get_by_role("link", name=person.username)
    (link if links else by_name).click()
    expect(page.get_by_role("heading", name="Programs", exact=True)).to_be_visible()
