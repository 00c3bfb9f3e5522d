"""runs.md R13: tasks and runs come into being in one statement, reached by one function."""

import ast
import re
from pathlib import Path

from tests.architecture.sources import (
    called_name,
    calls,
    name_of,
    nodes,
    product_files,
    root_name,
    texts,
    tree,
)

TABLES = {"Task": "tasks_app_task", "Run": "tasks_app_run"}
# Where each row is written; nowhere else.
STATEMENT = "tasks_app/engine/intake.py"
RUN_ROW = "tasks_app/engine/thread_entry.py"
# Who may reach the statement: requests through admission, and a task's own step for its child.
CALLERS = {
    "store_tasks": {"tasks_app/admission/admitting.py", "tasks_app/engine/child_runner.py"},
    "admit": {"tasks_app/admission/tasks.py"},
    "begin": {STATEMENT},
    "enter": {"tasks_app/admission/admitting.py"},
}
MODULES = {
    "store_tasks": "intake", "admit": "admitting", "begin": "thread_entry", "enter": "thread_entry",
}  # fmt: skip
INSERTS = {"create", "get_or_create", "update_or_create", "bulk_create"}


def test_one_statement_inserts_tasks() -> None:
    """No other SQL names the tables after INSERT INTO, COPY or MERGE INTO."""
    pattern = re.compile(
        rf"(INSERT\s+INTO|COPY|MERGE\s+INTO)\s+\"?({'|'.join(TABLES.values())})\b", re.IGNORECASE
    )
    found = [name_of(path) for path in product_files() for text in texts(path)
             if pattern.search(text)]  # fmt: skip
    assert found == [STATEMENT]


def test_no_table_name_is_put_together_for_an_insert() -> None:
    """An INSERT into a table that the code works out could be one into these."""
    loose = re.compile(r"(INSERT\s+INTO|MERGE\s+INTO)\s+(\{|%)", re.IGNORECASE)
    assert [name_of(p) for p in product_files() for text in texts(p) if loose.search(text)] == []


def test_no_row_is_made_through_the_models() -> None:
    """`Task(…)`, `Task.objects.create(…)` and their like: only a run's own row, in one module."""
    found = []
    for path in product_files():
        names = _imported(path)
        for call in calls(path):
            made = isinstance(call.func, ast.Name) and call.func.id in names
            stored = called_name(call) in INSERTS and root_name(call.func) in names
            if made or stored:
                found.append((name_of(path), names[root_name(call.func)]))
    assert found == [(RUN_ROW, "Run")]


def _imported(path: Path) -> dict[str, str]:
    """Return the names under which a file knows the two models."""
    return {
        alias.asname or alias.name: alias.name
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tasks_app.models")
        for alias in node.names
        if alias.name in TABLES
    }


def test_the_statement_is_reached_by_admission_and_by_children_only() -> None:
    """Each function on the way is called where it is listed, and is imported under no other name."""
    found: dict[str, set[str]] = {name: set() for name in CALLERS}
    for path in product_files():
        for call in calls(path):
            name = called_name(call)
            if name in CALLERS and root_name(call.func) == MODULES[name]:
                found[name].add(name_of(path))
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom):
                module = (node.module or "").rpartition(".")[2]
                for alias in node.names:
                    assert module != MODULES.get(alias.name), f"{name_of(path)}: import the module"
                    renamed = alias.asname and alias.name in MODULES.values()
                    assert not renamed, f"{name_of(path)}: {alias.name} under another name"
    assert found == CALLERS
