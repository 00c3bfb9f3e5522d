"""Rules about who writes what, read from the source: status, transactions, time, scope, messages."""

import ast
import re

import pytest

from tests.architecture import sources
from tests.architecture.sources import ROOT, called_name, calls, name_of, product_files, texts

# The only modules that may write a task's status.
STATUS_WRITERS = (
    "tasks_app/engine/transitions.py",
    "tasks_app/engine/queue_sql.py",
    "tasks_app/engine/sql.py",
)
STATUS_WRITING_FOLDERS = ("tasks_app/admission/",)

# Where transactions may begin.
ATOMIC_FOLDERS = ("tasks_app/admission/", "tasks_app/engine/", "ledger_app/services/")

# Files that may read rows of every tenant, each with why. A new one is a decision: see S23.
ALL_TENANTS = {
    "tasks_app/admission/firing.py": "the sweeper fires every tenant's schedules",
    "tasks_app/admission/principal.py": "who calls is found before the tenant is known",
    "tasks_app/admission/replays.py": "the sweeper forgets every tenant's old answers",
    "tasks_app/admission/tokens.py": "whose identity elsewhere it is, is found likewise",
    "tasks_app/engine/recovery.py": "the sweeper serves the whole installation",
    "tasks_app/engine/thread_entry.py": "the sweeper cancels what its creator has left",
    "tasks_app/engine/versions.py": "plan_check serves whoever deploys code",
    "tasks_app/models/scoped.py": "defines it",
}

_STATUS_SQL = re.compile(
    r"\bUPDATE\s+(ONLY\s+)?tasks_app_task\b.*?\bSET\b(?P<sets>.*)", re.S | re.I
)


def _files(*, outside: tuple[str, ...]) -> list[str]:
    return [name_of(path) for path in product_files() if not name_of(path).startswith(outside)]


def test_status_is_written_in_one_place() -> None:
    """No other module updates `Task.status`, by ORM or by SQL."""
    offenders = []
    for name in _files(outside=STATUS_WRITERS + STATUS_WRITING_FOLDERS):
        path = ROOT / name
        offenders += [f"{name}:{call.lineno}" for call in calls(path) if _updates_status(call)]
        offenders += [name for text in texts(path) if _sets_status(text)]
    assert offenders == []


def _updates_status(call: ast.Call) -> bool:
    if called_name(call) not in {"update", "bulk_update", "save", "create", "update_or_create"}:
        return False
    if called_name(call) == "update" and sources.root_name(call.func) == "Task":
        return any(keyword.arg == "status" for keyword in call.keywords)
    return sources.root_name(call.func) == "Task" and called_name(call) != "update"


def _sets_status(text: str) -> bool:
    found = _STATUS_SQL.search(sources.without_comments(text))
    return bool(found and re.search(r"\bstatus\s*=", found["sets"].split("WHERE")[0]))


def test_transactions_begin_in_three_packages() -> None:
    """`atomic` occurs in admission, engine and the ledger's services and nowhere else."""
    offenders = [
        f"{name}:{call.lineno}"
        for name in _files(outside=ATOMIC_FOLDERS)
        for call in calls(ROOT / name)
        if called_name(call) == "atomic"
    ]
    assert offenders == []


def test_all_tenants_only_in_listed_files() -> None:
    """S23: a query over every tenant stands in a listed file, and every listed file has one."""
    users = {
        name_of(path)
        for path in product_files()
        if any(called_name(call) == "all_tenants" for call in calls(path))
    }
    assert users | {"tasks_app/models/scoped.py"} == set(ALL_TENANTS)


def test_lease_sql_reads_no_transaction_time() -> None:
    """P9: no SQL of engine or admission uses now(), which is the start of the transaction."""
    pattern = re.compile(
        r"\b(now|transaction_timestamp|statement_timestamp)\s*\(|\bcurrent_timestamp\b", re.I
    )
    offenders = [
        name_of(path)
        for path in product_files()
        if name_of(path).startswith(("tasks_app/engine/", "tasks_app/admission/"))
        for text in texts(path)
        if _is_sql(text) and pattern.search(sources.without_comments(text))
    ]
    assert offenders == []


def _is_sql(text: str) -> bool:
    return bool(re.search(r"\b(SELECT|UPDATE|INSERT INTO|DELETE FROM)\b", text))


def test_engine_decides_nothing_by_the_hosts_clock() -> None:
    """P9: lease and deadline code asks the database for the time, never Python's wall clock."""
    offenders = [
        f"{name_of(path)}:{call.lineno}"
        for path in product_files()
        if name_of(path).startswith("tasks_app/engine/")
        for call in calls(path)
        if called_name(call) in {"now", "utcnow", "today"}
        or (called_name(call) == "time" and sources.root_name(call.func) == "time")
    ]
    assert offenders == []


@pytest.mark.parametrize(
    "word", ["eta", "countdown", "chain", "chord", "task_always_eager", "TASK_ALWAYS_EAGER"]
)
def test_celery_is_asked_for_nothing_but_a_wake_up(word: str) -> None:
    """P19: no delays, no canvas, no eager mode in product code."""
    offenders = []
    for path in product_files():
        named = {keyword.arg for call in calls(path) for keyword in call.keywords}
        imported = {
            alias.name
            for node in sources.nodes(path)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("celery")
            for alias in node.names
        }
        if word in named | imported or f"CELERY_{word}" in path.read_text(encoding="utf-8"):
            offenders.append(name_of(path))
    assert offenders == []


def test_no_result_of_a_job_is_waited_for() -> None:
    """P19: nothing keeps what `.delay()` or `.apply_async()` returns."""
    offenders = [
        f"{name_of(path)}:{call.lineno}"
        for path in product_files()
        for call in calls(path)
        if isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Call)
        and called_name(call) in {"get", "wait", "join"}
        and called_name(call.func.value) in {"delay", "apply_async", "send_task"}
    ]
    assert offenders == []


def test_tests_do_not_sleep() -> None:
    """Order is forced by locks, barriers and conditions, never by sleeping."""
    offenders = [
        f"{name_of(path)}:{call.lineno}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if "sleep(" in path.read_text(encoding="utf-8")
        for call in calls(path)
        if called_name(call) == "sleep" and sources.root_name(call.func) == "time"
    ]
    assert offenders == []
