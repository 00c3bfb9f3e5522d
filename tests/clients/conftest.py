"""The run door behind real processes, spoken to by the real client; rows are committed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.site import RunSite
from tests.support.committed import committed

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put these tests first, one after the other: mixed with others each would start the site anew."""
    items.sort(key=lambda item: HERE not in item.path.parents)


@pytest.fixture(scope="package")
def db(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The test database with real commits, instead of pytest-django's fixture of this name."""
    yield from committed(django_db_blocker)


@pytest.fixture(scope="package")
def processes(db: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunSite]:
    """Web, workers and a sweeper; shared, since starting them is slow."""
    found = RunSite(tmp_path_factory.mktemp("door"))
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture
def site(processes: RunSite) -> Iterator[RunSite]:
    """The processes with a tenant of the test's own and nothing held."""
    processes.found_tenant()
    yield processes
    processes.sync.clear()
