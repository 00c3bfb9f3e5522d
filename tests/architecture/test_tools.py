"""Rules: imports follow the layers; lint, format and types are clean. One tool, one test."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

# Tools import the settings; whatever servers they name is never contacted.
ENVIRONMENT = {"DJANGO_SETTINGS_MODULE": "runtime_project.settings_test", "NO_COLOR": "1"}


def _run(command: list[str], *, seconds: float) -> None:
    program = Path(sys.executable).with_name(command[0])
    answer = subprocess.run(
        [str(program), *command[1:]],
        cwd=ROOT,
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if answer.returncode != 0:
        pytest.fail(f"{' '.join(command)}\n{answer.stdout}{answer.stderr}", pytrace=False)


def test_imports_follow_the_layers() -> None:
    """`.importlinter` holds, and every package is placed in it."""
    _run(["lint-imports"], seconds=60)


def test_lint_is_clean() -> None:
    """Every rule of ruff that the project chose."""
    _run(["ruff", "check", "."], seconds=60)


def test_format_is_clean() -> None:
    """The formatter would change nothing."""
    _run(["ruff", "format", "--check", "."], seconds=60)


@pytest.mark.crash
@pytest.mark.timeout(360)
def test_types_are_clean() -> None:
    """Mypy strict over product and tests; an old Python has to read manage.py, so it has none."""
    _run(["mypy", "runtime_project", "tasks_app", "ledger_app", "deploy", "tests"], seconds=350)
