"""Asking for tasks: authorise and validate; the one way to a new row goes through here."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from tasks_app.admission import admitting, idempotency, task_settings, webhooks
from tasks_app.admission.admitting import Admitted, Asked
from tasks_app.domain.errors import (
    FieldProblem,
    InvalidInputError,
    NotAllowedError,
    NotFoundError,
    RuntimeFault,
)
from tasks_app.domain.principal import Principal
from tasks_app.domain.tracing import Trace
from tasks_app.engine import plans
from tasks_app.engine.thread_entry import Entry
from tasks_app.models import Thread
from tasks_app.models.task import SOURCES
from tasks_app.policy.capabilities import require
from tasks_app.policy.reserved import refuse_reserved
from tasks_app.workflows import Workflow, registry

__all__ = ["Admitted", "admit_task", "check_goal", "submit", "submit_many"]


def admit_task(
    principal: Principal,
    *,
    workflow: str,
    goal: Mapping[str, Any],
    source: str,
    title: str | None = None,
    idempotency_key: str | None = None,
    priority: int = 5,
    checkpoint_policy: Mapping[str, Any] | None = None,
    approval_policy: Mapping[str, Any] | None = None,
    budget: Mapping[str, Any] | None = None,
    thread_id: UUID | None = None,
    entry: Entry | None = None,
    webhook: str = "",
    fingerprint: str = "",
    request_id: str | None = None,
    trace: Trace | None = None,
    forked_from: UUID | None = None,
    ordered_by: Principal | None = None,
) -> Admitted:
    """Store a new task with its plan and owe its first slice, or return what the key made before.

    Args:
        workflow: name of an enabled workflow.
        goal: JSON data for the workflow's goal model.
        source: the door, one of `models.task.SOURCES`.
        priority: 0 (first) to 9 (last).
        checkpoint_policy: `every_steps` (1-1000) and `max_seconds` (0.1-3600), each optional.
        approval_policy: `before`: names of the workflow's effects to be approved as well.
        thread_id: a thread that must be free; `entry` says more of how a run enters one.
        webhook: who is told of its end and its questions.
        fingerprint: what makes two requests of one key the same, where a door decides it.
        trace: which trace the request belongs to; the task goes on with it.
        forked_from: the held task that this one replaces.
        ordered_by: the operator who starts it for the principal; the audit names that person.
        budget: limits by kind (`domain.budgets.BudgetKind`); the workflow's own limits stay.

    Transaction: joins the caller's or opens its own; either everything is stored or nothing (E11).

    Raises:
        NotAllowedError, TenantSuspendedError, NotFoundError (thread), UnknownWorkflowError,
        InvalidInputError, ReservedKeyError, IdempotencyMismatchError, BudgetRequiredError,
        BudgetInsufficientError, ThreadBusyError, QueueFullError: nothing was stored.
    """
    _check_may_ask(principal, source)
    asked = _asked(
        workflow,
        goal,
        title=title,
        idempotency_key=idempotency_key,
        priority=priority,
        checkpoint_policy=checkpoint_policy,
        approval_policy=approval_policy,
        budget=budget,
        entry=entry or _entry(principal, thread_id),
        webhook=webhook,
        fingerprint=fingerprint,
        forked_from=forked_from,
        trace=trace,
    )
    [admitted] = admitting.admit(
        principal,
        [asked],
        source=source,
        actor=(ordered_by or principal).actor,
        request_id=request_id,
    )
    return admitted


def submit(
    definition: type[Workflow[Any, Any]],
    goal: Mapping[str, Any],
    *,
    by: Principal,
    idempotency_key: str | None = None,
) -> UUID:
    """Start a workflow from Python code, in the caller's transaction; return the task's id."""
    admitted = admit_task(
        by,
        workflow=definition.workflow_name,
        goal=goal,
        source="code",
        idempotency_key=idempotency_key,
    )
    return admitted.task_id


def submit_many(
    definition: type[Workflow[Any, Any]],
    goals: Sequence[Mapping[str, Any]],
    *,
    by: Principal,
    idempotency_keys: Sequence[str | None] | None = None,
) -> list[UUID]:
    """Start a workflow once for each goal, all or none of them; return the tasks' ids in order.

    Args:
        idempotency_keys: one for each goal or none at all; a key that was used before, or earlier
            in the list, stands for the task that it made.

    Transaction: joins the caller's or opens its own.

    Raises:
        what `submit` raises, with the place of the goal in the list as the field `row`, and before
            each pointer; nothing was stored.
    """
    _check_may_ask(by, "code")
    keys = list(idempotency_keys or [None] * len(goals))
    if len(keys) != len(goals):
        raise ValueError(f"{len(goals)} goals came with {len(keys)} idempotency keys")
    asked = []
    for row, (goal, key) in enumerate(zip(goals, keys, strict=True)):
        with _named_row(row):
            asked.append(_asked(definition.workflow_name, goal, idempotency_key=key))
    tasks = admitting.admit(by, asked, source="code", actor=by.actor, named_row=_named_row)
    return [task.task_id for task in tasks]


@contextmanager
def _named_row(row: int) -> Iterator[None]:
    """Tell in a refusal which of many rows it is about."""
    try:
        yield
    except RuntimeFault as fault:
        fault.fields["row"] = row
        if isinstance(fault, InvalidInputError):
            fault.errors = tuple(
                FieldProblem(f"/{row}{problem.pointer}", problem.code, problem.detail)
                for problem in fault.errors
            )
        raise


def check_goal(workflow: str, goal: Mapping[str, Any]) -> None:
    """Check a goal as admission would, and store nothing: for forms.

    Raises: UnknownWorkflowError, InvalidInputError, ReservedKeyError.
    """
    refuse_reserved(dict(goal))
    definition = registry.get_definition(workflow)
    admitting.check_goal(definition, plans.parse_goal(definition, goal))


def _check_may_ask(principal: Principal, source: str) -> None:
    require(principal, "tasks:create")
    if principal.user_id is None:
        raise NotAllowedError("tasks:create", "A task needs a person who asks for it.")
    if source not in SOURCES:
        raise ValueError(f"unknown source {source}")


def _entry(principal: Principal, thread_id: UUID | None) -> Entry | None:
    if thread_id is None:
        return None
    threads = Thread.objects.visible_to(principal).filter(pk=thread_id, deleted_at=None)
    if not threads.exists():
        raise NotFoundError("Not found.")
    return Entry(thread_id)


def _asked(
    workflow: str,
    goal: Mapping[str, Any],
    *,
    idempotency_key: str | None,
    title: str | None = None,
    priority: int = 5,
    checkpoint_policy: Mapping[str, Any] | None = None,
    approval_policy: Mapping[str, Any] | None = None,
    budget: Mapping[str, Any] | None = None,
    entry: Entry | None = None,
    webhook: str = "",
    fingerprint: str = "",
    forked_from: UUID | None = None,
    trace: Trace | None = None,
) -> Asked:
    """Return a request that is valid in itself; the database was not asked yet."""
    refuse_reserved(dict(goal))
    key = idempotency.clean_key(idempotency_key)
    if webhook:
        webhooks.check_url(webhook)
    definition = registry.get_definition(workflow)
    settings = task_settings.checked(
        definition, title, priority, checkpoint_policy, approval_policy, budget
    )
    parsed = plans.parse_goal(definition, goal)
    fingerprint = fingerprint or idempotency.fingerprint_of(
        {
            "workflow": workflow,
            "goal": dict(goal),
            "title": title,
            "thread": None if entry is None else str(entry.thread_id),
            **{name: value for name, value in settings.items() if name != "budget"},
            # The limits asked for, not those in force: the workflow's own may change meanwhile.
            **({"budget": dict(budget)} if budget else {}),
            **({"webhook": webhook} if webhook else {}),
        }
    )
    return Asked(
        definition=definition,
        goal=parsed,
        title=title or definition.title,
        key=key,
        fingerprint=fingerprint,
        settings=settings,
        entry=entry,
        webhook=webhook,
        forked_from=forked_from,
        trace=trace,
    )
