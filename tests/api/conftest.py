"""REST tests store artifacts in a folder of their own."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks_app.engine import lease


@pytest.fixture(autouse=True)
def artifact_root(settings: Any, tmp_path: Path) -> Path:
    root = tmp_path / "artifacts"
    settings.RUNTIME = {**settings.RUNTIME, "artifact_root": root}
    return root


@pytest.fixture(autouse=True)
def _own_event_loop() -> Iterator[None]:
    """Leave the loop that the browser of an earlier test keeps in this thread.

    Django's client calls an asynchronous view from here, which asgiref refuses beside a loop.
    """
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    yield
    asyncio._set_running_loop(running)


@pytest.fixture(autouse=True)
def _no_keeper_left() -> Iterator[None]:
    """Let the session go that a test's slices keep for their leases."""
    yield
    lease.stop_keeper()
