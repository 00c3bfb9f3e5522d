"""Slices without messages: ask the database for a due task, execute its slice, ask again.

For installations without Redis (RUNTIME_POLL_CLAIM). The claim, the lease and the way a slice ends
are the same as with messages; `manage.py work` keeps the processes.
"""

import logging
import random
import time
from collections.abc import Callable

from django.db import close_old_connections

from tasks_app import conf
from tasks_app.engine import queue, shutdown, slice_runner

logger = logging.getLogger(__name__)

# How soon a process that waits sees that it is to stop.
STOP_LOOK_SECONDS = 0.05
# After an error of our own, or while the database is away.
ERROR_PAUSE_SECONDS = 1.0


def work(*, may_go_on: Callable[[int], bool], note: Callable[[bool], None]) -> None:
    """Execute due slices until the worker is told to stop. Never raises for a slice's error.

    Args:
        may_go_on: asked with the number of slices so far, before each one.
        note: told True when a slice may begin and False when it has ended.
    """
    slices = 0
    while not shutdown.requested() and may_go_on(slices):
        note(True)
        pause_seconds = _work_once()
        note(False)
        if pause_seconds:
            # Not all processes at the same moment.
            _wait(pause_seconds * random.uniform(0.75, 1.25))  # noqa: S311 - no secret
        else:
            slices += 1
            close_old_connections()


def _work_once() -> float:
    """Execute a slice if a task is due; return how long to wait before asking again."""
    try:
        # Asked first, since a claim that finds nothing costs a transaction.
        if queue.is_anybody_waiting() and slice_runner.run_slice() != "idle":
            return 0.0
    except Exception:  # the process must outlive any single slice
        logger.exception("poll.slice_failed")
        close_old_connections()
        return ERROR_PAUSE_SECONDS
    return conf.runtime().poll_seconds


def _wait(seconds: float) -> None:
    until = time.monotonic() + seconds
    while not shutdown.requested() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, STOP_LOOK_SECONDS))
