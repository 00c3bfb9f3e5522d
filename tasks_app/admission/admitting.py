"""Taking in what was asked for: replays found, plans made, all rows in one statement.

What is asked was found valid in itself, and who asks may ask (`tasks`).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

from django.db import transaction
from pydantic import BaseModel

from ledger_app.services.statements import fetch_row
from tasks_app import conf, syncpoints
from tasks_app.admission import idempotency, webhooks
from tasks_app.domain import tracing
from tasks_app.domain.errors import (
    FieldProblem,
    InvalidInputError,
    NotAllowedError,
)
from tasks_app.domain.principal import Principal
from tasks_app.domain.runs import Slot
from tasks_app.domain.tracing import Trace
from tasks_app.engine import intake, thread_entry
from tasks_app.engine.intake import NewTask
from tasks_app.engine.thread_entry import Entry
from tasks_app.models import AgentIdentity, Task
from tasks_app.workflows import GoalError, Workflow, planning

TITLE_MAX = 200
DEFAULT_AGENT = "default"

# How often others may be faster with the same keys before that is taken for a fault.
_TRIES = 3

# What admission needs to know of the tenant, and what keys stand for already.
_FACTS = """
SELECT a.id, a.version, a.status,
    EXISTS (SELECT FROM tasks_app_budget b
        WHERE b.tenant_id = %(tenant_id)s AND b.task_id IS NULL AND b.limit_amount IS NOT NULL),
    (SELECT jsonb_object_agg(t.idempotency_key, ARRAY[t.id::text, t.idempotency_fingerprint])
        FROM tasks_app_task t
        WHERE t.tenant_id = %(tenant_id)s AND t.initiator_id = %(user_id)s
          AND t.idempotency_key = ANY(%(keys)s::text[]))
FROM (VALUES (1)) AS one
LEFT JOIN tasks_app_agentidentity a ON a.tenant_id = %(tenant_id)s AND a.name = %(agent)s
"""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The task that a request stands for; `replayed` when an earlier request made it."""

    task_id: UUID
    replayed: bool


