"""Threads as clients of the run door see them: status and head are derived, never stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from django.db.models import (
    Case,
    Exists,
    F,
    IntegerField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
)

from tasks_app.domain.errors import NotFoundError
from tasks_app.domain.principal import Principal
from tasks_app.domain.runs import Slot, ThreadStatus, thread_status
from tasks_app.domain.states import TERMINAL, TaskStatus
from tasks_app.models import Run, Thread, ThreadState
from tasks_app.queries.filters import Filters
from tasks_app.queries.paging import PAGE_SIZE, Page

MAX_THREADS = 1000
SORTS = {
    "thread_id": "key",
    "created_at": "created_at",
    "updated_at": "updated_at",
    "status": "run_status",
}
# The run that tells a thread's status: the one at work, else one that waits, else the newest.
_DECIDING = Case(
    When(slot=Slot.HOLDING, then=Value(0)),
    When(slot=Slot.WAITING, then=Value(1)),
    default=Value(2),
    output_field=IntegerField(),
)
_IDLE = [TaskStatus.COMPLETED, TaskStatus.CANCELLED]
_WAITING = [TaskStatus.INPUT_REQUIRED, TaskStatus.DEAD_LETTERED]
WITH_STATUS: Mapping[ThreadStatus, Q] = {
    ThreadStatus.IDLE: Q(run_status__isnull=True) | Q(run_status__in=_IDLE),
    ThreadStatus.INTERRUPTED: Q(run_status__in=_WAITING),
    ThreadStatus.ERROR: Q(run_status=TaskStatus.FAILED),
    ThreadStatus.BUSY: Q(run_status__isnull=False)
    & ~Q(run_status__in=[*_IDLE, *_WAITING, TaskStatus.FAILED]),
}


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """A thread; `run_id` is the run that tells its status, if it has one."""

    id: UUID
    tenant_id: UUID
    owner_id: int
    key: str
    metadata: Mapping[str, Any]
    status: ThreadStatus
    run_id: UUID | None
    values: Mapping[str, Any] | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class ThreadFilters:
    """What a search is narrowed to; values and metadata must hold everything that is named."""

    metadata: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    keys: Sequence[str] = ()
    status: ThreadStatus | None = None


@dataclass(frozen=True, slots=True)
class ThreadListFilters(Filters):
    """What a list of threads is narrowed to; `q` is the begin of the name."""

    q: str = ""
    owner: str = ""
    status: str = ""

    LOOKUPS: ClassVar = {"q": "key__startswith", "owner": "owner__username"}
    ORDERS: ClassVar = {
        "-created": ("-created_at", "-id"),
        "created": ("created_at", "id"),
        "-updated": ("-updated_at", "-id"),
        "name": ("key", "id"),
    }


def list_threads(
    principal: Principal,
    filters: ThreadListFilters = ThreadListFilters(),
    cursor: str | None = None,
    limit: int = PAGE_SIZE,
) -> Page[ThreadRow]:
    """Return the visible threads, newest first by default."""
    rows = filters.narrow(_rows(principal))
    if filters.status:
        rows = rows.filter(WITH_STATUS[ThreadStatus(filters.status)])
    return filters.keyset(principal, "threads").page(rows, cursor, limit, _row)


def get_thread(principal: Principal, key: str) -> ThreadRow:
    """Return one thread. Raises: NotFoundError."""
    found = _rows(principal).filter(key=key).first()
    if found is None:
        raise NotFoundError("Not found.")
    return _row(found)


def is_out_of_sight(thread: Thread) -> bool:
    """Tell whether a thread was deleted, or went with the one run that it was made for."""
    if thread.deleted_at is not None:
        return True
    return _done_with(thread.tenant_id).filter(thread_id=thread.id).exists()


def search_threads(
    principal: Principal,
    filters: ThreadFilters,
    *,
    limit: int = 10,
    offset: int = 0,
    sort_by: str = "created_at",
    descending: bool = True,
) -> list[ThreadRow]:
    """Return visible threads."""
    rows = _narrowed(_rows(principal), filters)
    column = SORTS[sort_by]
    order = F(column).desc(nulls_last=True) if descending else F(column).asc(nulls_first=True)
    return [_row(row) for row in rows.order_by(order, "-id")[offset : offset + limit]]


def count_threads(principal: Principal, filters: ThreadFilters) -> int:
    """Return how many visible threads there are."""
    return _narrowed(_rows(principal), filters).count()


def _rows(principal: Principal) -> QuerySet[Any]:
    runs = (
        Run.objects.for_tenant(principal.tenant_id)
        .filter(thread_id=OuterRef("pk"), hidden_at=None)
        .order_by(_DECIDING, "-number")
    )
    done = _done_with(principal.tenant_id).filter(thread_id=OuterRef("pk"))
    heads = ThreadState.objects.for_tenant(principal.tenant_id).filter(thread_id=OuterRef("pk"))
    threads: QuerySet[Any] = Thread.objects.visible_to(principal).filter(
        ~Exists(done), deleted_at=None
    )
    rows: QuerySet[Any] = threads.annotate(
        run_id=Subquery(runs.values("pk")[:1]),
        run_status=Subquery(runs.values("task__status")[:1]),
        run_cancel_action=Subquery(runs.values("cancel_action")[:1]),
        head=Subquery(heads.order_by("-seq").values("values")[:1]),
    )
    return rows


def _done_with(tenant_id: UUID) -> QuerySet[Any]:
    """Return runs that have ended and took the thread that was made for them out of sight."""
    runs: QuerySet[Any] = Run.objects.for_tenant(tenant_id)
    return runs.filter(request__on_completion="delete", task__status__in=TERMINAL)


def _narrowed(rows: QuerySet[Any], filters: ThreadFilters) -> QuerySet[Any]:
    if filters.metadata:
        rows = rows.filter(metadata__contains=dict(filters.metadata))
    if filters.values:
        rows = rows.filter(head__contains=dict(filters.values))
    if filters.keys:
        rows = rows.filter(key__in=list(filters.keys))
    if filters.status is not None:
        rows = rows.filter(WITH_STATUS[filters.status])
    return rows


def _row(row: Any) -> ThreadRow:
    status = TaskStatus(row.run_status) if row.run_status else None
    return ThreadRow(
        id=row.id,
        tenant_id=row.tenant_id,
        owner_id=row.owner_id,
        key=row.key,
        metadata=row.metadata,
        status=thread_status(status, row.run_cancel_action or ""),
        run_id=row.run_id,
        values=row.head,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
