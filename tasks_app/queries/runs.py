"""Runs of threads as clients of the run door see them; hidden ones and those of deleted threads are not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, Q, QuerySet

from tasks_app.domain.conversation import MESSAGE
from tasks_app.domain.errors import FieldProblem, InvalidInputError, NotFoundError
from tasks_app.domain.principal import Principal
from tasks_app.domain.runs import CancelAction, RunStatus, Slot, is_over, run_status
from tasks_app.domain.states import TERMINAL, TaskStatus
from tasks_app.models import Event, Run, Task
from tasks_app.queries.run_usage import RunUsage, ThreadUsage, context_of, sum_of, usage_of_runs

_STARTED = Q(task__started_at__isnull=False)
_QUEUED = Q(task__status=TaskStatus.QUEUED)
_ROLLED_BACK = Q(task__status=TaskStatus.CANCELLED, cancel_action=CancelAction.ROLLBACK)
_TIMED_OUT = Q(task__status=TaskStatus.FAILED, task__stop_reason="max_duration")
# The rows that `domain.runs.run_status` gives each status.
WITH_STATUS: Mapping[RunStatus, Q] = {
    RunStatus.PENDING: (_QUEUED & ~_STARTED) | Q(task__status=TaskStatus.PAUSED),
    RunStatus.RUNNING: (_QUEUED & _STARTED)
    | Q(task__status__in=[TaskStatus.WORKING, TaskStatus.PAUSING, TaskStatus.RECOVERING]),
    RunStatus.INTERRUPTED: Q(task__status__in=[TaskStatus.INPUT_REQUIRED, TaskStatus.DEAD_LETTERED])
    | (Q(task__status=TaskStatus.CANCELLED) & ~_ROLLED_BACK),
    RunStatus.SUCCESS: Q(task__status=TaskStatus.COMPLETED),
    RunStatus.ERROR: (Q(task__status=TaskStatus.FAILED) & ~_TIMED_OUT) | _ROLLED_BACK,
    RunStatus.TIMEOUT: _TIMED_OUT,
}


@dataclass(frozen=True, slots=True)
class RunHead:
    """Where a run stands: what one look at its row tells.

    `seq` is the newest event of its journal; all of them up to there are stored. `attempt` counts
    from 1 and grows when another worker takes over. `is_waiting`: it has not had its turn yet.
    """

    tenant_id: UUID
    task_id: UUID
    initiator_id: int
    thread_id: UUID
    thread_key: str
    workflow: str
    number: int
    status: RunStatus
    task_status: TaskStatus
    stop_reason: str
    error: Mapping[str, Any] | None
    attempt: int
    seq: int
    base_state_id: UUID | None
    final_state_id: UUID | None
    request: Mapping[str, Any]
    cancels_on_disconnect: bool
    is_waiting: bool

    @property
    def is_over(self) -> bool:
        """Tell whether a stream has nothing more to wait for."""
        return is_over(self.task_status)

    @property
    def is_terminal(self) -> bool:
        """Tell whether the run can never change again."""
        return self.task_status in TERMINAL


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run with what lists show."""

    head: RunHead
    strategy: str
    metadata: Mapping[str, Any]
    state_version: int
    created_at: datetime
    updated_at: datetime
    usage: RunUsage
    message_count: int


@dataclass(frozen=True, slots=True)
class RunPage:
    """Runs, newest first; `more` tells whether older ones follow."""

    runs: tuple[RunRow, ...]
    more: bool


def runs_of(principal: Principal) -> QuerySet[Run]:
    """Return the runs that the principal sees, with task and thread."""
    rows: QuerySet[Run] = Run.objects.visible_to(principal)
    return rows.filter(hidden_at=None, thread__deleted_at=None).select_related("task", "thread")


def get_head(principal: Principal, task_id: UUID, thread_key: str | None = None) -> RunHead:
    """Return where a run stands, in one query. Raises: NotFoundError."""
    return _head(_find(principal, task_id, thread_key))


def get_run(principal: Principal, task_id: UUID, thread_key: str | None = None) -> RunRow:
    """Return one run. Raises: NotFoundError."""
    return _shown(principal, [_find(principal, task_id, thread_key)])[0]


