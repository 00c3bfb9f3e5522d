"""The yardstick: one insert-and-update statement and one commit per step, on one connection.

Plain psycopg on the database that is measured, run in turns with what is measured, so that the
machine's noise meets both.
"""

import statistics
import time
from itertools import pairwise

import psycopg

_SCHEMA = """
CREATE TABLE IF NOT EXISTS bench_task (id bigint PRIMARY KEY, position bigint NOT NULL);
CREATE TABLE IF NOT EXISTS bench_step (
    task_id bigint, position bigint, result jsonb NOT NULL, PRIMARY KEY (task_id, position));
"""
_STEP = """
WITH moved AS (
    UPDATE bench_task SET position = position + 1 WHERE id = %s RETURNING id, position
)
INSERT INTO bench_step (task_id, position, result) SELECT id, position, %s FROM moved
"""


class Bare:
    """A connection that does what a durable step cannot do without."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute(_SCHEMA)
        self._task = 0

    def seconds_per_step(self, steps: int) -> float:
        """Return what one step costs now: the mean over so many of them."""
        return statistics.mean(self.times(steps))

    def times(self, steps: int) -> list[float]:
        """Run so many steps of one task and return the seconds of each."""
        self._task += 1
        self._connection.execute("INSERT INTO bench_task VALUES (%s, 0)", (self._task,))
        marks = [time.perf_counter()]
        for _ in range(steps):
            self._connection.execute(_STEP, (self._task, '{"inline": 7}'))
            marks.append(time.perf_counter())
        return [after - before for before, after in pairwise(marks)]

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
