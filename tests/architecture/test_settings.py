"""Rules: every setting is documented as it is, and each is read at call time."""

import ast
import re

from tasks_app.conf import RuntimeSettings
from tests.architecture.sources import (
    ROOT,
    called_name,
    calls,
    name_of,
    product_files,
    root_name,
    tree,
    variables,
)

PAGE = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
# Files that read the environment themselves, each for a reason of its own.
ENVIRONMENT_READERS = {
    "runtime_project/env.py": "the typed readers",
    "runtime_project/asgi.py": "names the settings module",
    "runtime_project/celery.py": "names the settings module",
    "runtime_project/settings_test.py": "defaults of the test run",
    "tasks_app/syncpoints.py": "must not depend on settings",
    "tasks_app/engine/secret_values.py": "hands out secrets that must not lie in settings",
    "tasks_app/workflows/contracts/pdf.py": "hands a few variables to its child process",
}
LOCAL = ("runtime_project/local/", "runtime_project/bootstrap.py")


def _rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_setting_is_documented_with_kind_and_default() -> None:
    """The table of docs/reference/settings.md equals what settings.py reads."""
    table = PAGE.partition("<!-- settings -->")[2].partition("<!-- /settings -->")[0]
    documented = {row[0].strip("`"): (row[1], row[2].strip("`")) for row in _rows(table)}
    read = {
        name: (variable.kind, _shown(variable.default)) for name, variable in variables().items()
    }
    assert documented == read


def _shown(default: str) -> str:
    folder = re.fullmatch(r"str\(BASE_DIR / '(.+)'\)", default)
    return folder[1] if folder else default.strip("'")


def test_every_setting_is_explained() -> None:
    """No empty meaning."""
    assert [row[0] for row in _rows(PAGE) if not row[-1]] == []


def test_runtime_settings_have_units_or_are_no_quantities() -> None:
    """Names of numbers end in their unit."""
    numbers = [
        name for name, kind in RuntimeSettings.__annotations__.items() if kind in {int, float}
    ]
    units = re.compile(r"(_seconds|_bytes|_tokens|_micros|_steps|^max_\w+|^slice_steps)$")
    assert [name for name in numbers if not units.search(name)] == []


def test_the_environment_is_read_in_listed_files() -> None:
    """Everything else asks `conf` or Django's settings."""
    readers = {
        name_of(path)
        for path in product_files()
        if not name_of(path).startswith(LOCAL)
        and any(
            (isinstance(node, ast.Attribute) and node.attr == "environ")
            or (isinstance(node, ast.Name) and node.id == "getenv")
            for node in ast.walk(tree(path))
        )
    }
    assert readers == set(ENVIRONMENT_READERS)


def test_runtime_settings_are_not_read_at_import() -> None:
    """`conf.runtime()` is called inside functions, so that a test or operator can change it."""
    offenders = [
        f"{name_of(path)}:{statement.lineno}"
        for path in product_files()
        for statement in tree(path).body
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        for call in ast.walk(statement)
        if isinstance(call, ast.Call) and called_name(call) == "runtime"
    ]
    assert offenders == []
    assert any(
        root_name(call.func) == "runtime" for path in product_files() for call in calls(path)
    )
