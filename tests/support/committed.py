"""A test database with real commits for a group of tests that share processes.

A group names its fixture `db`, instead of pytest-django's, which would roll back or empty the
tables between tests: workers that still run would only fight with that.
"""

from collections.abc import Callable, Iterator
from typing import Any

from django.core.management import call_command
from django.db import connections


def committed(blocker: Any, first: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Let the tests of a group commit; empty the database when the last has ended.

    `first` may empty tables that hold too much to be deleted row by row.
    """
    with blocker.unblock():
        yield
        first()
        call_command("flush", verbosity=0, interactive=False)
        connections.close_all()
