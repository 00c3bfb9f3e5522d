"""Runs from the programs' door: one task in a thread, resumed, cancelled, hidden.

The checks come in the order of the runs contract (section 3); the first failure decides, and
nothing was stored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models.functions import Now

from ledger_app.domain.canonical import digest_of
from tasks_app import conf, syncpoints
from tasks_app.admission import answers, idempotency, tasks, threads, webhooks
from tasks_app.domain.errors import (
    FieldProblem,
    InvalidInputError,
    NoPendingInterruptError,
    NotFoundError,
    NothingToContinueError,
    RunActiveError,
    RunFinishedError,
    ThreadExistsError,
    UnknownModelError,
    UnknownWorkflowError,
)
from tasks_app.domain.principal import Principal
from tasks_app.domain.run_bodies import RunBody, check_thread_key, cleaned_context
from tasks_app.domain.runs import CancelAction, RunStatus, Slot, Strategy, run_status
from tasks_app.domain.states import TERMINAL, TaskStatus
from tasks_app.domain.tracing import Trace
from tasks_app.engine import thread_entry
from tasks_app.engine.lease import database_now
from tasks_app.engine.thread_entry import Entry
from tasks_app.models import Run, Thread
from tasks_app.policy.capabilities import require
from tasks_app.queries.threads import is_out_of_sight
from tasks_app.workflows import registry

SOURCE = "rest"
_ENDING = frozenset({Strategy.INTERRUPT, Strategy.ROLLBACK})
# Parts of an input that the door understands itself, for workflows whose goal has no such field.
_OF_THE_DOOR = ("messages", "deliverables")


@dataclass(frozen=True, slots=True)
class CreatedRun:
    """The run that a request stands for.

    `replayed`: an earlier request with the same key made it. `resumed_after`: the run was there and
    was given an answer; its events after this `seq` come of it.
    """

    task_id: UUID
    thread_key: str
    replayed: bool = False
    resumed_after: int | None = None


def create_run(
    principal: Principal,
    *,
    thread_key: str | None,
    body: RunBody,
    idempotency_key: str | None = None,
    request_id: str | None = None,
    trace: Trace | None = None,
) -> CreatedRun:
    """Make a run, answer the one that waits, or return what the key made before.

    A thread that the run needs and that is not there comes into being with it, or not at all (R29).

    Transaction: its own. Locks: the thread, then as `engine.thread_entry`.

    Raises: what `admit_task` raises; InvalidMessageError, UnknownModelError, ThreadBusyError,
        QueueFullError, NoPendingInterruptError, NothingToContinueError, ThreadExistsError: nothing
        was stored.
    """
    require(principal, "tasks:create")
    if body.multitask_strategy in _ENDING:
        require(principal, "tasks:cancel")
    key = _thread_key(thread_key, body)
    workflow = _workflow(body)
    _check_model(body)
    if body.webhook:
        webhooks.check_url(body.webhook, detail="Run option 'webhook' is not supported")
    thread = _find_thread(principal, key, may_make=thread_key is None or _makes(body))
    if body.command is not None and body.command.resume is not None:
        if thread is None:
            raise NoPendingInterruptError
        task_id, seq = answers.answer_run(
            principal, thread, body.command.resume, request_id=request_id
        )
        return CreatedRun(task_id, thread.key, resumed_after=seq)
    if body.input is None:
        raise NothingToContinueError
    base = _base_state(thread, body)
    context = cleaned_context(body.context or {})
    scope = f"thread:{thread_key}" if thread_key else "stateless"
    given = idempotency.clean_key(idempotency_key)
    admitted = tasks.admit_task(
        principal,
        workflow=workflow,
        goal=_goal(workflow, body.input),
        source=SOURCE,
        priority=_priority(context),
        idempotency_key=None if given is None else _scoped(scope, given),
        fingerprint=_fingerprint(workflow, body, context),
        entry=Entry(
            thread_id=None if thread is None else thread.id,
            strategy=body.multitask_strategy,
            new_key=key or str(uuid4()),
            ends_only_of=principal.user_id if principal.sees_only_own("tasks:cancel") else None,
            request=_request(body, context, is_alone=key is None),
            metadata=dict(body.metadata or {}),
            server_context=_server_context(principal),
            base_state_id=base,
            not_before=_not_before(body),
            cancels_on_disconnect=body.on_disconnect == "cancel",
        ),
        webhook=body.webhook or "",
        request_id=request_id,
        trace=trace,
    )
    found = Run.objects.for_tenant(principal.tenant_id).select_related("thread")
    return CreatedRun(
        admitted.task_id, found.get(pk=admitted.task_id).thread.key, replayed=admitted.replayed
    )


def cancel_run(
    principal: Principal, *, task_id: UUID, action: str, request_id: str | None = None
) -> RunStatus:
    """Ask a run to end and return its status; on one that a cancel ended it changes nothing.

    Transaction: its own. Locks: the task, its run; audit last.
    Raises: NotFoundError, NotAllowedError, RunFinishedError.
    """
    run = _visible(principal, task_id)
    require(principal, "tasks:cancel", run.task)
    with transaction.atomic(durable=True):
        status = thread_entry.request_cancel(
            principal.tenant_id,
            task_id,
            CancelAction(action),
            by=principal.user_id or run.task.initiator_id,
            actor=principal.actor,
            source=SOURCE,
            via=principal.via,
            request_id=request_id,
        )
    syncpoints.reach("cancel.after_request", task_id)
    run.refresh_from_db(from_queryset=Run.objects.for_tenant(principal.tenant_id))
    if status in {TaskStatus.COMPLETED, TaskStatus.FAILED}:
        raise RunFinishedError(status)
    return run_status(status, run.cancel_action, "", has_started=True)


def cancel_runs(
    principal: Principal,
    *,
    action: str,
    status: str | None = None,
    thread_key: str | None = None,
    task_ids: list[UUID] | None = None,
) -> None:
    """Ask several runs of the caller to end: those of a status, or those that are named.

    Transaction: one for each run. Raises: NotFoundError for a run that is not the caller's,
    NotAllowedError; those before it are cancelled.
    """
    require(principal, "tasks:cancel")
    runs = Run.objects.visible_to(principal).filter(
        task__initiator_id=principal.user_id, hidden_at=None
    )
    if task_ids is not None:
        runs = runs.filter(pk__in=task_ids, thread__key=thread_key)
        if runs.count() != len(set(task_ids)):
            raise NotFoundError("Not found.")
    live = runs.exclude(slot=Slot.RELEASED)
    queued = ("queued", "paused")
    if status == "pending":
        live = live.filter(task__status__in=queued)
    elif status == "running":
        live = live.exclude(task__status__in=queued)
    for task_id in list(live.values_list("pk", flat=True)):
        try:
            cancel_run(principal, task_id=task_id, action=action)
        except RunFinishedError:
            continue


def delete_run(principal: Principal, *, task_id: UUID) -> None:
    """Take a run that has ended out of sight; task, ledger and audit stay.

    Transaction: its own. Raises: NotFoundError, NotAllowedError, RunActiveError.
    """
    run = _visible(principal, task_id)
    require(principal, "tasks:cancel", run.task)
    if run.task.status not in TERMINAL:
        raise RunActiveError
    Run.objects.for_tenant(principal.tenant_id).filter(pk=task_id).update(hidden_at=Now())


def note_disconnect(principal: Principal, *, task_id: UUID) -> None:
    """Start the time after which a run ends that its creator has left (R53, R54)."""
    runs = Run.objects.for_tenant(principal.tenant_id).filter(pk=task_id)
    grace = timedelta(seconds=conf.runtime().disconnect_grace_seconds)
    runs.exclude(slot=Slot.RELEASED).update(disconnect_deadline=database_now() + grace)


def note_reconnect(principal: Principal, *, task_id: UUID) -> None:
    """Let a run go on whose creator is back."""
    runs = Run.objects.for_tenant(principal.tenant_id).filter(pk=task_id)
    runs.filter(disconnect_deadline__isnull=False).update(disconnect_deadline=None)


def _visible(principal: Principal, task_id: UUID) -> Run:
    require(principal, "tasks:read")
    runs = Run.objects.visible_to(principal).select_related("task")
    found = runs.filter(pk=task_id, hidden_at=None, thread__deleted_at=None).first()
    if found is None:
        raise NotFoundError("Not found.")
    return found  # type: ignore[no-any-return]


def _thread_key(thread_key: str | None, body: RunBody) -> str | None:
    key = thread_key or body.configurable.get("thread_id")
    if key is None:
        return None
    if not isinstance(key, str):
        key = ""
    pointer = "/thread_id" if thread_key else "/config/configurable/thread_id"
    check_thread_key(key, pointer)
    return key


def _makes(body: RunBody) -> bool:
    return body.if_not_exists == "create"


def _workflow(body: RunBody) -> str:
    """Return the workflow that an assistant is. Raises: NotFoundError."""
    name = body.assistant_id or conf.runtime().default_assistant
    try:
        registry.get_definition(name)
    except UnknownWorkflowError as error:
        raise NotFoundError(f"Assistant '{name}' not found.") from error
    return name


def _check_model(body: RunBody) -> None:
    for name in (body.context or {}).get("model_name"), body.configurable.get("model_name"):
        if name is not None and name not in conf.runtime().models:
            raise UnknownModelError(str(name))


def _find_thread(principal: Principal, key: str | None, *, may_make: bool) -> Thread | None:
    """Return the thread of a run, or None when one is to be made for it (R18).

    Raises: NotFoundError, also for a name that is another person's; ThreadExistsError for a name
    that cannot be used again.
    """
    if key is None:
        return None
    require(principal, "tasks:read")
    found: Thread | None = Thread.objects.visible_to(principal).filter(key=key).first()
    if found is None and may_make:
        return None
    if found is not None and not is_out_of_sight(found):
        return found
    if found is not None and may_make:
        raise ThreadExistsError
    raise NotFoundError("Not found.")


def _base_state(thread: Thread | None, body: RunBody) -> UUID | None:
    wanted = body.checkpoint_id or (body.checkpoint or {}).get("checkpoint_id")
    if wanted is None:
        return None
    if thread is None:
        raise NotFoundError("Not found.")
    return threads.find_state(thread, str(wanted)).id


def _goal(workflow: str, given: Any) -> dict[str, Any]:
    """Return the goal that an input is, without what belongs to the door."""
    if not isinstance(given, Mapping):
        problem = FieldProblem("/input", "invalid_type", "An object.")
        raise InvalidInputError("input must be an object.", [problem])
    known = registry.get_definition(workflow).goal_type().model_fields
    return {key: value for key, value in given.items() if key in known or key not in _OF_THE_DOOR}


def _priority(context: Mapping[str, Any]) -> int:
    priority: int = context.get("priority", 5)
    return priority


def _fingerprint(workflow: str, body: RunBody, context: Mapping[str, Any]) -> str:
    """Return the digest of what makes two requests for a run the same (R22)."""
    return idempotency.fingerprint_of(
        {
            "assistant_id": workflow,
            "input": body.input,
            "command": None,
            "checkpoint_id": body.checkpoint_id or (body.checkpoint or {}).get("checkpoint_id"),
            "context": dict(context),
            "configurable": body.configurable,
        }
    )


def _scoped(scope: str, key: str) -> str:
    """Return a key that means the same in one thread only (R21)."""
    return f"{scope}:{digest_of({'key': key})}"


def _request(body: RunBody, context: Mapping[str, Any], *, is_alone: bool) -> dict[str, Any]:
    """Return what is shown again; only a thread that was made for the run goes with it."""
    return {
        "assistant_id": body.assistant_id,
        "input": body.input,
        "config": body.config.model_dump(mode="json") if body.config else {},
        "context": dict(context),
        "stream_mode": body.modes,
        "stream_subgraphs": body.stream_subgraphs,
        "on_completion": body.on_completion if is_alone else "keep",
    }


def _server_context(principal: Principal) -> dict[str, Any]:
    return {
        "user_id": principal.user_id,
        "tenant_id": str(principal.tenant_id),
        "permissions": sorted(principal.capabilities),
    }


def _not_before(body: RunBody) -> Any:
    if not body.after_seconds:
        return None
    return database_now() + timedelta(seconds=body.after_seconds)


__all__ = [
    "CreatedRun",
    "cancel_run",
    "cancel_runs",
    "create_run",
    "delete_run",
    "note_disconnect",
    "note_reconnect",
]
