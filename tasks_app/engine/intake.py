"""The rows of new tasks, whoever asks for them: admission for people, a step for its child.

Who may ask and whether the goal fits is decided before; nothing else inserts tasks. One statement
stores any number of them with plans, limits, owed messages and audit entries (hot-sql.md).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Model

from ledger_app.domain.canonical import digest_of
from ledger_app.services import audit
from ledger_app.services.statements import fetch_rows
from tasks_app import conf
from tasks_app.engine import budget_grants, continuation, thread_entry
from tasks_app.engine.thread_entry import Entry
from tasks_app.models import Run, Step, Task
from tasks_app.workflows.planning import Plan

# How many tasks one statement takes; more are stored by several in one transaction.
BATCH = 1000

# The database's clock writes these, or nobody does before the task first runs.
_BY_DATABASE = frozenset({"created_at", "updated_at", "next_wake_at", "deadline_at"})


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task that does not exist yet.

    Attributes:
        columns: of its row, in their JSON form; the others have the model's defaults.
        budget: its limits by kind.
        webhook: the checked address that is told of it.
        entry: how it wants to enter a thread; run: the place that it got there.
    """

    id: UUID
    columns: Mapping[str, Any]
    budget: Mapping[str, int]
    plan: Plan
    entry: Entry | None = None
    webhook: str = ""
    run: Run | None = None


def store_tasks(
    tenant_id: UUID,
    tasks: Sequence[NewTask],
    *,
    actor: str,
    via: str = "",
    request_id: str | None = None,
    wall_seconds: float | None = None,
    takes_budget: bool = True,
) -> set[UUID]:
    """Store new tasks with their plans, and owe the first slices of those that are due; return which.

    A task whose idempotency key is taken is left out.

    Args:
        wall_seconds: the deadline of tasks that bring none, from now on.
        takes_budget: False when it is known that no limit stands above the tasks.

    Transaction: the caller's; without one only for a single task above which no limit stands.
    Locks: the new tasks' audit streams, which nobody else knows yet; then the budget rows above.
    Raises: BudgetRequiredError, BudgetInsufficientError; the caller must store nothing.
    """
    stored: set[UUID] = set()
    for first in range(0, len(tasks), BATCH):
        batch = tasks[first : first + BATCH]
        parameters = {
            "wall_seconds": wall_seconds,
            "owes": not conf.runtime().poll_claim,
            "retry_seconds": conf.runtime().outbox_retry_seconds,
            **_defaults(),
            **_rows(tenant_id, batch),
            "entries": _entries(tenant_id, batch, actor, via, request_id),
        }
        stored |= {row[0] for row in fetch_rows(_statement(), parameters)}
    if takes_budget:
        budget_grants.take_from_above(
            tenant_id,
            {task.id: task.budget for task in tasks if task.id in stored},
            agent_id=tasks[0].columns["agent_id"],
            parent_id=tasks[0].columns.get("parent_id"),
        )
    owed = [(task.id, tenant_id, "admitted") for task in tasks if _is_owed(task, stored)]
    for task in tasks:
        if task.run is not None and task.id in stored:
            thread_entry.begin(task.run)
    transaction.on_commit(lambda: continuation.send_all(owed), robust=True)
    return stored


def _is_owed(task: NewTask, stored: set[UUID]) -> bool:
    return task.id in stored and not task.columns.get("awaits_slot")


def _rows(tenant_id: UUID, tasks: Sequence[NewTask]) -> dict[str, str]:
    rows = [
        {
            **task.columns,
            "id": str(task.id),
            "tenant_id": str(tenant_id),
            "budget": task.budget,
            "plan_result": task.plan.result,
            # A function's steps are known when they are reached.
            "progress_total": len(task.plan.steps) or None,
        }
        for task in tasks
    ]
    steps = [
        {
            "tenant_id": str(tenant_id),
            "task_id": str(task.id),
            "plan_version": 1,
            "key": step.key,
            "position": step.position,
            "kind": step.kind,
            "method": step.method,
            "arguments": step.arguments,
            "options": step.options,
            "signature": step.signature,
        }
        for task in tasks
        for step in task.plan.steps
    ]
    return {"tasks": json.dumps(rows), "steps": json.dumps(steps)}


