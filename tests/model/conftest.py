"""Schedules commit, in many threads; nothing is rolled back or emptied between seeds."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.model.seams import model_world
from tests.model.seeds import Bench
from tests.support.committed import committed


@pytest.fixture(scope="package")
def db(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The test database with real commits, instead of pytest-django's fixture of this name."""
    yield from committed(django_db_blocker)


@pytest.fixture(scope="package")
def bench(db: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Threads, sessions and people for all seeds of a test run."""
    with model_world(tmp_path_factory.mktemp("artifacts")):
        bench = Bench()
        try:
            yield bench
        finally:
            bench.close()
