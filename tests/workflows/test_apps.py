"""An author's app is installed by a setting, and its workflows are found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_code_blocks import python_blocks

ROOT = Path(__file__).resolve().parents[2]
FIND = (
    "import django; django.setup(); from tasks_app.workflows import registry; "
    "print(registry.get_workflow('greet').title)"
)


@pytest.mark.slow
def test_workflow_of_the_readme_is_found_by_its_app(tmp_path: Path) -> None:
    """RUNTIME_APPS names the package; nothing of ours is edited."""
    app = tmp_path / "letters"
    app.mkdir()
    (app / "__init__.py").touch()
    (app / "durable.py").write_text(python_blocks("README.md")[0])
    found = subprocess.run(
        [sys.executable, "-c", FIND],
        cwd=ROOT,
        env={**os.environ, "RUNTIME_APPS": "letters", "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.stdout, found.returncode) == ("Greet a customer\n", 0), found.stderr
