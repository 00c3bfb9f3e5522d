"""Taking in a task: authorise, validate, be idempotent, write, schedule. The one way to a new row."""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db import IntegrityError, transaction

from tasks_app import conf, syncpoints
from tasks_app.admission import idempotency
from tasks_app.domain.budgets import check_amounts, tighten
from tasks_app.domain.errors import (
    FieldProblem,
    InvalidInputError,
    NotAllowedError,
    NotFoundError,
)
from tasks_app.domain.principal import Principal
from tasks_app.engine import intake, plans
from tasks_app.engine.lease import database_now
from tasks_app.models import AgentIdentity, Task, Thread
from tasks_app.models.task import SOURCES
from tasks_app.policy.capabilities import require
from tasks_app.policy.reserved import refuse_reserved
from tasks_app.workflows import GoalError, Workflow, registry
from tasks_app.workflows.planning import build_plan

TITLE_MAX = 200
DEFAULT_AGENT = "default"


@dataclass(frozen=True, slots=True)
class Admitted:
    """The task that a request stands for; `replayed` when an earlier request made it."""

    task_id: UUID
    replayed: bool


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
    request_id: str | None = None,
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
        forked_from: the held task that this one replaces.
        ordered_by: the operator who starts it for the principal; the audit names that person.
        budget: limits by kind (`domain.budgets.BudgetKind`); the workflow's own limits stay.

    Transaction: joins the caller's or opens its own; either everything is stored or nothing (E11).

    Raises:
        NotAllowedError, TenantSuspendedError, NotFoundError (thread), UnknownWorkflowError,
        InvalidInputError, ReservedKeyError, IdempotencyMismatchError, BudgetRequiredError,
        BudgetInsufficientError: nothing was stored.
    """
    require(principal, "tasks:create")
    if principal.user_id is None:
        raise NotAllowedError("tasks:create", "A task needs a person who asks for it.")
    if source not in SOURCES:
        raise ValueError(f"unknown source {source}")
    refuse_reserved(dict(goal))
    key = idempotency.clean_key(idempotency_key)
    definition = registry.get_definition(workflow)
    settings = _checked_settings(
        definition, title, priority, checkpoint_policy, approval_policy, budget
    )
    parsed = plans.parse_goal(definition, goal)
    fingerprint = idempotency.fingerprint_of(
        {
            "workflow": workflow,
            "goal": dict(goal),
            "title": title,
            "thread": None if thread_id is None else str(thread_id),
            **{name: value for name, value in settings.items() if name != "budget"},
            # The limits asked for, not those in force: the workflow's own may change meanwhile.
            **({"budget": dict(budget)} if budget else {}),
        }
    )
    replayed = _find_replay(principal, key, fingerprint)
    if replayed is not None:
        return replayed
    _check_goal(definition, parsed)
    plan = build_plan(definition, parsed, settings["approval_policy"].get("before", []))
    syncpoints.reach("admit.before_insert")
    try:
        with transaction.atomic():
            task = Task(
                id=uuid4(),
                tenant_id=principal.tenant_id,
                thread_id=_thread(principal, thread_id),
                workflow=workflow,
                workflow_version=definition.version,
                title=(title or definition.title)[:TITLE_MAX],
                goal=parsed.model_dump(mode="json", exclude_unset=True),
                initiator_id=principal.user_id,
                api_key_id=principal.api_key_id,
                source=source,
                idempotency_key=key,
                idempotency_fingerprint=fingerprint,
                forked_from_id=forked_from,
                **settings,
                **_agent(principal),
                **_times(),
            )
            actor = (ordered_by or principal).actor
            intake.store_task(task, plan, actor=actor, via=principal.via, request_id=request_id)
    except IntegrityError:
        # Another request with the same key was faster.
        replayed = _find_replay(principal, key, fingerprint)
        if replayed is None:
            raise
        return replayed
    syncpoints.reach("admit.after_commit", task.id)
    return Admitted(task.id, replayed=False)


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


def check_goal(workflow: str, goal: Mapping[str, Any]) -> None:
    """Check a goal as admission would, and store nothing: for forms.

    Raises: UnknownWorkflowError, InvalidInputError, ReservedKeyError.
    """
    refuse_reserved(dict(goal))
    definition = registry.get_definition(workflow)
    _check_goal(definition, plans.parse_goal(definition, goal))


def _find_replay(principal: Principal, key: str | None, fingerprint: str) -> Admitted | None:
    if key is None:
        return None
    found = (
        Task.objects.for_tenant(principal.tenant_id)
        .filter(initiator_id=principal.user_id, idempotency_key=key)
        .values("id", "idempotency_fingerprint")
        .first()
    )
    if found is None:
        return None
    idempotency.require_same(found["idempotency_fingerprint"], fingerprint)
    return Admitted(found["id"], replayed=True)


def _check_goal(definition: type[Workflow[Any, Any]], goal: Any) -> None:
    try:
        definition().check(goal)
    except GoalError as error:
        problem = FieldProblem("/goal" + error.pointer, error.code, error.detail)
        raise InvalidInputError(error.detail, [problem]) from error


def _checked_settings(
    definition: type[Workflow[Any, Any]],
    title: str | None,
    priority: int,
    checkpoint_policy: Mapping[str, Any] | None,
    approval_policy: Mapping[str, Any] | None,
    budget: Mapping[str, Any] | None,
) -> dict[str, Any]:
    problems = [
        *_title_problems(title),
        *_priority_problems(priority),
        *_checkpoint_problems(checkpoint_policy or {}),
        *_approval_problems(definition, approval_policy or {}),
        *check_amounts(budget or {}, "/budget"),
    ]
    if problems:
        raise InvalidInputError("The task's settings are not valid.", problems)
    return {
        "priority": priority,
        "checkpoint_policy": dict(checkpoint_policy or {}),
        "approval_policy": dict(approval_policy or {}),
        "budget": tighten(definition.budget.limits(), budget or {}),
    }


def _title_problems(title: str | None) -> list[FieldProblem]:
    if not any(unicodedata.category(character) == "Cc" for character in title or ""):
        return []
    return [FieldProblem("/title", "invalid_value", "One line without control characters.")]


def _priority_problems(priority: object) -> list[FieldProblem]:
    if isinstance(priority, int) and not isinstance(priority, bool) and 0 <= priority <= 9:
        return []
    detail = "A whole number from 0 (first) to 9 (last)."
    return [FieldProblem("/priority", "invalid_value", detail)]


def _checkpoint_problems(policy: Mapping[str, Any]) -> list[FieldProblem]:
    limits = {"every_steps": (1, 1000), "max_seconds": (0.1, 3600)}
    problems = []
    for name, value in policy.items():
        pointer = f"/checkpointPolicy/{name}"
        if name not in limits:
            problems.append(FieldProblem(pointer, "unknown_field", "Not a field of this policy."))
            continue
        low, high = limits[name]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not low <= value <= high:
            problems.append(FieldProblem(pointer, "invalid_value", f"From {low} to {high}."))
    return problems


def _approval_problems(
    definition: type[Workflow[Any, Any]], policy: Mapping[str, Any]
) -> list[FieldProblem]:
    problems = [
        FieldProblem(f"/approvalPolicy/{name}", "unknown_field", "Not a field of this policy.")
        for name in policy
        if name != "before"
    ]
    effects = registry.effect_names(definition)
    before = policy.get("before", [])
    if not isinstance(before, list):
        problems.append(FieldProblem("/approvalPolicy/before", "invalid_type", "A list of names."))
        return problems
    problems.extend(
        FieldProblem(
            f"/approvalPolicy/before/{number}",
            "unknown_act",
            f"This workflow has no act of that name; it has: {', '.join(sorted(effects)) or 'none'}.",
        )
        for number, name in enumerate(before)
        if name not in effects
    )
    return problems


def _agent(principal: Principal) -> dict[str, Any]:
    agents = AgentIdentity.objects.for_tenant(principal.tenant_id)
    agent = agents.filter(name=DEFAULT_AGENT).first()
    if agent is None:
        agent, _ = agents.get_or_create(name=DEFAULT_AGENT, tenant_id=principal.tenant_id)
    if agent.status != "active":
        raise NotAllowedError("tasks:create", "The tenant's agent identity is disabled.")
    return {"agent_id": agent.id, "agent_version": agent.version}


def _thread(principal: Principal, thread_id: UUID | None) -> UUID | None:
    if thread_id is None:
        return None
    found = Thread.objects.visible_to(principal).filter(pk=thread_id).first()
    if found is None:
        raise NotFoundError("Not found.")
    return thread_id


def _times() -> dict[str, Any]:
    now = database_now()
    wall = timedelta(seconds=conf.runtime().max_wall_seconds)
    return {"next_wake_at": now, "deadline_at": now + wall}
