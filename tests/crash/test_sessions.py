"""Many short tasks share the workers' connections (P14)."""

import pytest
from django.db import connection

from tests.crash.bed import Bed

pytestmark = pytest.mark.crash


def test_five_hundred_short_tasks_open_few_sessions(bed: Bed) -> None:
    """P14: workers keep their connections between jobs; 500 tasks open fewer than 20 sessions."""
    bed.wait_rest(bed.submit(bed.say()))
    before = _sessions()
    ids = [bed.submit(bed.say()) for _ in range(500)]
    bed.wait_all_rest(ids)
    assert _sessions() - before < 20


def _sessions() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute("SELECT sessions FROM pg_stat_database WHERE datname = current_database()")
        (sessions,) = cursor.fetchone()
    return int(sessions)
