"""Steps of a task's plans."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, ClassVar
from uuid import UUID

from django.db.models import Count, Max, Min, Q, Sum
from django.utils import timezone

from tasks_app.domain.principal import Principal
from tasks_app.models import Step
from tasks_app.queries import diagnostics
from tasks_app.queries.filters import Filters
from tasks_app.queries.paging import MAX_PAGE_SIZE, PAGE_SIZE, Page
from tasks_app.queries.rows import row_of
from tasks_app.queries.tasks import require_visible


@dataclass(frozen=True, slots=True)
class StepFilters(Filters):
    """What a list of steps is narrowed to; `retired` are those that a later plan replaced."""

    status: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()
    method: str = ""
    plan_version: int | None = None
    retired: bool | None = None

    LOOKUPS: ClassVar = {
        "status": "status__in",
        "kind": "kind__in",
        "method": "method",
        "plan_version": "plan_version",
    }
    ORDERS: ClassVar = {
        "position": ("position", "plan_version", "id"),
        "-position": ("-position", "-plan_version", "-id"),
    }


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step of a plan; `retired_in` names the plan version that replaced it.

    Plans know `items_total` once the list that a step maps over is there. A `folded` row stands
    for all steps of one method; its items are those steps.
    """

    key: str
    position: int
    kind: str
    method: str
    status: str
    attempts: int
    items_done: int
    items_failed: int
    items_total: int | None
    plan_version: int
    retired_in: int | None
    error: Any
    started_at: datetime | None
    finished_at: datetime | None
    folded: bool = False

    @property
    def place(self) -> str:
        """Return the key where it says more than the method: which of several calls this is."""
        return "" if self.folded or self.key == self.method else self.key

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


def list_steps(
    principal: Principal,
    task_id: UUID,
    filters: StepFilters = StepFilters(),
    cursor: str | None = None,
    limit: int = PAGE_SIZE,
) -> Page[StepRow]:
    """Return the steps of all plans in their order; raises NotFoundError."""
    require_visible(principal, task_id)
    rows = filters.narrow(Step.objects.visible_to(principal).filter(task_id=task_id))
    if filters.retired is not None:
        rows = rows.filter(retired_in__isnull=not filters.retired)
    pages = filters.keyset(principal, "steps", task_id)
    return pages.page(rows.defer("arguments", "result"), cursor, limit, partial(_row, principal))


def list_plan(principal: Principal, task_id: UUID, *, with_retired: bool = False) -> list[StepRow]:
    """Return the steps of the current plan in order, or of all plans.

    A plan of more than MAX_PAGE_SIZE steps is folded: one row for all steps of one method.
    """
    rows = Step.objects.visible_to(principal).filter(task_id=task_id)
    if not with_retired:
        rows = rows.filter(retired_in__isnull=True)
    steps = list(rows.order_by("position", "plan_version").defer("options")[: MAX_PAGE_SIZE + 1])
    if len(steps) > MAX_PAGE_SIZE:
        return _folded_steps(rows.filter(retired_in__isnull=True))
    counts = {step.key: _item_count(step.result) for step in steps}
    return [_row(principal, step, _items_total(step, counts)) for step in steps]


def _row(principal: Principal, step: Step, items_total: int | None = None) -> StepRow:
    return row_of(
        StepRow,
        step,
        items_done=step.next_item,
        items_total=items_total,
        error=diagnostics.shown(principal, step.error),
    )


def _items_total(step: Step, counts: Mapping[str, int | None]) -> int | None:
    if step.kind != "map":
        return None
    return step.next_item if step.status == "succeeded" else counts.get(_mapped_list(step))


# What a group of steps counts as, first match wins; all done or not yet begun otherwise.
_FOLDED_STATUS = ("failed", "running", "waiting")
_DONE_STATUS = ("succeeded", "skipped", "superseded")


def _folded_steps(rows: Any) -> list[StepRow]:
    groups = (
        rows.order_by()
        .values("kind", "method")
        .annotate(
            first=Min("position"),
            plan=Max("plan_version"),
            number=Count("pk"),
            tries=Sum("attempts"),
            begun=Min("started_at"),
            ended=Max("finished_at"),
            done=Count("pk", filter=Q(status__in=_DONE_STATUS)),
            **{status: Count("pk", filter=Q(status=status)) for status in _FOLDED_STATUS},
        )
        .order_by("first")[:MAX_PAGE_SIZE]
    )
    return [_folded_row(group) for group in groups]


def _folded_row(group: Mapping[str, Any]) -> StepRow:
    all_done = group["done"] == group["number"]
    settled = "succeeded" if all_done else "running" if group["done"] else "planned"
    status = next((status for status in _FOLDED_STATUS if group[status]), settled)
    return StepRow(
        key=f"{group['method']}.{group['first']}",
        position=group["first"],
        kind=group["kind"],
        method=group["method"],
        status=status,
        attempts=group["tries"] or 0,
        items_done=group["done"],
        items_failed=group["failed"],
        items_total=group["number"],
        plan_version=group["plan"],
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
