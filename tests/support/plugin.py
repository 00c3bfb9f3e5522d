"""Loaded by `-p` before pytest-django reads the settings: the servers must be there first."""

import os
import sys

from tests.support import services

# Playwright's sync interface keeps an event loop in the test's thread.
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
# With `-n` every worker process has servers of its own and the controller needs none.
if "PYTEST_XDIST_WORKER" in os.environ or not any(word.startswith("-n") for word in sys.argv):
    services.start()
