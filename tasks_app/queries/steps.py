"""Steps of a task's plan with their tries, and the slices that executed them, for pages."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, Max, Min, Q, Sum
from django.utils import timezone

from tasks_app.domain.principal import Principal
from tasks_app.models import Attempt, Slice, Step

MAX_ROWS = 200


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step of a plan; `items_total` is known once the list it maps over is.

    A `folded` row stands for all steps of one method; its items are those steps.
    """

    key: str
    kind: str
    method: str
    status: str
    attempts: int
    items_done: int
    items_failed: int
    items_total: int | None
    retired_in: int | None
    error: Any
    started_at: datetime | None
    finished_at: datetime | None
    folded: bool = False

    @property
    def retired(self) -> bool:
        """Tell whether a later plan replaced the step."""
        return self.retired_in is not None

    @property
    def seconds(self) -> float | None:
        """Return how long the step took so far."""
        if self.started_at is None:
            return None
        return ((self.finished_at or timezone.now()) - self.started_at).total_seconds()


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One failed try of a step."""

    step: str
    number: int
    fence: int
    error: Any
    ended_at: datetime
    retry_at: datetime | None


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


def list_steps(principal: Principal, task_id: UUID, *, with_retired: bool = False) -> list[StepRow]:
    """Return the steps of the current plan in order, or of all plans.

    A plan of more than MAX_ROWS steps is folded: one row for all steps of one method.
    """
    rows = Step.objects.visible_to(principal).filter(task_id=task_id)
    if not with_retired:
        rows = rows.filter(retired_in__isnull=True)
    steps = list(rows.order_by("position", "plan_version").defer("options")[: MAX_ROWS + 1])
    if len(steps) > MAX_ROWS:
        return _folded_steps(rows.filter(retired_in__isnull=True))
    counts = {step.key: _item_count(step.result) for step in steps}
    return [_step_row(step, counts) for step in steps]


def list_attempts(principal: Principal, task_id: UUID) -> list[AttemptRow]:
    """Return the newest tries that did not succeed."""
    rows = (
        Attempt.objects.visible_to(principal)
        .filter(task_id=task_id)
        .select_related("step")
        .order_by("-id")[:50]
    )
    return [
        AttemptRow(row.step.key, row.number, row.fence, row.error, row.ended_at, row.retry_at)
        for row in rows
    ]


def list_slices(principal: Principal, task_id: UUID) -> list[SliceRow]:
    """Return the newest slices of a task."""
    rows = Slice.objects.visible_to(principal).filter(task_id=task_id).order_by("-fence")[:50]
    return [
        SliceRow(
            row.fence, row.worker, row.recovered, row.outcome, row.steps, row.started_at,
            row.ended_at,
        )
        for row in rows
    ]  # fmt: skip


def _step_row(step: Step, counts: Mapping[str, int | None]) -> StepRow:
    source = _mapped_list(step) if step.kind == "map" else ""
    total = counts.get(source)
    if step.kind == "map" and step.status == "succeeded":
        total = step.next_item
    return StepRow(
        key=step.key,
        kind=step.kind,
        method=step.method,
        status=step.status,
        attempts=step.attempts,
        items_done=step.next_item,
        items_failed=step.items_failed,
        items_total=total,
        retired_in=step.retired_in,
        error=step.error,
        started_at=step.started_at,
        finished_at=step.finished_at,
    )


# What a group of steps counts as, first match wins; all done or not yet begun otherwise.
_FOLDED_STATUS = ("failed", "running", "waiting")
_DONE_STATUS = ("succeeded", "skipped", "superseded")


def _folded_steps(rows: Any) -> list[StepRow]:
    groups = (
        rows.order_by()
        .values("kind", "method")
        .annotate(
            first=Min("position"),
            number=Count("pk"),
            tries=Sum("attempts"),
            begun=Min("started_at"),
            ended=Max("finished_at"),
            done=Count("pk", filter=Q(status__in=_DONE_STATUS)),
            **{status: Count("pk", filter=Q(status=status)) for status in _FOLDED_STATUS},
        )
        .order_by("first")[:MAX_ROWS]
    )
    return [_folded_row(group) for group in groups]


def _folded_row(group: Mapping[str, Any]) -> StepRow:
    all_done = group["done"] == group["number"]
    settled = "succeeded" if all_done else "running" if group["done"] else "planned"
    status = next((status for status in _FOLDED_STATUS if group[status]), settled)
    return StepRow(
        key=f"{group['method']}.{group['first']}",
        kind=group["kind"],
        method=group["method"],
        status=status,
        attempts=group["tries"] or 0,
        items_done=group["done"],
        items_failed=group["failed"],
        items_total=group["number"],
        retired_in=None,
        error=None,
        started_at=group["begun"],
        finished_at=group["ended"] if all_done else None,
        folded=True,
    )


def _mapped_list(step: Step) -> str:
    """Return the key of the step whose list a map goes over."""
    args = step.arguments.get("args") or [{}]
    return str(args[0].get("ref", ""))


def _item_count(result: Any) -> int | None:
    """Return the length of the list a step produced, when its result names one."""
    inline = result.get("inline") if isinstance(result, dict) else None
    if isinstance(inline, list):
        return len(inline)
    values = [inline, *inline.values()] if isinstance(inline, dict) else []
    for value in values:
        if isinstance(value, dict) and {"count", "stride"} <= value.keys():
            return int(value["count"])
    return None
