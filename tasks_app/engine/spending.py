"""What a slice uses up of its task's limits, as far as it knows without asking the database."""

import time

from tasks_app.domain.budgets import BudgetKind, notice_of
from tasks_app.domain.errors import PriceUnknownError
from tasks_app.engine.lease import ClaimedTask
from tasks_app.engine.usage import UsageReport


class Spending:
    """Steps, active seconds and reported calls of one slice; `budgets` enters them in the rows."""

    def __init__(self, task: ClaimedTask) -> None:
        self._task = task
        self.started_at = time.monotonic()
        # Finished work of this slice: a step each, an item of a map each.
        self.steps = 0
        # What calls used and no commit has entered yet.
        self.reports: list[UsageReport] = []
        # What the task has spent of each kind that is entered with results; see `budgets`.
        self.spent: dict[str, int] | None = None
        self.unpriced: PriceUnknownError | None = None
        self._active_stored = task.active_seconds
        self._active_until = self.started_at

    def take_reports(self) -> list[UsageReport]:
        """Return what is not entered yet, and forget it."""
        reports, self.reports = self.reports, []
        return reports

    @property
    def counted(self) -> dict[str, float]:
        """Return the task's finished steps and active seconds up to now, by kind of budget."""
        return {
            BudgetKind.STEPS: self._task.steps_done + self.steps,
            BudgetKind.ACTIVE_SECONDS: self._task.active_seconds
            + time.monotonic()
            - self.started_at,
        }

    @property
    def is_limited(self) -> bool:
        """Tell whether limits hold back what comes next; undoing is never held back."""
        return bool(self._task.budget) and not self._task.closing_as

    @property
    def is_over(self) -> bool:
        """Tell whether the next step would be one too many."""
        limits = self._task.budget
        return self.is_limited and (
            any(kind in limits and used >= limits[kind] for kind, used in self.counted.items())
            or any(used > limits[kind] for kind, used in (self.spent or {}).items())
        )

    # --- working time, which is stored with each commit ----------------------------------------

    def active_until_now(self) -> tuple[float, float]:
        """Return the working seconds since the last commit, and the moment they reach to."""
        now = time.monotonic()
        return now - self._active_until, now

    def stored(self, active_seconds: float, until: float) -> None:
        """Take down that a commit has stored so much working time."""
        self._active_stored += active_seconds
        self._active_until = until

    def notices(self, steps: int, active_seconds: float) -> list[dict[str, object]]:
        """Return what to tell when a commit of so much reaches 80 or 100 % of a limit (S74)."""
        limits = self._task.budget
        if not limits:
            return []
        done = self._task.steps_done + self.steps
        active = self._active_stored
        notices = (
            notice_of(kind, before, after, limits.get(kind))
            for kind, before, after in (
                (BudgetKind.STEPS, done - steps, done),
                (BudgetKind.ACTIVE_SECONDS, active, active + active_seconds),
            )
        )
        return [notice for notice in notices if notice is not None]
