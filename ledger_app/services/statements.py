"""Runs hot statements, also for those above: bound by the server and prepared after a few uses.

Django binds parameters in the client, so that each call is parsed and planned anew; for the
statements of the step path that costs more than they do (docs/decisions/hot-sql.md).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from django.db import connection


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
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    bare: Any = psycopg.Cursor(connection.connection)
    wrap = connection.make_debug_cursor if connection.queries_logged else connection.make_cursor
    with wrap(bare) as cursor:
        cursor.execute(statement, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows
