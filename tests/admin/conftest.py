"""Every page test ends the lease keeper that running a slice starts."""

from collections.abc import Iterator

import pytest

from tasks_app.engine import lease


@pytest.fixture(autouse=True)
def _no_keeper() -> Iterator[None]:
    """Leave no connection behind."""
    yield
    lease.stop_keeper()
