"""Applies steering commands: at a safe point of a slice, or at once on a task that waits (E70).

Each command is applied under the lock of the task's row, once, in the order of `seq`; the steering
cursor, the command's outcome and the change itself are one commit.
"""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from django.db.models import Min
from django.db.models.functions import Now
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from ledger_app.services import audit
from tasks_app.domain.errors import CommandRejectedError, FieldProblem, InvalidInputError
from tasks_app.domain.states import LEASED, TERMINAL, TaskStatus
from tasks_app.domain.steering import CommandType, merge_patch
from tasks_app.engine import continuation, delivery, plans, replanning, transitions, values
from tasks_app.engine.lease import database_now
from tasks_app.engine.session import SliceDone, SliceSession
from tasks_app.events.catalogue import EventType
from tasks_app.models import Approval, Run, SteeringCommand, Step, Task
from tasks_app.workflows import registry

# The door of commands that the engine gives itself, on behalf of whoever started the task.
SYSTEM_SOURCE = "system"


def actor_of(command: SteeringCommand) -> str:
    """Return who gave a command, as the audit names it."""
    if command.source == SYSTEM_SOURCE:
        return transitions.ENGINE
    return f"user:{command.requested_by_id}"


def apply_pending(session: SliceSession) -> None:
    """Apply what waits for the slice's task, in order; the safe point of a running task.

    Raises:
        SliceDone: the task is paused or cancelled now.
    """
    outcome = ""
    with session.owned():
        session.commit(checkpoint="steering")
        task = Task.objects.for_tenant(session.task.tenant_id).get(pk=session.task.id)
        settle_pending(task)
        if task.status not in LEASED:
            outcome = task.status
            session.end(outcome)
    if outcome:
        raise SliceDone(outcome)
    refresh(session, task)


def settle_pending(task: Task) -> None:
    """Apply every command that waits for a task, in order.

    Transaction: the caller's, which holds the task row.
    """
    for command in _pending(task):
        _apply(task, command)


def apply_now(task: Task, command: SteeringCommand) -> None:
    """Apply a command to a task that no worker holds, in the transaction that accepts it.

    One that a dead worker left waiting comes first: nobody's command overtakes an earlier one.
    Only `set_priority` reaches a task in a worker's hands here; it waits for nobody.

    Transaction: the caller's, which holds the task row and has stored the command.
    """
    if TaskStatus(task.status) in LEASED:
        _apply(task, command)
        return
    for waiting in _pending(task):
        _apply(task, waiting)


def merged_goal(task: Task, patch: dict[str, Any]) -> tuple[dict[str, Any], BaseModel]:
    """Return the goal after a patch, as JSON and validated; used at the door and when applying.

    Raises: InvalidInputError, UnknownWorkflowError, ConfigurationError.
    """
    definition = registry.get_definition(task.workflow)
    goal = merge_patch(task.goal, patch)
    return goal, plans.parse_goal(definition, goal)


def open_question(tenant_id: UUID, task_id: UUID) -> Step | None:
    """Return the question that waits for an answer, if there is one."""
    found: Step | None = (
        Step.objects.for_tenant(tenant_id)
        .filter(task_id=task_id, kind="question", status="waiting", retired_in=None)
        .order_by("position")
        .first()
    )
    return found


def check_answer(step: Step, answer: Any) -> None:
    """Refuse an answer that does not fit the question's schema. Raises: InvalidInputError."""
    validator = Draft202012Validator(step.options["schema"])
    problems = [
        FieldProblem(
            pointer="/payload/answer" + "".join(f"/{part}" for part in error.absolute_path),
            code="schema_mismatch",
            detail=error.message[:300],
        )
        for error in validator.iter_errors(answer)
    ]
    if problems:
        raise InvalidInputError("The answer does not fit the question.", problems)


def _pending(task: Task) -> list[SteeringCommand]:
    rows = SteeringCommand.objects.for_tenant(task.tenant_id)
    return list(rows.filter(task_id=task.id, status="pending").order_by("seq"))


