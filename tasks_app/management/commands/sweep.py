"""`manage.py sweep`: notices what nobody else would. Any number of copies may run."""

import logging
import signal
import threading
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import InterfaceError, OperationalError, connection
from typing_extensions import override

from tasks_app import conf
from tasks_app.admission import firing, replays
from tasks_app.engine import recovery, webhooks

logger = logging.getLogger(__name__)


class Command(BaseCommand):
    """Sweeps until it is told to stop, or once."""

    help = "Recover lost tasks, wake due ones, expire questions, fire schedules, send messages and webhooks."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="make one pass and print it")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        if options["once"]:
            self.stdout.write(str(recovery.sweep()))
            self.stdout.write(f"schedules: {firing.fire_due()}")
            self.stdout.write(f"webhooks: {webhooks.send_all()}")
            self.stdout.write(f"kept answers forgotten: {replays.forget_old()}")
            return
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        senders = [
            threading.Thread(target=webhooks.send_until, args=[stop], daemon=True)
            for _ in range(webhooks.SENDERS)
        ]
        for sender in senders:
            sender.start()
        sweep_until(stop)
        for sender in senders:
            sender.join()


def sweep_until(stop: threading.Event) -> None:
    """Make passes until told to stop.

    When the sweeper was cut off or stood still, workers may have been, too: they get the time to
    come back and renew before anybody counts as dead (P27).
    """
    believes_from = 0.0
    began_at = time.monotonic()
    while not stop.wait(conf.runtime().sweep_seconds):
        limits = conf.runtime()
        last_at, began_at = began_at, time.monotonic()
        if began_at - last_at > limits.sweep_seconds + limits.heartbeat_seconds:
            believes_from = began_at + limits.outage_grace_seconds
        try:
            counts = recovery.sweep(include_leases=began_at >= believes_from)
            firing.fire_due()
            replays.forget_old()
            if counts.total:
                logger.info("sweep.pass", extra={"counts": str(counts)})
        except (OperationalError, InterfaceError) as error:
            believes_from = time.monotonic() + limits.outage_grace_seconds
            logger.warning("sweep.database_unavailable", extra={"error": str(error)})
            connection.close()
        except Exception:
            # No outage: what is broken is one pass, and the next round needs the others.
            logger.exception("sweep.pass_failed")
            connection.close()
