"""Runs a step that is a task of its own: started once, in the commit that waits for it."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from pydantic import BaseModel

from tasks_app import conf, syncpoints
from tasks_app.domain import tracing
from tasks_app.domain.errors import (
    BudgetInsufficientError,
    BudgetRequiredError,
    InvalidInputError,
)
from tasks_app.domain.states import TERMINAL, TaskStatus
from tasks_app.engine import (
    budget_grants,
    child_events,
    children,
    intake,
    plans,
    step_runner,
    thread_values,
    transitions,
)
from tasks_app.engine.intake import NewTask
from tasks_app.engine.lease import database_now
from tasks_app.engine.session import SliceDone, SliceSession
from tasks_app.events.catalogue import EventType
from tasks_app.models import Step, Task
from tasks_app.workflows import GoalError, Retry, Workflow, registry
from tasks_app.workflows.definition import StepDefinition
from tasks_app.workflows.planning import Plan, build_plan, check_goal


class ChildError(Exception):
    """A child could not be started or ended without success.

    Attributes:
        evidence: what is stored beside code and message.
    """

    def __init__(self, code: str, message: str, **evidence: Any) -> None:
        super().__init__(message)
        self.code = code
        self.evidence = evidence


def run_child(session: SliceSession, step: Step) -> None:
    """Start the step's child, or take over how it ended.

    Raises:
        SafePointNeeded: a command waits; apply it and come back.
        SliceDone: the task waits for the child, or has ended with it.
    """
    declared = _declared(step)
    step_runner.begin(session, step, declared)
    session.next_key, session.next_position = step.key, step.position
    child_id = _find(session, step)
    try:
        if child_id is None:
            _start(session, step)
        else:
            _join(session, step, child_id)
    except ChildError as error:
        step_runner.fail_try(session, step, declared, error)


def _declared(step: Step) -> StepDefinition:
    return StepDefinition(
        name=step.method,
        kind="child",
        title=registry.get_definition(step.options["workflow"]).title,
        retry=Retry(max=1),
        timeout_seconds=0,
        on_failure=step.options["on_failure"],
    )


def _find(session: SliceSession, step: Step) -> UUID | None:
    children_of_step = Task.objects.for_tenant(session.task.tenant_id).filter(
        parent_id=session.task.id, parent_step_id=step.id
    )
    found: UUID | None = children_of_step.values_list("id", flat=True).first()
    return found


def _start(session: SliceSession, step: Step) -> None:
    """Admit the child in the commit by which this task waits for it, or goes on.

    Transaction: its own. Locks: this task's row; the child's is new.
    """
    task, child_id, waits = session.task, uuid4(), step.options["wait"]
    definition, goal = _checked_goal(session, step)
    plan = build_plan(definition, goal, _approved_before(session, definition))
    child = _row(session, step, child_id, definition, goal, plan)
    syncpoints.reach("child.before_start", task.id, task.fence)
    with session.owned(undisturbed=True):
        _store(task.tenant_id, child)
        session.hold_event(EventType.CHILD, child_events.facts_of(step, child_id, "started"))
        # Held only now: a command that comes first must not store a step without its child.
        if waits:
            session.hold_result(step, "waiting", finished=False)
        else:
            step_runner.succeed(session, step, str(child_id))
        session.commit(checkpoint="child")
        if waits:
            _wait(session, child_id)
    syncpoints.reach("child.after_start", task.id, task.fence)
    syncpoints.reach("sub.registered", child_id)
    if waits:
        raise SliceDone("child")


def _store(tenant_id: UUID, child: NewTask) -> None:
    try:
        intake.store_tasks(tenant_id, [child], actor=transitions.ENGINE)
    except (BudgetRequiredError, BudgetInsufficientError) as error:
        raise ChildError(error.code, error.message, **error.fields) from error


def _join(session: SliceSession, step: Step, child_id: UUID) -> None:
    """Take the child's result, or wait for it.

    Transaction: its own. Locks: this task's row; the child is read after that lock and without one,
    so a child that ends later finds this task waiting.
    """
    task = session.task
    with session.owned(undisturbed=True):
        child = Task.objects.for_tenant(task.tenant_id).get(pk=child_id)
        status = TaskStatus(child.status)
        if status not in TERMINAL:
            session.hold_result(step, "waiting", finished=False)
            session.commit(checkpoint="child")
            _wait(session, child_id)
    if status not in TERMINAL:
        raise SliceDone("child")
    _tell_end(session, step, child)
    if status is not TaskStatus.COMPLETED:
        told = (child.error or {}).get("message") or child.stop_reason
        raise ChildError(
            f"child_{status}",
            f"The child task {child_id} was {status}: {told}",
            child=str(child_id),
            child_error=child.error,
        )
    step_runner.succeed(session, step, child.result)
    session.commit(checkpoint="child")


def _tell_end(session: SliceSession, step: Step, child: Task) -> None:
    """Hold what the next commit tells of a child's end."""
    end = child_events.end_of(step, child)
    session.hold_event(EventType.CHILD, end)
    if end["externalId"]:
        answer = child_events.answer_of(step, child, end)
        session.hold_event(EventType.MESSAGE, thread_values.checked(answer))


