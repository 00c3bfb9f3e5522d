"""Tasks that are held for a person: why, since when, with which evidence, and what can be done.

The engine asks the same `read_state` under the lock, so what a page offers is what is accepted.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from django.db.models import Count, F, Min, QuerySet
from django.utils import timezone

from ledger_app import queries as ledger
from ledger_app.domain.effects import EffectState
from tasks_app.domain.errors import CorruptCheckpointError, NotFoundError
from tasks_app.domain.principal import Principal
from tasks_app.domain.repairs import BULK_MAX, HoldState, RepairVerb, obstacle, offered
from tasks_app.domain.states import TaskStatus
from tasks_app.models import Checkpoint, Task
from tasks_app.queries.checkpoints import verified
from tasks_app.queries.filters import Filters
from tasks_app.queries.paging import PAGE_SIZE, Page
from tasks_app.queries.rows import row_of

# Checkpoints looked at in search of one that can be trusted; older ones are pruned anyway.
_POINTS = 20


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a task needs a person, and which verbs this principal may use now."""

    code: str
    message: str
    since: datetime | None
    verbs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckedPoint:
    """One checkpoint after looking at it; `fault` is empty when it can be continued from."""

    seq: int
    next_step: str
    created_at: datetime
    fault: str
    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a person needs to see before repairing a task.

    `points` are the newest checkpoints; `missing` is the number of one that was removed.
    """

    state: HoldState
    points: tuple[CheckedPoint, ...]
    missing: int | None
    effects: tuple[ledger.EffectRow, ...]

    @property
    def damaged(self) -> list[CheckedPoint]:
        """Return the newest checkpoints that cannot be trusted."""
        return [point for point in self.points if point.fault]

    @property
    def good(self) -> list[CheckedPoint]:
        """Return the checkpoints that can be continued from."""
        return [point for point in self.points if not point.fault]


@dataclass(frozen=True, slots=True)
class HeldFilters(Filters):
    """What a list of held tasks is narrowed to; `cause` is the code they are held for."""

    cause: str = ""
    workflow: str = ""
    initiator: str = ""

    LOOKUPS: ClassVar = {
        "cause": "error__code",
        "workflow": "workflow",
        "initiator": "initiator__username",
    }
    ORDERS: ClassVar = {
        "since": ("held_at", "id"),
        "-since": ("-held_at", "-id"),
    }


@dataclass(frozen=True, slots=True)
class HeldRow:
    """One held task in a list."""

    task_id: UUID
    title: str
    workflow: str
    cause: str
    message: str
    step: str
    since: datetime | None
    recoveries: int
    state_version: int
    initiator: str


@dataclass(frozen=True, slots=True)
class CauseCount:
    """How many visible tasks are held for one cause, and since when the oldest is."""

    cause: str
    count: int
    oldest: datetime | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One held task before a repair of many; `code` says why the verb cannot apply, or is empty."""

    row: HeldRow
    code: str


# --- one task -------------------------------------------------------------------------------
def read_state(task: Task, *, now: datetime) -> HoldState:
    """Return what holds a task: its newest checkpoint is read, and its open effects."""
    points = _points(task)
    newest = next(points, None)
    damaged = newest is not None and bool(newest.fault)
    if (0 if newest is None else newest.seq) != task.checkpoint_seq:
        damaged = True
    good = newest if newest is not None and not newest.fault else None
    good = good or next((point for point in points if not point.fault), None)
    states = [row.state for row in _open_effects(task)]
    return HoldState(
        damaged=damaged,
        good=None if good is None else good.seq,
        in_doubt=states.count(EffectState.IN_DOUBT),
        begun=states.count(EffectState.BEGUN),
        overdue=task.deadline_at is not None and task.deadline_at <= now,
    )


def find_hold(principal: Principal, task: Task, message: str) -> Hold | None:
    """Return why a task is held; None when it is not."""
    if task.status != TaskStatus.DEAD_LETTERED:
        return None
    return Hold(
        code=cause_of(task),
        message=message,
        since=task.held_at,
        verbs=tuple(
            verb.value
            for verb in offered(read_state(task, now=timezone.now()))
            if _may(principal, verb, task)
        ),
    )


