"""Each module starts the processes it needs; rows are committed."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from tests.support.committed import committed
from tests.support.outside import Outside


@pytest.fixture(scope="module")
def db(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The test database with real commits, instead of pytest-django's fixture of this name."""
    yield from committed(django_db_blocker, first=_truncate)


def _truncate() -> None:
    # The suite's own emptying deletes row by row, which for so many tasks takes minutes.
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE tasks_app_task CASCADE")


@pytest.fixture(scope="module")
def outside() -> Iterator[Outside]:
    with Outside() as world:
        yield world
