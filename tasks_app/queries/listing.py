"""Filtered lists and counters for pages and REST. Every list is keyset-paged and tenant-scoped."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Generic, TypeVar
from uuid import UUID

from django.core import signing
from django.db.models import Count, Q
from django.db.models.functions import Now

from ledger_app import queries as ledger
from ledger_app.domain.effects import EffectState
from tasks_app.domain.errors import InvalidInputError
from tasks_app.domain.principal import Principal
from tasks_app.domain.states import LEASED, TERMINAL, TaskStatus
from tasks_app.models import Approval, Task
from tasks_app.queries.snapshot import progress_of

T = TypeVar("T")
PAGE_SIZE = 50
MAX_PAGE_SIZE = 200
_ID_PREFIX = re.compile(r"[0-9a-f]{4,32}")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list; `next_cursor` is None on the last one."""

    items: tuple[T, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class TaskFilters:
    """What a list of tasks is narrowed to; empty means all."""

    q: str = ""
    states: tuple[str, ...] = ()
    workflow: str = ""

    @property
    def is_set(self) -> bool:
        """Tell whether anything is filtered out."""
        return bool(self.q or self.states or self.workflow)


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task in a list."""

    id: UUID
    title: str
    workflow: str
    status: str
    cancelling: bool
    state_version: int
    priority: int
    phase: str
    progress: float | None
    progress_done: int
    progress_total: int | None
    initiator: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """One approval in the inbox; `own` tells that the reader asked for it."""

    id: UUID
    tool: str
    arguments: Any
    status: str
    task_id: UUID
    task_title: str
    workflow: str
    initiator: str
    own: bool
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Needs:
    """How many things of a tenant need a person."""

    approvals: int
    dead_letters: int
    effects_in_doubt: int
    expired_leases: int


def list_tasks(
    principal: Principal,
    filters: TaskFilters = TaskFilters(),
    cursor: str | None = None,
    limit: int = PAGE_SIZE,
) -> Page[TaskRow]:
    """Return the newest visible tasks after the cursor.

    Raises:
        InvalidInputError: the cursor was made for another tenant or filter, or is damaged.
    """
    limit = max(1, min(limit, MAX_PAGE_SIZE))
    salt = _salt(principal, filters)
    rows = _narrowed(Task.objects.visible_to(principal), filters)
    if filters.states:
        rows = rows.filter(status__in=filters.states)
    if cursor:
        created_at, task_id = _read_cursor(cursor, salt)
        rows = rows.filter(created_at__lte=created_at).filter(
            Q(created_at__lt=created_at) | Q(id__lt=task_id)
        )
    found = list(
        rows.order_by("-created_at", "-id")
        .select_related("initiator")
        .only(*_ROW_COLUMNS)[: limit + 1]
    )
    more = len(found) > limit
    return Page(
        items=tuple(_task_row(task) for task in found[:limit]),
        next_cursor=_cursor(found[limit - 1], salt) if more else None,
    )


def count_tasks(principal: Principal, filters: TaskFilters = TaskFilters()) -> dict[str, int]:
    """Return how many visible tasks each status has; the state filter itself is left out."""
    rows = _narrowed(Task.objects.visible_to(principal), filters)
    counted = rows.order_by().values_list("status").annotate(n=Count("pk"))
    return dict(counted)


def list_approvals(
    principal: Principal, tab: str = "waiting", limit: int = 100
) -> list[ApprovalRow]:
    """Return approvals: `mine` and `waiting` by nearest deadline, `decided` newest first."""
    rows = Approval.objects.visible_to(principal).select_related("task__initiator")
    if tab == "decided":
        rows = rows.exclude(status="pending").order_by("-created_at")
    else:
        rows = rows.filter(status="pending").order_by("expires_at")
    if tab == "mine":
        rows = _decidable(rows, principal)
    return [_approval_row(approval, principal) for approval in rows[:limit]]


def list_task_approvals(principal: Principal, task_id: UUID) -> list[ApprovalRow]:
    """Return the approvals of one task, newest first."""
    rows = Approval.objects.visible_to(principal).filter(task_id=task_id)
    rows = rows.select_related("task__initiator").order_by("-created_at")
    return [_approval_row(approval, principal) for approval in rows[:MAX_PAGE_SIZE]]


def count_waiting(principal: Principal) -> int:
    """Return how many approvals wait for this very person."""
    if not principal.can("approvals:decide"):
        return 0
    rows = Approval.objects.visible_to(principal).filter(status="pending")
    return int(_decidable(rows, principal).count())


def count_needs(principal: Principal) -> Needs:
    """Return how many visible things need a person."""
    tasks = Task.objects.visible_to(principal)
    approvals = Approval.objects.visible_to(principal).filter(status="pending")
    doubtful = ledger.list_open_effects(tenant_id=principal.tenant_id)
    seen = principal.can("ledger:read") and not principal.sees_only_own("ledger:read")
    return Needs(
        approvals=approvals.count(),
        dead_letters=tasks.filter(status=TaskStatus.DEAD_LETTERED).count(),
        effects_in_doubt=sum(e.state == EffectState.IN_DOUBT for e in doubtful) if seen else 0,
        expired_leases=tasks.filter(status__in=LEASED, lease_expires_at__lt=Now()).count(),
    )


def next_waiting(principal: Principal, *, after: UUID) -> UUID | None:
    """Return the next approval that the person may decide, if one waits."""
    if not principal.can("approvals:decide"):
        return None
    rows = Approval.objects.visible_to(principal).filter(status="pending")
    found = _decidable(rows, principal).exclude(pk=after).order_by("expires_at").first()
    return found.pk if found else None


_ROW_COLUMNS = (
    "title", "workflow", "status", "cancel_requested_at", "state_version", "priority", "phase",
    "progress_done", "progress_total", "created_at", "updated_at", "initiator__username",
)  # fmt: skip


def _narrowed(rows: Any, filters: TaskFilters) -> Any:
    if filters.workflow:
        rows = rows.filter(workflow=filters.workflow)
    if filters.q:
        wanted = Q(title__icontains=filters.q)
        prefix = filters.q.lower().replace("-", "")
        if _ID_PREFIX.fullmatch(prefix):
            wanted |= Q(id__gte=UUID(prefix.ljust(32, "0")), id__lte=UUID(prefix.ljust(32, "f")))
        rows = rows.filter(wanted)
    return rows


def _decidable(rows: Any, principal: Principal) -> Any:
    """Leave out what the person asked for or already decided; admission checks the rest."""
    return rows.exclude(task__initiator_id=principal.user_id).exclude(
        decisions__approver_id=principal.user_id
    )


def _task_row(task: Task) -> TaskRow:
    return TaskRow(
        id=task.pk,
        title=task.title,
        workflow=task.workflow,
        status=task.status,
        cancelling=is_cancelling(task),
        state_version=task.state_version,
        priority=task.priority,
        phase=task.phase,
        progress=progress_of(TaskStatus(task.status), task.progress_done, task.progress_total),
        progress_done=task.progress_done,
        progress_total=task.progress_total,
        initiator=task.initiator.get_username(),
        created_at=task.created_at,
        updated_at=task.updated_at,
    )


def is_cancelling(task: Task) -> bool:
    """Tell whether a live task was asked to stop and has not yet."""
    return task.cancel_requested_at is not None and TaskStatus(task.status) not in TERMINAL


def _approval_row(approval: Approval, principal: Principal) -> ApprovalRow:
    return ApprovalRow(
        id=approval.pk,
        tool=approval.tool,
        arguments=approval.arguments,
        status=approval.status,
        task_id=approval.task_id,
        task_title=approval.task.title,
        workflow=approval.task.workflow,
        initiator=approval.task.initiator.get_username(),
        own=approval.task.initiator_id == principal.user_id,
        created_at=approval.created_at,
        expires_at=approval.expires_at,
    )


def _salt(principal: Principal, filters: TaskFilters) -> str:
    """Bind a cursor to tenant and filter, so that it opens no other list (S128)."""
    text = repr((str(principal.tenant_id), filters.q, sorted(filters.states), filters.workflow))
    return f"tasks.list:{sha256(text.encode()).hexdigest()}"


def _cursor(task: Task, salt: str) -> str:
    return signing.dumps([task.created_at.isoformat(), task.pk.hex], salt=salt)


def _read_cursor(text: str, salt: str) -> tuple[datetime, UUID]:
    try:
        values: Sequence[str] = signing.loads(text, salt=salt)
    except signing.BadSignature:
        raise InvalidInputError("The cursor does not belong to this list.") from None
    return datetime.fromisoformat(values[0]), UUID(values[1])
