"""The pytest plug-in: a fixture that runs workflows on the test database, with real commits."""

from collections.abc import Iterator
from typing import Any

import pytest

from tasks_app.engine import lease
from tasks_app.testing.tester import DurableTester


@pytest.fixture
def durable(transactional_db: Any) -> Iterator[DurableTester]:
    """Return a tenant with one person who may do everything, and a worker that runs when told to."""
    yield DurableTester()
    lease.stop_keeper()
