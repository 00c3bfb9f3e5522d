"""Loaded by `-p` before pytest-django reads the settings: the servers must be there first."""

import os

from tests.support import services

# Playwright's sync interface keeps an event loop in the test's thread.
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
services.start()
