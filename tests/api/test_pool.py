"""Rules: a request gets a connection that works, and no round trip is spent on finding that out."""

import select
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connections

from runtime_project.postgresql.base import DatabaseWrapper

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE_SECONDS = 10


@pytest.fixture
def pooled() -> Iterator[Any]:
    """A connection of Django's own kind that takes its sessions from a pool of one."""
    known = connections["default"].settings_dict
    options = {**known["OPTIONS"], "pool": {"min_size": 1, "max_size": 1}}
    changed = {"OPTIONS": options, "CONN_MAX_AGE": 0, "CONN_HEALTH_CHECKS": False}
    # Any: the stubs know nothing of pools.
    wrapper: Any = DatabaseWrapper({**known, **changed}, alias="default")
    try:
        yield wrapper
    finally:
        wrapper.close()
        wrapper.close_pool()


def session(pooled: Any) -> int:
    """Return which session of the server answers, and give it back."""
    with pooled.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        number: int = cursor.fetchone()[0]
    pooled.close()
    return number


def end(number: int) -> None:
    """Let the server end a session, as a restart does."""
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [number])
        assert cursor.fetchone() == (True,)


def test_a_session_is_used_again(pooled: Any) -> None:
    """A pool is there for that."""
    assert session(pooled) == session(pooled)


def test_a_session_that_the_server_ended_is_given_to_nobody(pooled: Any) -> None:
    """The next request gets another one and does not fail."""
    before = session(pooled)
    end(before)
    after = session(pooled)
    assert after != before
    assert session(pooled) == after


def test_a_session_that_heard_something_goes_on(
    pooled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not all that a server says is an end: a setting that was reloaded, a notification."""
    before = session(pooled)
    asked: list[psycopg.Connection] = []
    look = psycopg.Connection.execute

    def watched(self: psycopg.Connection, *args: Any, **kwargs: Any) -> Any:
        asked.append(self)
        return look(self, *args, **kwargs)

    monkeypatch.setattr(psycopg.Connection, "execute", watched)
    assert session(pooled) == before
    assert asked == []
    with pooled.cursor() as cursor:
        cursor.execute("LISTEN something")
    line = pooled.connection.fileno()
    pooled.close()
    with connections["default"].cursor() as cursor:
        cursor.execute("NOTIFY something")
    assert select.select([line], [], [], PATIENCE_SECONDS)[0] == [line]
    assert session(pooled) == before
    assert len(asked) == 1
