"""The MCP door behind real processes; rows are committed."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.mcp.site import McpSite
from tests.support.committed import committed


@pytest.fixture(scope="package")
def db(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The test database with real commits, instead of pytest-django's fixture of this name."""
    yield from committed(django_db_blocker)


@pytest.fixture(scope="package")
def processes(db: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpSite]:
    """Two webs, workers and a sweeper; shared, since starting them is slow."""
    found = McpSite(tmp_path_factory.mktemp("mcp"))
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture
def site(processes: McpSite) -> Iterator[McpSite]:
    """The processes with a tenant of the test's own and nothing held."""
    processes.found_tenant()
    yield processes
    processes.sync.clear()
