"""`manage.py sweep`: notices what nobody else would. Any number of copies may run."""

import logging
import signal
import threading
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import DatabaseError, connection
from typing_extensions import override

from tasks_app import conf
from tasks_app.engine import recovery

logger = logging.getLogger(__name__)


class Command(BaseCommand):
    """Sweeps until it is told to stop, or once."""

    help = "Recover lost tasks, wake due ones, expire questions, send owed messages."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="make one pass and print it")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        if options["once"]:
            self.stdout.write(str(recovery.sweep()))
            return
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        _sweep_until(stop)


def _sweep_until(stop: threading.Event) -> None:
    leases_from = 0.0
    while not stop.wait(conf.runtime().sweep_seconds):
        try:
            counts = recovery.sweep(include_leases=time.monotonic() >= leases_from)
            if counts.total:
                logger.info("sweep.pass", extra={"counts": str(counts)})
        except DatabaseError as error:
            # After an outage live workers get the time of one lease to renew first (P27).
            leases_from = time.monotonic() + conf.runtime().lease_seconds
            logger.warning("sweep.database_unavailable", extra={"error": str(error)})
            connection.close()