def _wait(session: SliceSession, child_id: UUID) -> None:
    task = session.task
    session.end("child")
    transitions.await_child(task.id, task.tenant_id, fence=task.fence, child_id=child_id)


def _checked_goal(session: SliceSession, step: Step) -> tuple[type[Workflow[Any, Any]], BaseModel]:
    """Return the child's workflow and goal. Raises: ChildError, UnknownWorkflowError."""
    definition = registry.get_definition(step.options["workflow"])
    arguments = session.arguments.plain(step)
    goal = arguments["args"][0] if arguments["args"] else arguments["kwargs"]
    task, deepest = session.task, conf.runtime().max_child_depth
    if children.depth_of(task.tenant_id, task.id) >= deepest:
        raise ChildError("child_too_deep", f"Children may be nested {deepest} deep.")
    if not isinstance(goal, Mapping):
        raise ChildError("child_goal_invalid", "The goal of a child must be an object.")
    try:
        parsed = plans.parse_goal(definition, goal)
        check_goal(definition, parsed)
    except InvalidInputError as error:
        told = "; ".join(f"{problem.pointer}: {problem.detail}" for problem in error.errors[:5])
        raise ChildError("child_goal_invalid", f"{error.message} {told}") from error
    except GoalError as error:
        raise ChildError("child_goal_invalid", f"{error.pointer}: {error.detail}") from error
    return definition, parsed


def _approved_before(session: SliceSession, definition: type[Workflow[Any, Any]]) -> list[str]:
    """Return which of the child's acts need an approval because the parent's do."""
    before = session.task.approval_policy.get("before", ())
    return sorted(registry.effect_names(definition).intersection(before))


def _deadline(parent: Task, step: Step) -> datetime | None:
    """Return when a child must have ended: never later than its parent."""
    seconds = step.options.get("timeout_seconds")
    own = None if seconds is None else database_now() + timedelta(seconds=seconds)
    return min((at for at in (parent.deadline_at, own) if at is not None), default=None)


def _row(
    session: SliceSession,
    step: Step,
    child_id: UUID,
    definition: type[Workflow[Any, Any]],
    goal: BaseModel,
    plan: Plan,
) -> NewTask:
    """Return the child's row; whose it is and what it may do comes from the parent."""
    parent = Task.objects.for_tenant(session.task.tenant_id).get(pk=session.task.id)
    before = _approved_before(session, definition)
    share = step.options.get("budget_share")
    trace = tracing.of_task(tracing.received(parent.traceparent, parent.tracestate))
    deadline = _deadline(parent, step)
    return NewTask(
        id=child_id,
        columns={
            "parent_id": str(parent.id),
            "parent_step_id": step.id,
            "workflow": definition.workflow_name,
            "workflow_version": definition.version,
            "title": definition.title[:200],
            "goal": goal.model_dump(mode="json", exclude_unset=True),
            "priority": parent.priority,
            "initiator_id": parent.initiator_id,
            "agent_id": str(parent.agent_id),
            "agent_version": parent.agent_version,
            "api_key_id": None if parent.api_key_id is None else str(parent.api_key_id),
            "policy_version": parent.policy_version,
            "tool_grants": [str(grant) for grant in parent.tool_grants],
            "source": "child",
            "traceparent": trace.parent,
            "tracestate": trace.state,
            "approval_policy": {"before": before} if before else {},
            "deadline_at": None if deadline is None else deadline.isoformat(),
        },
        budget=budget_grants.child_limits(session, definition.budget.limits(), share),
        plan=plan,
    )
