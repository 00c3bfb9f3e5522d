"""`manage.py work`: a worker that needs no Redis: processes that ask the database for due tasks."""

import ctypes
import logging
import multiprocessing
import os
import resource
import signal
import sys
import time
from multiprocessing import connection as waiting
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections
from typing_extensions import override

from tasks_app import conf
from tasks_app.engine import lease, polling, shutdown
from tasks_app.events import publisher

logger = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1
# How often the parent looks at its children when none of them ends.
LOOK_SECONDS = 0.5
# A place whose process ended at once gets the next one only after so long.
REST_SECONDS = 1.0

_fork = multiprocessing.get_context("fork")


class Command(BaseCommand):
    """Keeps its processes until it is told to stop; then each hands its task on and ends."""

    help = "Execute tasks by polling the database, without Redis (needs RUNTIME_POLL_CLAIM=1)."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--processes", type=int, default=2, help="how many tasks at once")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        if not conf.runtime().poll_claim:
            raise CommandError(
                "Set RUNTIME_POLL_CLAIM=1 for every process: otherwise messages are sent that"
                " nobody reads."
            )
        if options["processes"] < 1:
            raise CommandError("--processes must be at least 1.")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: shutdown.request())
        places = [Place() for _ in range(options["processes"])]
        logger.info("work.ready", extra={"processes": len(places)})
        keep(places)


class Place:
    """One process at a time that executes slices; shares with it since when a slice runs."""

    def __init__(self) -> None:
        self._process: Any = None
        self._started_at = -REST_SECONDS
        self._busy_since = _fork.Value("d", 0.0, lock=False)

    def fill(self) -> None:
        """Start a process if there is none, unless the last one ended just now."""
        if self._process is None and time.monotonic() - self._started_at >= REST_SECONDS:
            # A child must not inherit a session of the database.
            connections.close_all()
            self._busy_since.value = 0.0
            self._started_at = time.monotonic()
            self._process = _fork.Process(target=_child, args=(os.getpid(), self._busy_since))
            self._process.start()

    def clear(self) -> None:
        """Notice that the process ended; kill it when its slice lasts longer than any may."""
        process, since = self._process, self._busy_since.value
        if process is None:
            return
        if not process.is_alive():
            process.join()
            if process.exitcode:
                logger.warning("work.child_lost", extra={"child": process.pid})
            self._process = None
        elif since and time.monotonic() - since > settings.CELERY_TASK_TIME_LIMIT:
            logger.error("work.slice_too_long", extra={"child": process.pid})
            process.kill()

    @property
    def sentinel(self) -> int | None:
        """Return what becomes readable when the process ends, if there is one."""
        return None if self._process is None else int(self._process.sentinel)


def keep(places: list[Place]) -> None:
    """Keep a process in every place; return when told to stop and all of them have ended."""
    while True:
        for place in places:
            place.clear()
            if not shutdown.requested():
                place.fill()
        sentinels = [place.sentinel for place in places if place.sentinel is not None]
        if shutdown.requested() and not sentinels:
            return
        if not waiting.wait(sentinels, LOOK_SECONDS) and not sentinels:
            time.sleep(LOOK_SECONDS)


def _child(parent: int, busy_since: Any) -> None:
    """Work until the worker stops, the parent ends or the process has grown old."""
    signal.signal(signal.SIGTERM, lambda *_: shutdown.leave())
    # From a keyboard it reaches parent and children alike; the parent's word counts.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

    def may_go_on(slices: int) -> bool:
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return (
            os.getppid() == parent
            and slices < settings.CELERY_WORKER_MAX_TASKS_PER_CHILD
            and used < settings.CELERY_WORKER_MAX_MEMORY_PER_CHILD
        )

    def note(is_busy: bool) -> None:
        busy_since.value = time.monotonic() if is_busy else 0.0

    try:
        polling.work(may_go_on=may_go_on, note=note)
    finally:
        # A forked child ends without atexit; what it published last is sent here.
        publisher.flush(1.0)
        lease.stop_keeper()
        connections.close_all()
