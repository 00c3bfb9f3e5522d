"""The ledger's migrations: forward, backward, and two databases at once."""

import threading
import uuid
from collections.abc import Callable, Iterator

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection, connections
from django.db.migrations.executor import MigrationExecutor
from psycopg import sql

from ledger_app.services import audit
from ledger_app.sql import create_roles_sql
from tests.ledger.conftest import Subject

pytestmark = pytest.mark.django_db(transaction=True)

OURS = """
    SELECT relname::text FROM pg_class WHERE relname LIKE 'ledger\\_%%'
    UNION ALL SELECT proname::text FROM pg_proc WHERE proname LIKE 'ledger\\_%%'
    UNION ALL SELECT tgname::text FROM pg_trigger
        JOIN pg_class ON pg_class.oid = tgrelid AND relname LIKE 'ledger\\_%%'
"""


def own_objects() -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute(OURS, [])
        return {name for (name,) in cursor.fetchall()}


@pytest.fixture
def connect(django_db_setup: None) -> Iterator[Callable[[], psycopg.Connection]]:
    """Open further connections to the test database; they are closed at the end."""
    parameters = connections["default"].get_connection_params()
    wanted = {
        name: parameters[name]
        for name in ("host", "port", "user", "password", "dbname")
        if parameters.get(name)
    }
    opened: list[psycopg.Connection] = []

    def open_one() -> psycopg.Connection:
        opened.append(psycopg.connect(**wanted))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


@pytest.mark.crash
def test_migrations_go_back_to_nothing_and_forward_again(subject: Subject) -> None:
    """Backward leaves no table, function or trigger; forward works with all guards again."""
    before = own_objects()
    assert "audit_entry_append_only" in before
    dependants = [
        app
        for app, _ in MigrationExecutor(connection).loader.graph.leaf_nodes()
        if app == "tasks_app"
    ]
    try:
        for app in (*dependants, "ledger_app"):
            call_command("migrate", app, "zero", verbosity=0)
        assert own_objects() == set()
    finally:
        call_command("migrate", verbosity=0)
    assert own_objects() == before
    subject.append()
    assert audit.verify(subject.stream).ok


def test_models_and_migrations_agree() -> None:
    """No migration is missing."""
    call_command("makemigrations", "ledger_app", check=True, dry_run=True, verbosity=0)


def test_two_databases_may_create_the_roles_at_once(
    connect: Callable[[], psycopg.Connection],
) -> None:
    """Roles belong to the server: the second migration waits for the first, then goes on."""
    role = f"rt_race_{uuid.uuid4().hex[:12]}"
    block = create_roles_sql((role,))
    first, second, watcher = connect(), connect(), connect()
    watcher.autocommit = True
    failed: list[BaseException] = []

    def run_second() -> None:
        try:
            second.execute(block)
            second.commit()
        except psycopg.Error as error:
            failed.append(error)

    thread = threading.Thread(target=run_second)
    try:
        first.execute(block)
        thread.start()
        for _ in range(100_000):
            waiting = watcher.execute(
                "SELECT pg_blocking_pids(%s)", [second.info.backend_pid]
            ).fetchone()
            if waiting and first.info.backend_pid in waiting[0]:
                break
        else:
            pytest.fail("the second migration did not wait")
        first.commit()
        thread.join()
        assert failed == []
    finally:
        watcher.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(role)))
