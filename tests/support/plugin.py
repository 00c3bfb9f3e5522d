"""Loaded by `-p` before pytest-django reads the settings: the servers must be there first."""

import os
import sys

from tests.support import services

# Playwright's sync interface keeps an event loop in the test's thread.
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
_OWN = "PERDURE_TESTS_OWN_SERVERS"


def _is_spread(words: list[str]) -> bool:
    """Tell whether the command line asks for more than this one process."""
    numbers = [word.removeprefix("-n").lstrip("=") for word in words if word.startswith("-n")]
    numbers += [words[at + 1] for at, word in enumerate(words[:-1]) if word == "-n"]
    return any(number not in {"", "0"} for number in numbers)


def _prepare() -> None:
    """Start this process's servers; with `-n` each worker has its own, the controller none.

    The controller's settings need addresses and put placeholders into the environment, which the
    workers inherit and drop.
    """
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    if not is_worker and _is_spread(sys.argv):
        os.environ[_OWN] = "" if "DATABASE_URL" in os.environ else "1"
        return
    if is_worker and os.environ.get(_OWN):
        del os.environ["DATABASE_URL"], os.environ["REDIS_URL"]
    services.start()


_prepare()
