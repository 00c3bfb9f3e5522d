"""The same chain of steps written by hand on plain Celery: what a team would have without us.

Five jobs, each storing its result and moving its task in one commit, then sending the next. No
lease, no fence, no ledger, no audit, and a message that is lost ends the chain. Its connection is
kept between jobs, which Celery does not do by itself.
"""

import os
import time
from functools import cache

import psycopg
from celery import Celery

from runtime_project import env

SCHEMA = """
CREATE TABLE plain_task (
    id bigint PRIMARY KEY, position bigint NOT NULL, started_at timestamptz, finished_at timestamptz);
CREATE TABLE plain_step (
    task_id bigint, position bigint, result jsonb NOT NULL, at double precision NOT NULL,
    PRIMARY KEY (task_id, position));
"""
_STEP = """
WITH moved AS (
    UPDATE plain_task SET position = position + 1,
        started_at = coalesce(started_at, clock_timestamp()),
        finished_at = CASE WHEN position + 1 = %s THEN clock_timestamp() END
    WHERE id = %s RETURNING id, position
)
INSERT INTO plain_step (task_id, position, result, at) SELECT id, position, %s, %s FROM moved
"""

app = Celery("plain", broker=env.broker_url(os.environ["REDIS_URL"]))
app.conf.task_ignore_result = True
app.conf.task_default_queue = "plain"
app.conf.worker_hijack_root_logger = False


@cache
def _connection() -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)


@app.task(name="plain.step")
def step(task_id: int, position: int, steps: int) -> None:
    """Do one step and send the next."""
    _connection().execute(_STEP, (steps, task_id, '{"inline": 7}', time.monotonic()))
    if position + 1 < steps:
        step.delay(task_id, position + 1, steps)