def list_runs(
    principal: Principal,
    thread_id: UUID,
    *,
    status: RunStatus | None = None,
    limit: int = 10,
    offset: int = 0,
) -> tuple[RunRow, ...]:
    """Return runs of a thread, newest first."""
    rows = runs_of(principal).filter(thread_id=thread_id)
    if status is not None:
        rows = rows.filter(WITH_STATUS[status])
    return _shown(principal, list(rows.order_by("-number")[offset : offset + limit]))


def page_runs(
    principal: Principal, thread_id: UUID, *, before: UUID | None = None, limit: int = 10
) -> RunPage:
    """Return the newest runs of a thread, or those before a run of it.

    Raises: InvalidInputError when `before` is no run of the thread.
    """
    rows = runs_of(principal).filter(thread_id=thread_id)
    if before is not None:
        number = rows.filter(pk=before).values_list("number", flat=True).first()
        if number is None:
            detail = "No run of this thread."
            problem = FieldProblem("/before_run_id", "invalid_value", detail)
            raise InvalidInputError(f"before_run_id: {detail}", [problem])
        rows = rows.filter(number__lt=number)
    found = list(rows.order_by("-number")[: limit + 1])
    return RunPage(_shown(principal, found[:limit]), more=len(found) > limit)


def usage_of_thread(
    principal: Principal, thread_id: UUID, *, include_active: bool = False
) -> ThreadUsage:
    """Return what the runs of a thread used together; of those that ended unless asked for all."""
    rows = runs_of(principal).filter(thread_id=thread_id)
    if not include_active:
        rows = rows.filter(task__status__in=TERMINAL)
    task_ids = list(rows.values_list("pk", flat=True))
    usages = usage_of_runs(principal, task_ids).values()
    return sum_of(usages, context_of(principal, task_ids))


def has_live_children(principal: Principal, task_id: UUID) -> bool:
    """Tell whether a task that the run started has not ended, at any depth."""
    level = [task_id]
    while level:
        children = Task.objects.visible_to(principal).filter(parent_id__in=level)
        pairs = list(children.values_list("pk", "status"))
        if any(status not in TERMINAL for _, status in pairs):
            return True
        level = [child for child, _ in pairs]
    return False


def _find(principal: Principal, task_id: UUID, thread_key: str | None) -> Run:
    rows = runs_of(principal).filter(pk=task_id)
    if thread_key is not None:
        rows = rows.filter(thread__key=thread_key)
    found = rows.first()
    if found is None:
        raise NotFoundError("Not found.")
    return found


def _shown(principal: Principal, rows: Sequence[Run]) -> tuple[RunRow, ...]:
    task_ids = [row.pk for row in rows]
    usage = usage_of_runs(principal, task_ids) if rows else {}
    messages = Event.objects.visible_to(principal).filter(task_id__in=task_ids, type=MESSAGE)
    counted = messages.order_by().values_list("task_id").annotate(number=Count("pk"))
    counts: dict[UUID, int] = dict(counted) if rows else {}
    return tuple(
        RunRow(
            head=_head(row),
            strategy=row.strategy,
            metadata=row.metadata,
            state_version=row.task.state_version,
            created_at=row.task.created_at,
            updated_at=row.task.updated_at,
            usage=usage[row.pk],
            message_count=counts.get(row.pk, 0),
        )
        for row in rows
    )


def _head(row: Run) -> RunHead:
    task, status = row.task, TaskStatus(row.task.status)
    return RunHead(
        tenant_id=row.tenant_id,
        task_id=task.id,
        initiator_id=task.initiator_id,
        thread_id=row.thread_id,
        thread_key=row.thread.key,
        workflow=task.workflow,
        number=row.number,
        status=run_status(
            status, row.cancel_action, task.stop_reason, has_started=task.started_at is not None
        ),
        task_status=status,
        stop_reason=_stop_reason(row, status),
        error=task.error,
        attempt=task.recoveries_total + 1,
        seq=task.event_seq,
        base_state_id=row.base_state_id,
        final_state_id=row.final_state_id,
        request=row.request,
        cancels_on_disconnect=row.cancels_on_disconnect,
        is_waiting=row.slot == Slot.WAITING,
    )


def _stop_reason(row: Run, status: TaskStatus) -> str:
    """Return why a run stopped, in the words of the run door; empty while it goes on."""
    if status is not TaskStatus.CANCELLED:
        return row.task.stop_reason
    if row.cancel_action == CancelAction.ROLLBACK:
        return "rolled_back"
    return row.cancel_reason or row.task.stop_reason
