"""Runs hot statements, also for those above: bound by the server and prepared after a few uses.

Django binds parameters in the client, so that each call is parsed and planned anew; for the
statements of the step path that costs more than they do (docs/decisions/hot-sql.md).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from django.db import DEFAULT_DB_ALIAS, connections


def fetch_row(
    statement: str, parameters: Mapping[str, Any] | Sequence[Any]
) -> tuple[Any, ...] | None:
    """Run one statement on the thread's connection and return its first row.

    Transaction: the caller's, or the statement's own. Everything else is as with a plain cursor:
    errors are Django's, logged and captured queries included.
    """
    rows = fetch_rows(statement, parameters)
    return rows[0] if rows else None


def fetch_rows(
    statement: str, parameters: Mapping[str, Any] | Sequence[Any]
) -> list[tuple[Any, ...]]:
    """Run one statement that returns rows, as `fetch_row` does, and return all of them."""
    # Looked up once: `django.db.connection` finds the thread's connection at every use.
    database: Any = connections[DEFAULT_DB_ALIAS]
    database.close_if_health_check_failed()
    database.ensure_connection()
    cursor: Any = psycopg.Cursor(database.connection)
    if database.execute_wrappers or database.queries_logged:
        wrap = database.make_debug_cursor if database.queries_logged else database.make_cursor
        with wrap(cursor) as watched:
            watched.execute(statement, parameters)
            return list(watched.fetchall())
    database.validate_no_broken_transaction()
    with database.wrap_database_errors:
        cursor.execute(statement, parameters)
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found