def get_evidence(principal: Principal, task_id: UUID) -> Evidence:
    """Return the evidence of a held task; effects only to who may read the ledger.

    Raises:
        NotFoundError: no such task, or not the caller's to see.
    """
    task = Task.objects.visible_to(principal).filter(pk=task_id).first()
    if task is None:
        raise NotFoundError("Not found.")
    points = tuple(_points(task))
    newest = points[0].seq if points else 0
    return Evidence(
        state=read_state(task, now=timezone.now()),
        points=points,
        missing=task.checkpoint_seq if newest != task.checkpoint_seq else None,
        effects=tuple(_open_effects(task)) if principal.can("ledger:read") else (),
    )


def needs_of(verb: RepairVerb) -> tuple[str, ...]:
    """Return the capabilities that a verb needs, all of them."""
    settles = verb is RepairVerb.SETTLE_EFFECT
    return ("deadletters:manage", "ledger:resolve") if settles else ("deadletters:manage",)


def _may(principal: Principal, verb: RepairVerb, task: Task) -> bool:
    """Tell whether to offer a verb; the act itself asks `policy.capabilities`."""
    own = task.initiator_id == principal.user_id
    return not principal.suspended and all(
        principal.can(need) and (own or not principal.sees_only_own(need))
        for need in needs_of(verb)
    )


def cause_of(task: Task) -> str:
    """Return the code for which a task is held."""
    return str(_error(task).get("code") or "unknown")


# --- many -----------------------------------------------------------------------------------
def list_held(
    principal: Principal,
    filters: HeldFilters = HeldFilters(),
    cursor: str | None = None,
    limit: int = PAGE_SIZE,
) -> Page[HeldRow]:
    """Return the visible tasks that are held, the longest held first by default.

    Raises:
        InvalidInputError: the cursor was made for another tenant, filter or order, or is damaged.
    """
    rows = filters.narrow(_held(principal)).select_related("initiator")
    return filters.keyset(principal, "held").page(rows, cursor, limit, _row)


def count_causes(principal: Principal) -> list[CauseCount]:
    """Return the causes for which visible tasks are held, the most frequent first."""
    counted = (
        _held(principal)
        .order_by()
        .values_list(F("error__code"))
        .annotate(count=Count("pk"), oldest=Min("held_at"))
    )
    causes = [CauseCount(cause or "unknown", count, oldest) for cause, count, oldest in counted]
    return sorted(causes, key=lambda found: (-found.count, found.cause))


def count_held(principal: Principal) -> int:
    """Return how many visible tasks are held."""
    return _held(principal).count()


def list_candidates(
    principal: Principal, cause: str, verb: RepairVerb, limit: int = BULK_MAX
) -> list[Candidate]:
    """Return the tasks held for a cause, the longest held first, with what stops the verb on each."""
    rows = _held(principal).filter(error__code=cause).select_related("initiator")
    now = timezone.now()
    return [
        Candidate(_row(task), obstacle(verb, read_state(task, now=now)))
        for task in rows.order_by("held_at", "id")[: min(limit, BULK_MAX)]
    ]


def _held(principal: Principal) -> QuerySet[Task]:
    rows: QuerySet[Task] = Task.objects.visible_to(principal)
    return rows.filter(status=TaskStatus.DEAD_LETTERED)


def _row(task: Task) -> HeldRow:
    error = _error(task)
    return row_of(
        HeldRow,
        task,
        task_id=task.id,
        cause=cause_of(task),
        message=str(error.get("message", "")),
        step=str(error.get("step", "")),
        since=task.held_at,
        recoveries=task.recoveries_total,
        initiator=task.initiator.get_username(),
    )


def _error(task: Task) -> Mapping[str, Any]:
    return task.error if isinstance(task.error, dict) else {}


def _open_effects(task: Task) -> list[ledger.EffectRow]:
    return ledger.list_open_effects(tenant_id=task.tenant_id, task_id=task.id)


def _points(task: Task) -> Iterator[CheckedPoint]:
    """Yield the newest checkpoints, each checked as a slice would check it."""
    rows = Checkpoint.objects.for_tenant(task.tenant_id).filter(task_id=task.id)
    newest_first = rows.order_by("-seq")
    # The newest is mostly good; only then nobody needs the others.
    for part in (newest_first[:1], newest_first[1:_POINTS]):
        yield from (_checked(row) for row in part)


def _checked(row: Checkpoint) -> CheckedPoint:
    fault, facts = "", {}
    try:
        verified(row)
    except CorruptCheckpointError as error:
        fault, facts = error.message, error.fields
    return row_of(
        CheckedPoint,
        row,
        fault=fault,
        expected=str(facts.get("expected", "")),
        found=str(facts.get("found", "")),
    )
