"""When a schedule fires and what it does about the task before: plain rules.

A cron expression is read as Debian's cron reads it, in the schedule's time zone: a time that the
clocks skip fires when they have moved on, and one that they repeat fires once.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from tasks_app.domain.errors import FieldProblem, InvalidInputError
from tasks_app.domain.runs import Strategy

MIN_INTERVAL_SECONDS = 1
MAX_INTERVAL_SECONDS = 366 * 24 * 3600
MAX_CATCH_UP = 100
MAX_JITTER_SECONDS = 3600
# So many missed times are counted; what lies before them is forgotten.
MAX_MISSED = 10_000


class Overlap(StrEnum):
    """What happens when the task before has not ended at the time of the next."""

    SKIP = "skip"
    QUEUE = "queue"
    CANCEL_PREVIOUS = "cancel_previous"


# The tasks of a schedule are runs of one thread, which knows what to do.
STRATEGIES = {
    Overlap.SKIP: Strategy.REJECT,
    Overlap.QUEUE: Strategy.ENQUEUE,
    Overlap.CANCEL_PREVIOUS: Strategy.INTERRUPT,
}


@dataclass(frozen=True, slots=True)
class Timing:
    """When a schedule is due: a cron expression or an interval, in a time zone."""

    cron: str = ""
    interval_seconds: int | None = None
    time_zone: str = "UTC"

    def check(self) -> None:
        """Refuse what names no times. Raises: InvalidInputError."""
        problems = [*self._zone_problems(), *self._time_problems()]
        if problems:
            raise InvalidInputError(problems[0].detail, problems)

    def next_after(self, moment: datetime, since: datetime) -> datetime | None:
        """Return the first time after a moment, in UTC; None when there is none any more.

        Args:
            since: where an interval is counted from.
        """
        if self.interval_seconds is not None:
            step = timedelta(seconds=self.interval_seconds)
            passed = max(0, (moment - since) // step)
            return since + (passed + 1) * step
        local = moment.astimezone(ZoneInfo(self.time_zone))
        found = next(CronSim(self.cron, local), None)
        return None if found is None else found.astimezone(UTC)

    def due_until(self, first: datetime, now: datetime, since: datetime) -> Iterator[datetime]:
        """Yield every time from the first one on that is not after now, at most MAX_MISSED."""
        moment: datetime | None = first
        for _ in range(MAX_MISSED):
            if moment is None or moment > now:
                return
            yield moment
            moment = self.next_after(moment, since)

    def _zone_problems(self) -> list[FieldProblem]:
        try:
            ZoneInfo(self.time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return [FieldProblem("/timeZone", "invalid_value", "No time zone of that name.")]
        return []

    def _time_problems(self) -> list[FieldProblem]:
        if bool(self.cron) == (self.interval_seconds is not None):
            detail = "Give either cron or intervalSeconds."
            return [FieldProblem("/cron", "invalid_value", detail)]
        if self.interval_seconds is not None:
            if MIN_INTERVAL_SECONDS <= self.interval_seconds <= MAX_INTERVAL_SECONDS:
                return []
            detail = f"From {MIN_INTERVAL_SECONDS} to {MAX_INTERVAL_SECONDS} seconds."
            return [FieldProblem("/intervalSeconds", "invalid_value", detail)]
        try:
            next(CronSim(self.cron, datetime(2024, 1, 1, tzinfo=UTC)))
        except CronSimError as error:
            return [FieldProblem("/cron", "invalid_value", f"No cron expression: {error}.")]
        except StopIteration:
            return [FieldProblem("/cron", "invalid_value", "It never comes to pass.")]
        return []


def jitter(identity: str, due: datetime, most_seconds: int) -> timedelta:
    """Return how much later than due a firing happens: the same for everybody who asks."""
    if most_seconds == 0:
        return timedelta()
    digest = hashlib.sha256(f"{identity}:{due.isoformat()}".encode()).digest()
    return timedelta(seconds=int.from_bytes(digest[:8], "big") % (most_seconds * 1000) / 1000)
