"""REST tests store artifacts in a folder of their own."""

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
def _no_keeper_left() -> Iterator[None]:
    """Let the session go that a test's slices keep for their leases."""
    yield
    lease.stop_keeper()
