"""REST tests store artifacts in a folder of their own."""

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def artifact_root(settings: Any, tmp_path: Path) -> Path:
    root = tmp_path / "artifacts"
    settings.RUNTIME = {**settings.RUNTIME, "artifact_root": root}
    return root
