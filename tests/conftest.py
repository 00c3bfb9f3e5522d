"""Fixtures for every test."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from django.contrib.auth.management import create_permissions
from django.contrib.contenttypes.management import create_contenttypes
from django.contrib.contenttypes.models import ContentType
from django.db.backends.postgresql.operations import DatabaseOperations
from django.db.models.signals import post_migrate
from django.utils import translation


def _forget_content_types(**_: Any) -> None:
    ContentType.objects.clear_cache()


def _empty_filled_tables(
    operations: DatabaseOperations, style: Any, tables: Sequence[str], **_: Any
) -> list[str]:
    """Return SQL that empties the tables which have rows, six times as fast as to truncate all.

    One statement deletes from all of them, so that foreign keys are looked at when it is done; the
    ledger's tables refuse DELETE and have no foreign keys.
    """
    look = " UNION ALL ".join(f"SELECT '{t}' WHERE EXISTS (SELECT FROM \"{t}\")" for t in tables)
    with operations.connection.cursor() as cursor:
        cursor.execute(look)
        filled = [name for (name,) in cursor.fetchall()]
    ledger = [name for name in filled if name.startswith("ledger_app_")]
    others = [
        f'd{at} AS (DELETE FROM "{name}")' for at, name in enumerate(set(filled) - set(ledger))
    ]
    return [
        *([f"TRUNCATE {', '.join(ledger)};"] if ledger else []),
        *([f"WITH {', '.join(others)} SELECT 1;"] if others else []),
    ]


@pytest.fixture(scope="session")
def django_db_modify_db_settings() -> None:
    """Make the emptying of the database between tests cheap.

    Django would truncate every table, and fill in content types and permissions again after each test with real commits;
    content types come back when they are asked for, and no test reads permissions' rows.
    """
    DatabaseOperations.sql_flush = _empty_filled_tables  # type: ignore[method-assign, assignment]
    post_migrate.disconnect(
        create_permissions, dispatch_uid="django.contrib.auth.management.create_permissions"
    )
    post_migrate.disconnect(create_contenttypes)
    post_migrate.connect(_forget_content_types, dispatch_uid="tests.forget_content_types")


@pytest.fixture(autouse=True)
def _own_language() -> None:
    # A request leaves its language behind in the thread.
    translation.deactivate()


@pytest.fixture(autouse=True)
def _own_event_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave the loop that the browser of an earlier test keeps in this thread, unless it is used.

    Beside a loop asyncio.run refuses to start another, and asgiref to call an asynchronous view.
    """
    if "playwright" in request.fixturenames:
        yield
        return
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    yield
    asyncio._set_running_loop(running)
