"""A live site and a Chromium for browser tests.

The site is uvicorn with the real ASGI application on embedded PostgreSQL and Redis; static files
are served under their hashed names by WhiteNoise, as in production.
"""

import gc
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.core.handlers.asgi import ASGIHandler
from django.core.management import call_command
from django_eventstream import views
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

from tasks_app.events.listening import SupervisedListenerManager
from tests.support.streams import WebServer

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HERE = Path(__file__).parent
TOLERATED = (
    # WhiteNoise answers with plain files; Django's ASGI handler reads them in a thread (U7).
    "ignore:StreamingHttpResponse must consume synchronous iterators:Warning",
    # Django's ASGI handler leaves request bodies and sent files to the garbage collector.
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder; without Chromium they are skipped by name, or fail in CI."""
    missing = not Path(CHROMIUM).exists() and not os.environ.get("RT_REQUIRE_BROWSER")
    skip = pytest.mark.skip(reason="needs Chromium: apt-get install chromium fonts-noto-cjk")
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.browser)
        for warning in TOLERATED:
            item.add_marker(pytest.mark.filterwarnings(warning))
        if missing:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    """Start the system's Chromium; nothing is downloaded."""
    return {**browser_type_launch_args, "executable_path": CHROMIUM, "args": FLAGS}


@pytest.fixture(scope="session")
def static_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Collect the static files once, under hashed names."""
    from django.test.utils import override_settings

    root = tmp_path_factory.mktemp("static")
    storages = {
        "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
        "staticfiles": {"BACKEND": "tasks_app.staticfiles.ModuleAwareManifestStorage"},
    }
    with override_settings(STATIC_ROOT=root, STORAGES=storages):
        call_command("collectstatic", interactive=False, verbosity=0)
        yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def site(
    transactional_db: None, static_root: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Serve the whole project; the address without a slash at the end."""
    manager = SupervisedListenerManager()
    monkeypatch.setattr(views, "listener_manager", manager)
    with WebServer(ASGIHandler()) as server:
        yield server.url
    manager.listeners_by_channel.clear()
    gc.collect()  # what is left open is told now, while this test's filters hold


@dataclass
class Watched:
    """A page with everything it complained about and asked others for."""

    page: Page
    site: str
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()

    def go(self, path: str) -> Page:
        """Open a path of the site."""
        self.page.goto(self.site + path)
        return self.page

    def heard(self, message: ConsoleMessage) -> None:
        """Keep an error of the console, CSP reports among them."""
        if message.type in {"error", "warning"} and not any(
            e in message.text for e in self.expected
        ):
            self.errors.append(message.text)

    def asked(self, request: Request) -> None:
        """Keep a request to another host."""
        if urlsplit(request.url).netloc not in {urlsplit(self.site).netloc, ""}:
            self.foreign.append(request.url)

    def check(self) -> None:
        """Fail when the console or the network showed what it must not."""
        assert self.errors == []
        assert self.foreign == []


SignIn = Callable[..., Watched]


@pytest.fixture
def sign_in(site: str, browser: Browser) -> Iterator[SignIn]:
    """Return a function that opens a window of a signed-in user."""
    opened: list[tuple[BrowserContext, Watched]] = []

    def open_window(user: User | None, *, check: bool = True, **options: Any) -> Watched:
        context = browser.new_context(base_url=site, **options)
        if user is not None:
            context.add_cookies([session_cookie(user, site)])
        page = context.new_page()
        watched = Watched(page, site)
        page.on("console", watched.heard)
        page.on("pageerror", lambda error: watched.errors.append(str(error)))
        page.on("request", watched.asked)
        if check:
            opened.append((context, watched))
        else:
            opened.append((context, Watched(page, site)))
        return watched

    yield open_window
    for context, watched in opened:
        context.close()
        watched.check()


def session_cookie(user: User, site: str) -> Any:
    """Sign a user in by a session row, without typing a password."""
    from django.conf import settings
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY

    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    return {"name": settings.SESSION_COOKIE_NAME, "value": session.session_key, "url": site}