def _entries(
    tenant_id: UUID, tasks: Sequence[NewTask], actor: str, via: str, request_id: str | None
) -> str:
    """Return the audit entries as JSON: arrays of texts and bytes would be twice as slow."""
    entries = []
    for task in tasks:
        envelope, details, salt = audit.texts(
            stream=f"task:{task.id}",
            tenant_id=tenant_id,
            actor=actor,
            action="task.admitted",
            target=f"task:{task.id}",
            via=via,
            new_version=1,
            request_id=request_id,
            details=_told(task),
        )
        salted = "" if salt is None else salt.hex()
        entry = {"id": str(task.id), "envelope": envelope, "details": details, "salt": salted}
        entries.append(entry)
    return json.dumps(entries)


def _told(task: NewTask) -> dict[str, object]:
    columns = task.columns
    return {
        "workflow": f"{columns['workflow']}@{columns['workflow_version']}",
        "goal_sha256": digest_of({"goal": columns["goal"]}),
        "steps": len(task.plan.steps),
        "source": columns["source"],
        "forked_from": columns.get("forked_from_id"),
        "budget": task.budget,
        "parent": columns.get("parent_id"),
    }


def _values(model: type[Model]) -> dict[str, Any]:
    fields = model._meta.concrete_fields  # noqa: SLF001 - Django documents it
    return {
        field.attname: field.get_default()
        for field in fields
        if not field.primary_key and field.attname not in _BY_DATABASE
    }


@cache
def _defaults() -> dict[str, str]:
    """Return what the rows have that nobody names, as JSON."""
    task, step = (
        {name: value for name, value in _values(model).items() if value is not None}
        for model in (Task, Step)
    )
    return {"task_defaults": json.dumps(task), "step_defaults": json.dumps(step)}


@cache
def _statement() -> str:
    task_columns, step_columns = ["id", *_values(Task)], list(_values(Step))
    return _STORE.format(
        task_columns=", ".join(task_columns),
        given_task=", ".join(f"g.{name}" for name in task_columns),
        step_columns=", ".join(step_columns),
        given_step=", ".join(f"g.{name}" for name in step_columns),
        audit=audit.CALL.format(
            "'task:' || task.id",
            "task.tenant_id",
            "a.envelope",
            "a.details",
            "decode(a.salt, 'hex')",
        ),
    )


# A statement cannot read rows that it has written itself, so each part gets them from `task`.
_STORE = """
WITH task AS (
    INSERT INTO tasks_app_task ({task_columns}, next_wake_at, deadline_at)
    SELECT {given_task}, CASE WHEN NOT g.awaits_slot THEN clock_timestamp() END, coalesce(
        g.deadline_at, clock_timestamp() + make_interval(secs => %(wall_seconds)s))
    FROM jsonb_populate_recordset(
        jsonb_populate_record(NULL::tasks_app_task, %(task_defaults)s::jsonb),
        %(tasks)s::jsonb) g
    ON CONFLICT (tenant_id, initiator_id, idempotency_key)
        WHERE idempotency_key IS NOT NULL DO NOTHING
    RETURNING id, tenant_id, budget, awaits_slot
), steps AS (
    INSERT INTO tasks_app_step ({step_columns})
    SELECT {given_step}
    FROM jsonb_populate_recordset(
        jsonb_populate_record(NULL::tasks_app_step, %(step_defaults)s::jsonb),
        %(steps)s::jsonb) g
    JOIN task ON task.id = g.task_id
), limits AS (
    INSERT INTO tasks_app_budget
        (tenant_id, task_id, kind, period, limit_amount, spent, reserved)
    SELECT task.tenant_id, task.id, b.key, '', b.value::bigint, 0, 0
    FROM task CROSS JOIN LATERAL jsonb_each_text(task.budget) b
), owed AS (
    INSERT INTO tasks_app_outbox
        (tenant_id, task_id, kind, reason, created_at, tries, next_try_at)
    SELECT tenant_id, id, 'wake', 'admitted', clock_timestamp(), 0,
        clock_timestamp() + make_interval(secs => %(retry_seconds)s)
    FROM task WHERE %(owes)s AND NOT awaits_slot
)
SELECT task.id, {audit}
FROM task JOIN jsonb_to_recordset(%(entries)s::jsonb) a(
    id uuid, envelope text, details text, salt text) ON a.id = task.id
"""
