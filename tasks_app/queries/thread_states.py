"""States of a thread: those that are stored, and those in between, folded from a run's events.

A stored state is named by its id, one in between by its run and the event that it comes after.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any
from uuid import UUID

from tasks_app.domain.conversation import CHANGES, apply, begin, complete
from tasks_app.domain.errors import NotFoundError
from tasks_app.domain.principal import Principal
from tasks_app.domain.runs import Slot
from tasks_app.domain.states import TaskStatus
from tasks_app.models import Run, Step, ThreadState
from tasks_app.queries.conversations import events_between
from tasks_app.queries.runs import RunHead, get_head, runs_of
from tasks_app.queries.snapshot import TaskSnapshot, get_snapshot
from tasks_app.queries.threads import ThreadRow

CHECKPOINT = "checkpoint"
_SETTLED = ("succeeded", "skipped", "superseded", "failed")


@dataclass(frozen=True, slots=True)
class Interrupt:
    """What a run waits for; the id goes into the answer."""

    id: str
    value: Any


@dataclass(frozen=True, slots=True)
class StateRow:
    """Values of a thread at one time; `next` names what a run would do from there."""

    thread_key: str
    checkpoint_id: str | None
    parent_id: str | None
    values: Mapping[str, Any]
    metadata: Mapping[str, Any]
    created_at: datetime | None
    task_id: UUID | None = None
    next: tuple[str, ...] = ()
    interrupts: tuple[Interrupt, ...] = ()


def point_id(task_id: UUID, seq: int) -> str:
    """Return the name of the state after an event of a run."""
    return f"{task_id}.{seq}"


def get_state(principal: Principal, thread: ThreadRow) -> StateRow:
    """Return the thread's state now: of the run at work, else the newest stored one."""
    run = _at_work(principal, thread.id)
    if run is not None:
        return _present(principal, run)
    head = _stored(principal, thread).order_by("-seq").first()
    if head is None:
        return StateRow(thread.key, None, None, complete({}), {}, thread.created_at)
    return _row(thread, head)


def get_past_state(principal: Principal, thread: ThreadRow, checkpoint_id: str) -> StateRow:
    """Return a state by its name. Raises: NotFoundError."""
    task, _, seq = checkpoint_id.partition(".")
    try:
        wanted = UUID(task)
    except ValueError:
        raise NotFoundError("Not found.") from None
    if not seq:
        found = _stored(principal, thread).filter(pk=wanted).first()
        if found is None:
            raise NotFoundError("Not found.")
        return _row(thread, found)
    run = get_head(principal, wanted, thread.key)
    if not seq.isdigit() or not 0 < int(seq) <= run.seq:
        raise NotFoundError("Not found.")
    return next(_points(principal, run, int(seq), exactly=True))


def list_history(
    principal: Principal,
    thread: ThreadRow,
    *,
    limit: int = 10,
    before: str | None = None,
    fits: Callable[[StateRow], bool] = lambda _: True,
) -> list[StateRow]:
    """Return states that fit, newest first; those behind the one that is named, if it is."""
    found = _history(principal, thread)
    if before is not None:
        for state in found:
            if state.checkpoint_id == before:
                break
    return list(islice(filter(fits, found), limit))


def values_of(principal: Principal, run: RunHead) -> Mapping[str, Any]:
    """Return the values that a run has left, or those it has by now."""
    if run.final_state_id is not None:
        return _values(principal, run.final_state_id)
    return fold(principal, run, run.seq)


def base_values(principal: Principal, run: RunHead) -> dict[str, Any]:
    """Return the values that a run began with."""
    return begin({} if run.base_state_id is None else _values(principal, run.base_state_id))


def fold(principal: Principal, run: RunHead, up_to: int) -> dict[str, Any]:
    """Return a run's values after one of its events."""
    events = events_between(principal, run.task_id, after=0, up_to=up_to, types=CHANGES)
    return apply(base_values(principal, run), [(event.type, event.data) for event in events])


def interrupts_of(principal: Principal, run: RunHead) -> tuple[Interrupt, ...]:
    """Return what a run waits for now; nothing when it has moved on meanwhile."""
    if run.task_status not in {TaskStatus.INPUT_REQUIRED, TaskStatus.DEAD_LETTERED}:
        return ()
    found = get_snapshot(principal, run.task_id)
    return _interrupts(found) if found.seq == run.seq else ()


def _interrupts(found: TaskSnapshot) -> tuple[Interrupt, ...]:
    if found.status is TaskStatus.DEAD_LETTERED:
        error = found.error or {}
        held = {"kind": "dead_letter", "reason": error.get("code"), "message": found.status_message}
        return (Interrupt(str(found.task_id), held),)
    if found.open_approval is not None:
        approval = found.open_approval
        asked = {
            "kind": "approval",
            "tool": approval.tool,
            "args_sha256": approval.args_sha256,
            "version": approval.version,
            "expires_at": approval.expires_at.isoformat(),
        }
        return (Interrupt(str(approval.id), asked),)
    if found.open_question is not None:
        question = found.open_question
        wanted = {"kind": "question", "prompt": question.prompt, "schema": dict(question.schema)}
        return (Interrupt(question.step_key, wanted),)
    return ()


