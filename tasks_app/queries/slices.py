"""What executed a task: its slices, and the tries of steps that did not succeed."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils import timezone

from tasks_app.domain.principal import Principal
from tasks_app.models import Attempt, Slice
from tasks_app.queries import diagnostics
from tasks_app.queries.rows import row_of

_NEWEST = 50


@dataclass(frozen=True, slots=True)
class SliceRow:
    """What one delivery executed."""

    fence: int
    worker: str
    recovered: bool
    outcome: str
    steps: int
    started_at: datetime
    ended_at: datetime | None

    @property
    def seconds(self) -> float:
        """Return how long the slice ran so far."""
        return ((self.ended_at or timezone.now()) - self.started_at).total_seconds()


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One failed try of a step."""

    step: str
    number: int
    fence: int
    error: Any
    ended_at: datetime
    retry_at: datetime | None


def list_slices(principal: Principal, task_id: UUID) -> list[SliceRow]:
    """Return the newest slices of a task."""
    rows = Slice.objects.visible_to(principal).filter(task_id=task_id).order_by("-fence")
    return [row_of(SliceRow, row) for row in rows[:_NEWEST]]


def list_attempts(principal: Principal, task_id: UUID) -> list[AttemptRow]:
    """Return the newest tries that did not succeed."""
    rows = Attempt.objects.visible_to(principal).filter(task_id=task_id).select_related("step")
    return [
        row_of(
            AttemptRow,
            row,
            step=row.step.key,
            error=diagnostics.shown(principal, row.error),
        )
        for row in rows.order_by("-id")[:_NEWEST]
    ]
