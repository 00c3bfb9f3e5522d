"""Crash tests hurt real processes; rows are committed, so nothing is rolled back between them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from tests.crash.bed import Bed
from tests.support.committed import committed
from tests.support.outside import Outside
from tests.support.workers import Fleet


@pytest.fixture(scope="package")
def db(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The test database with real commits, instead of pytest-django's fixture of this name."""
    yield from committed(django_db_blocker)


@pytest.fixture(scope="package")
def outside() -> Iterator[Outside]:
    with Outside() as world:
        yield world


@pytest.fixture(scope="package")
def fleet(db: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Three workers with one process each, and a sweeper; shared, since starting them is slow.

    Three, because Celery takes seconds to replace a killed child, and the next test kills another.
    """
    fleet = Fleet(tmp_path_factory.mktemp("fleet"), application="tests.support.faulty")
    try:
        fleet.start(workers=3)
        yield fleet
    finally:
        fleet.stop()


@pytest.fixture
def bed(fleet: Fleet, outside: Outside, tmp_path: Path, settings: Settings) -> Iterator[Bed]:
    # This process owes messages, too, and the sweeper is to send them again as soon.
    settings.RUNTIME = {**settings.RUNTIME, "outbox_retry_seconds": 0.5}
    bed = Bed(fleet, outside, tmp_path)
    yield bed
    bed.sync.clear()


@pytest.fixture
def thrice(bed: Bed) -> Iterator[None]:
    """Have the workers send every message three times."""
    switch = bed.sync.folder / "tripled"
    switch.touch()
    yield
    switch.unlink()


@pytest.fixture
def literal(bed: Bed) -> Iterator[None]:
    """Have a task wait for its own message, whoever else has nothing to do."""
    switch = bed.sync.folder / "literal"
    switch.touch()
    yield
    switch.unlink()


@pytest.fixture
def long_slices(bed: Bed) -> Iterator[None]:
    """Two workers whose slices are as long as they like, in the place of the others."""
    usual = bed.fleet.env
    bed.fleet.env = {**usual, "RUNTIME_SLICE_STEPS": "1000000", "RUNTIME_SLICE_SECONDS": "600"}
    bed.fleet.exchange(workers=2)
    yield
    bed.fleet.env = usual
    bed.fleet.exchange(workers=3)