def _apply(task: Task, command: SteeringCommand) -> None:
    if TaskStatus(task.status) in TERMINAL:
        _record(task, command, rejected="task_terminal")
        return
    kind = CommandType(command.type)
    try:
        _APPLY[kind](task, command)
    except (CommandRejectedError, InvalidInputError) as refusal:
        _record(task, command, rejected=refusal.code)
        return
    if kind is not CommandType.CANCEL:
        _record(task, command)


def _pause(task: Task, command: SteeringCommand) -> None:
    match TaskStatus(task.status):
        case TaskStatus.WORKING:
            _move(task, command, TaskStatus.PAUSING)
            _move(task, command, TaskStatus.PAUSED)
        case TaskStatus.PAUSING | TaskStatus.QUEUED | TaskStatus.INPUT_REQUIRED:
            _move(task, command, TaskStatus.PAUSED)
            continuation.forget(task.id, task.tenant_id)
        case TaskStatus.RECOVERING:
            _move(task, command, TaskStatus.PAUSED)
            continuation.forget(task.id, task.tenant_id)
        case TaskStatus.PAUSED:
            pass
        case _:
            raise CommandRejectedError("task_dead_lettered", "The task waits for a repair.")


# What a hold has written goes with it.
_RELEASED = {"stop_reason": "", "error": None}


def _resume(task: Task, command: SteeringCommand) -> None:
    if TaskStatus(task.status) is not TaskStatus.PAUSED:
        return
    deadline = _open_deadline(task)
    if deadline is not None:
        _move(task, command, TaskStatus.INPUT_REQUIRED, due=deadline, columns=_RELEASED)
        return
    _move(task, command, TaskStatus.QUEUED, due=_timer(task) or "now", columns=_RELEASED)
    continuation.owe(task.id, task.tenant_id, "resume")


def _cancel(task: Task, command: SteeringCommand) -> None:
    if task.closing_as:
        raise CommandRejectedError("task_closing", "The task is ending already.")
    # Told of before what it does, which may be the end.
    _record(task, command)
    delivery.end_task(
        task,
        TaskStatus.CANCELLED,
        actor=actor_of(command),
        stop_reason=_why_cancelled(task, command),
        reason=command.reason,
    )
    commands = SteeringCommand.objects.for_tenant(task.tenant_id)
    commands.filter(pk=command.pk).update(new_version=task.state_version)


def _why_cancelled(task: Task, command: SteeringCommand) -> str:
    """Return what the run door noted; otherwise who cancelled."""
    if task.thread_id is not None:
        runs = Run.objects.for_tenant(task.tenant_id).filter(pk=task.id)
        noted: str = runs.values_list("cancel_reason", flat=True).get()
        if noted:
            return noted
    return "parent_ended" if command.source == SYSTEM_SOURCE else "user_cancelled"


def _adjust_goal(task: Task, command: SteeringCommand) -> None:
    if TaskStatus(task.status) is TaskStatus.DEAD_LETTERED:
        raise CommandRejectedError("task_dead_lettered", "The task waits for a repair.")
    if task.closing_as:
        raise CommandRejectedError("task_closing", "The task is ending already.")
    goal, parsed = merged_goal(task, command.payload)
    replanning.replace_plan(
        task,
        replanning.change_for(task, parsed),
        goal=goal,
        cause="adjust_goal",
        actor=actor_of(command),
        command_id=command.command_id,
    )
    if TaskStatus(task.status) is TaskStatus.INPUT_REQUIRED:
        _move(task, command, TaskStatus.QUEUED, due="now")
        continuation.owe(task.id, task.tenant_id, "adjust_goal")
    elif TaskStatus(task.status) is TaskStatus.QUEUED:
        # It may wait for a child or a time that the new plan does not want.
        rows = Task.objects.for_tenant(task.tenant_id).filter(pk=task.pk, awaits_slot=False)
        if rows.update(next_wake_at=Now()):
            continuation.owe(task.id, task.tenant_id, "adjust_goal")


def _provide_input(task: Task, command: SteeringCommand) -> None:
    question = open_question(task.tenant_id, task.id)
    if question is None:
        raise CommandRejectedError("no_open_question", "No question waits for an answer.")
    answer = command.payload["answer"]
    check_answer(question, answer)
    rows = Step.objects.for_tenant(task.tenant_id).filter(pk=question.pk)
    rows.update(status="succeeded", result=values.pack(task.tenant_id, answer), finished_at=Now())
    if TaskStatus(task.status) is TaskStatus.INPUT_REQUIRED:
        _move(task, command, TaskStatus.QUEUED, due="now")
        continuation.owe(task.id, task.tenant_id, "input")