@dataclass(frozen=True, slots=True)
class Asked:
    """One request for a task, valid in itself."""

    definition: type[Workflow[Any, Any]]
    goal: BaseModel
    title: str
    key: str | None
    fingerprint: str
    settings: Mapping[str, Any]
    entry: Entry | None
    webhook: str
    forked_from: UUID | None
    trace: Trace | None


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the database said before; `known` are id and fingerprint by idempotency key."""

    agent_id: UUID
    agent_version: int
    agent_status: str
    has_limits: bool
    known: Mapping[str, tuple[str, str]]


class _Overtaken(Exception):  # noqa: N818 - no error: others were faster, look again
    """Another request with one of the keys was faster."""


def admit(
    principal: Principal,
    asked: Sequence[Asked],
    *,
    source: str,
    actor: str,
    request_id: str | None = None,
    named_row: Callable[[int], AbstractContextManager[None]] = lambda _row: nullcontext(),
) -> list[Admitted]:
    """Store a task for each request that no earlier one stands for, all of them or none.

    Args:
        named_row: wraps what is about one request; given its place.

    Transaction: joins the caller's, opens its own, or is one statement for one task (E11).
    Raises: as `tasks.admit_task`.
    """
    for _ in range(_TRIES):
        facts = _read_facts(principal, asked)
        tasks: dict[int, NewTask] = {}
        places: dict[int, int] = {}
        replayed: dict[int, Admitted] = {}
        first_of: dict[str, int] = {}
        for row, one in enumerate(asked):
            with named_row(row):
                found = _replay(one, facts)
                if found is not None:
                    replayed[row] = found
                elif one.key is not None and one.key in first_of:
                    places[row] = first_of[one.key]
                    idempotency.require_same(asked[places[row]].fingerprint, one.fingerprint)
                else:
                    tasks[row] = _new_task(principal, one, source, facts)
                    if one.key is not None:
                        first_of[one.key] = row
        syncpoints.reach("admit.before_insert")
        try:
            _store(principal, list(tasks.values()), facts, actor, request_id)
        except _Overtaken:
            continue
        for task in tasks.values():
            syncpoints.reach("admit.after_commit", task.id)
        made = {row: Admitted(task.id, replayed=False) for row, task in tasks.items()}
        again = {row: Admitted(tasks[first].id, replayed=True) for row, first in places.items()}
        results = {**made, **again, **replayed}
        return [results[row] for row in range(len(asked))]
    raise RuntimeError("tasks of the same keys come and go")


def check_goal(definition: type[Workflow[Any, Any]], goal: BaseModel) -> None:
    """Let the workflow check a goal. Raises: InvalidInputError."""
    try:
        planning.check_goal(definition, goal)
    except GoalError as error:
        problem = FieldProblem("/goal" + error.pointer, error.code, error.detail)
        raise InvalidInputError(error.detail, [problem]) from error


def _store(
    principal: Principal,
    tasks: Sequence[NewTask],
    facts: _Facts,
    actor: str,
    request_id: str | None,
) -> None:
    if not tasks:
        return
    # Requests that name the same keys in another order must not wait for each other.
    ordered = sorted(tasks, key=lambda task: task.columns["idempotency_key"] or "")
    alone = len(tasks) == 1 and not (facts.has_limits or tasks[0].entry or tasks[0].webhook)
    with nullcontext() if alone else transaction.atomic():
        stored = intake.store_tasks(
            principal.tenant_id,
            [_entered(principal, _heard(principal, task), actor) for task in ordered],
            actor=actor,
            via=principal.via,
            request_id=request_id,
            wall_seconds=conf.runtime().max_wall_seconds,
            takes_budget=facts.has_limits,
        )
        if len(stored) < len(tasks):
            raise _Overtaken


def _heard(principal: Principal, task: NewTask) -> NewTask:
    """Return a task with the endpoint that is told of it, if it names one."""
    if not task.webhook:
        return task
    assert principal.user_id is not None  # noqa: S101 - only people ask for tasks
    endpoint = webhooks.endpoint_of(principal.tenant_id, task.webhook, by=principal.user_id)
    told = {"webhook_id": str(endpoint), "webhook_url": task.webhook}
    return replace(task, columns={**task.columns, **told})


def _entered(principal: Principal, task: NewTask, actor: str) -> NewTask:
    """Return a task with its place in its thread, if it wants one."""
    if task.entry is None:
        return task
    assert principal.user_id is not None  # noqa: S101 - only people ask for tasks
    thread = thread_entry.open_thread(principal.tenant_id, task.entry, owner_id=principal.user_id)
    key = task.columns["idempotency_key"]
    known = Task.objects.for_tenant(principal.tenant_id).filter(initiator_id=principal.user_id)
    if key is not None and known.filter(idempotency_key=key).exists():
        # Made while this one waited for the thread: it is a replay, however busy the thread is.
        raise _Overtaken
    run = thread_entry.enter(thread, task.id, task.entry, by=principal.user_id, actor=actor)
    place = {"thread_id": str(run.thread_id), "awaits_slot": run.slot == Slot.WAITING}
    return replace(task, columns={**task.columns, **place}, run=run)


def _read_facts(principal: Principal, asked: Sequence[Asked]) -> _Facts:
    row = fetch_row(
        _FACTS,
        {
            "tenant_id": principal.tenant_id,
            "user_id": principal.user_id,
            "keys": [one.key for one in asked if one.key is not None],
            "agent": DEFAULT_AGENT,
        },
    )
    assert row is not None  # noqa: S101 - VALUES has one row
    agent_id, agent_version, agent_status, has_limits, known = row
    if agent_id is None:
        rows = AgentIdentity.objects.for_tenant(principal.tenant_id)
        made, _ = rows.get_or_create(name=DEFAULT_AGENT, tenant_id=principal.tenant_id)
        agent_id, agent_version, agent_status = made.id, made.version, made.status
    return _Facts(
        agent_id, agent_version, agent_status, has_limits, json.loads(known) if known else {}
    )


def _replay(one: Asked, facts: _Facts) -> Admitted | None:
    found = None if one.key is None else facts.known.get(one.key)
    if found is None:
        return None
    task_id, fingerprint = found
    idempotency.require_same(fingerprint, one.fingerprint)
    return Admitted(UUID(task_id), replayed=True)


def _new_task(principal: Principal, one: Asked, source: str, facts: _Facts) -> NewTask:
    definition, settings, trace = one.definition, one.settings, tracing.of_task(one.trace)
    check_goal(definition, one.goal)
    plan = planning.build_plan(definition, one.goal, settings["approval_policy"].get("before", []))
    if facts.agent_status != "active":
        raise NotAllowedError("tasks:create", "The tenant's agent identity is disabled.")
    return NewTask(
        id=uuid4(),
        columns={
            "workflow": definition.workflow_name,
            "workflow_version": definition.version,
            "title": one.title[:TITLE_MAX],
            "goal": one.goal.model_dump(mode="json", exclude_unset=True),
            "priority": settings["priority"],
            "checkpoint_policy": settings["checkpoint_policy"],
            "approval_policy": settings["approval_policy"],
            "initiator_id": principal.user_id,
            "api_key_id": _text(principal.api_key_id),
            "agent_id": str(facts.agent_id),
            "agent_version": facts.agent_version,
            "source": source,
            "idempotency_key": one.key,
            "idempotency_fingerprint": one.fingerprint,
            "forked_from_id": _text(one.forked_from),
            "traceparent": trace.parent,
            "tracestate": trace.state,
        },
        budget=settings["budget"],
        plan=plan,
        entry=one.entry,
        webhook=one.webhook,
    )


def _text(value: UUID | None) -> str | None:
    return None if value is None else str(value)