def _at_work(principal: Principal, thread_id: UUID) -> RunHead | None:
    rows = runs_of(principal).filter(thread_id=thread_id, slot=Slot.HOLDING)
    task_id = rows.values_list("pk", flat=True).first()
    return None if task_id is None else get_head(principal, task_id)


def _present(principal: Principal, run: RunHead) -> StateRow:
    if run.final_state_id is not None:
        # It ended between two looks.
        state = ThreadState.objects.visible_to(principal).get(pk=run.final_state_id)
        return _state(run.thread_key, state)
    return StateRow(
        thread_key=run.thread_key,
        checkpoint_id=point_id(run.task_id, run.seq),
        parent_id=None if run.base_state_id is None else str(run.base_state_id),
        values=fold(principal, run, run.seq),
        metadata=_metadata(run, run.seq),
        created_at=None,
        task_id=run.task_id,
        next=_next(principal, run),
        interrupts=interrupts_of(principal, run),
    )


def _next(principal: Principal, run: RunHead) -> tuple[str, ...]:
    steps = Step.objects.visible_to(principal).filter(task_id=run.task_id, retired_in__isnull=True)
    ahead = steps.exclude(status__in=_SETTLED).order_by("position")
    key = ahead.values_list("key", flat=True).first()
    return (key or run.workflow,)


def _history(principal: Principal, thread: ThreadRow) -> Iterator[StateRow]:
    run = _at_work(principal, thread.id)
    if run is not None:
        now = _present(principal, run)
        yield now
        points = _points(principal, run, run.seq)
        yield from (point for point in points if point.checkpoint_id != now.checkpoint_id)
    hidden = Run.objects.visible_to(principal).filter(thread_id=thread.id, hidden_at__isnull=False)
    unseen = set(hidden.values_list("pk", flat=True))
    for state in _stored(principal, thread).order_by("-seq").iterator(chunk_size=20):
        yield _row(thread, state)
        if state.task_id is not None and state.task_id not in unseen:
            left = get_head(principal, state.task_id)
            yield from _points(principal, left, left.seq)


def _points(
    principal: Principal, run: RunHead, up_to: int, *, exactly: bool = False
) -> Iterator[StateRow]:
    """Yield the states at a run's checkpoints, newest first, or exactly the one after an event."""
    kinds = (*CHANGES, CHECKPOINT)
    events = events_between(principal, run.task_id, after=0, up_to=up_to, types=kinds)
    values, changes = base_values(principal, run), []
    found: list[tuple[int, datetime, Mapping[str, Any]]] = []
    for event in events:
        if event.type in CHANGES:
            changes.append((event.type, event.data))
        elif not exactly:
            values, changes = apply(values, changes), []
            found.append((event.seq, event.at, values))
    if exactly:
        at = events[-1].at if events else None
        yield _point(run, up_to, at, apply(values, changes), run.base_state_id)
        return
    for number in range(len(found) - 1, -1, -1):
        seq, written_at, then = found[number]
        parent = point_id(run.task_id, found[number - 1][0]) if number else run.base_state_id
        yield _point(run, seq, written_at, then, parent)


def _point(
    run: RunHead,
    seq: int,
    at: datetime | None,
    values: Mapping[str, Any],
    parent: UUID | str | None,
) -> StateRow:
    return StateRow(
        thread_key=run.thread_key,
        checkpoint_id=point_id(run.task_id, seq),
        parent_id=None if parent is None else str(parent),
        values=values,
        metadata=_metadata(run, seq),
        created_at=at,
        task_id=run.task_id,
        next=(run.workflow,),
    )


def _metadata(run: RunHead, seq: int) -> dict[str, Any]:
    return {"source": "loop", "step": seq, "run_id": str(run.task_id)}


def _stored(principal: Principal, thread: ThreadRow) -> Any:
    return ThreadState.objects.visible_to(principal).filter(thread_id=thread.id)


def _values(principal: Principal, state_id: UUID) -> Mapping[str, Any]:
    states = ThreadState.objects.visible_to(principal).filter(pk=state_id)
    found: Mapping[str, Any] | None = states.values_list("values", flat=True).first()
    return complete(found or {})


def _row(thread: ThreadRow, state: ThreadState) -> StateRow:
    return _state(thread.key, state)


def _state(thread_key: str, state: ThreadState) -> StateRow:
    return StateRow(
        thread_key=thread_key,
        checkpoint_id=str(state.id),
        parent_id=None if state.parent_id is None else str(state.parent_id),
        values=complete(state.values),
        metadata={"source": state.source, "step": state.seq, **state.metadata},
        created_at=state.created_at,
        task_id=state.task_id,
    )