def _set_priority(task: Task, command: SteeringCommand) -> None:
    task.priority = command.payload["priority"]
    task.save(update_fields=["priority"])


_APPLY: dict[CommandType, Callable[[Task, SteeringCommand], None]] = {
    CommandType.PAUSE: _pause,
    CommandType.RESUME: _resume,
    CommandType.CANCEL: _cancel,
    CommandType.ADJUST_GOAL: _adjust_goal,
    CommandType.PROVIDE_INPUT: _provide_input,
    CommandType.SET_PRIORITY: _set_priority,
}


def _move(
    task: Task,
    command: SteeringCommand,
    target: TaskStatus,
    *,
    due: Any = None,
    columns: Mapping[str, object] | None = None,
) -> None:
    moved = transitions.move(
        task.id,
        task.tenant_id,
        TaskStatus(task.status),
        target,
        actor=actor_of(command),
        reason=command.reason,
        due=due,
        columns=columns,
    )
    task.status, task.state_version = target, moved.state_version


def _record(task: Task, command: SteeringCommand, *, rejected: str = "") -> None:
    """Store the command's outcome, move the cursor, tell journal and audit.

    Nothing follows the end in a journal: whoever came too late finds it in the command.
    """
    if TaskStatus(task.status) not in TERMINAL:
        told = transitions.append_event(
            task.id,
            task.tenant_id,
            EventType.STEERING_APPLIED,
            {
                "commandId": str(command.command_id),
                "command": command.type,
                "outcome": rejected or "applied",
            },
            bump=1,
        )
        task.state_version = told.state_version
    SteeringCommand.objects.for_tenant(task.tenant_id).filter(pk=command.pk).update(
        status="rejected" if rejected else "applied",
        rejection=rejected,
        new_version=task.state_version,
        applied_at=Now(),
    )
    cursor = _cursor(task)
    Task.objects.for_tenant(task.tenant_id).filter(pk=task.pk).update(steering_cursor=cursor)
    audit.append(
        stream=f"task:{task.id}",
        tenant_id=task.tenant_id,
        actor=actor_of(command),
        action="command.rejected" if rejected else "command.applied",
        target=f"command:{command.command_id}",
        outcome=rejected or "ok",
        via=command.source,
        old_version=command.old_version,
        new_version=task.state_version,
        details={
            "type": command.type,
            "payload_sha256": command.payload_sha256,
            "reason": command.reason,
        },
    )


def _cursor(task: Task) -> int:
    """Return the number up to which every command is decided.

    One that acts on the queue at once must not carry the cursor past an earlier one that waits.
    """
    rows = SteeringCommand.objects.for_tenant(task.tenant_id).filter(task_id=task.id)
    waiting = rows.filter(status="pending").aggregate(first=Min("seq"))["first"]
    return int(task.command_seq if waiting is None else waiting - 1)


def _open_deadline(task: Task) -> Any:
    """Return the deadline of the question or approval that a paused task still waits for."""
    approval = (
        Approval.objects.for_tenant(task.tenant_id)
        .filter(task_id=task.id, status="pending", expires_at__gt=Now())
        .first()
    )
    if approval is not None:
        return approval.expires_at
    question = open_question(task.tenant_id, task.id)
    return question.wake_at if question is not None else None


def _timer(task: Task) -> Any:
    """Return when the timer of a paused task ends, if it still runs."""
    waiting = (
        Step.objects.for_tenant(task.tenant_id)
        .filter(task_id=task.id, kind="sleep", status="waiting", retired_in=None)
        .first()
    )
    if waiting is None or waiting.wake_at is None or waiting.wake_at <= database_now():
        return None
    return waiting.wake_at


def refresh(session: SliceSession, task: Task) -> None:
    """Take over what the commands changed."""
    task.refresh_from_db(from_queryset=Task.objects.for_tenant(task.tenant_id))
    session.take_over(task)
