"""Loaded by `-p` before pytest-django reads the settings: the servers must be there first."""

import os
import sys

from tests.support import services

# Playwright's sync interface keeps an event loop in the test's thread.
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
_OWN = "PERDURE_TESTS_OWN_SERVERS"


def _prepare() -> None:
    """Start this process's servers; with `-n` each worker has its own, the controller none.

    The controller's settings need addresses and put placeholders into the environment, which the
    workers inherit and drop.
    """
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    if not is_worker and any(word.startswith("-n") for word in sys.argv):
        os.environ[_OWN] = "" if "DATABASE_URL" in os.environ else "1"
        return
    if is_worker and os.environ.get(_OWN):
        del os.environ["DATABASE_URL"], os.environ["REDIS_URL"]
    services.start()


_prepare()
