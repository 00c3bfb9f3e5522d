"""Steering from any door: authorise, compare versions, store the command, apply it if nothing runs.

Of two operators with one `expectedVersion` exactly one is accepted: the comparison and the new
version are one transaction under the row's lock (E6).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.db import transaction

from tasks_app import syncpoints
from tasks_app.admission import idempotency
from tasks_app.admission.versions import require_version
from tasks_app.domain.errors import (
    CommandRejectedError,
    FieldProblem,
    IdempotencyMismatchError,
    InvalidInputError,
    NotAllowedError,
    NotFoundError,
    UnknownWorkflowError,
)
from tasks_app.domain.principal import Principal
from tasks_app.domain.states import TaskStatus
from tasks_app.domain.steering import REASON_MAX, CommandType, check_payload
from tasks_app.domain.steering import rejection as rejection_of
from tasks_app.engine import command_intake, replanning, steering
from tasks_app.engine.replanning import PlanPreview
from tasks_app.models import SteeringCommand, Task
from tasks_app.policy.capabilities import require
from tasks_app.policy.reserved import refuse_reserved
from tasks_app.workflows import GoalError, planning, registry


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of a command; `state_version` is the task's after it."""

    command_id: UUID
    status: str
    rejection: str
    state_version: int
    replayed: bool


def submit_command(
    principal: Principal,
    *,
    task_id: UUID,
    command_id: UUID,
    type: str,  # noqa: A002 - the command's field has this name everywhere
    payload: Mapping[str, Any],
    expected_version: int | None,
    reason: str,
    source: str,
    request_id: str | None = None,
) -> Submitted:
    """Accept a steering command for a task.

    On a task that no worker holds it is applied before this returns; on a running one it waits
    for the next safe point, except `set_priority`, which acts on the queue at once (E70). The same
    `command_id` again returns the first outcome.

    Transaction: its own. Locks: the task row, then what the command changes, audit stream last.

    Raises:
        NotFoundError, NotAllowedError, InvalidInputError, ReservedKeyError, VersionRequiredError,
        VersionConflictError, TaskTerminalError, CommandRejectedError, IdempotencyMismatchError:
        nothing was stored.
    """
    kind = parse_command(type, payload, reason)
    task = _steerable(principal, task_id, kind)
    _check_goal_patch(kind, task, payload)
    fingerprint = idempotency.fingerprint_of(
        {"task": str(task_id), "type": kind.value, "payload": dict(payload), "reason": reason}
    )
    with transaction.atomic(durable=True):
        task = (
            Task.objects.for_tenant(principal.tenant_id)
            .select_for_update(no_key=True)
            .get(pk=task_id)
        )
        replay = _find_replay(principal, command_id, fingerprint, task)
        if replay is not None:
            return replay
        _check_acceptable(task, kind, expected_version, payload)
        command = _store(principal, task, kind, command_id, payload, fingerprint, reason, source)
        command_intake.accept(
            task, command, actor=principal.actor, via=principal.via, request_id=request_id
        )
    syncpoints.reach("cancel.after_request", task_id)
    return _outcome(command, task, replayed=False)


def preview_command(
    principal: Principal,
    *,
    task_id: UUID,
    type: str,  # noqa: A002 - the command's field has this name everywhere
    payload: Mapping[str, Any],
    expected_version: int | None,
    reason: str,
) -> PlanPreview:
    """Return what an adjust_goal command would do to the plan, and change nothing (E72).

    What would refuse the command refuses its preview in the same words; it is not stored, told or
    audited. The plan may look different once steps have gone on meanwhile.

    Raises:
        NotFoundError, NotAllowedError, InvalidInputError, ReservedKeyError, VersionRequiredError,
        VersionConflictError, TaskTerminalError, CommandRejectedError.
    """
    kind = parse_command(type, payload, reason)
    task = _steerable(principal, task_id, kind)
    if kind is not CommandType.ADJUST_GOAL:
        detail = "Only adjust_goal can be looked at before."
        raise InvalidInputError(detail, [FieldProblem("/dryRun", "invalid_value", detail)])
    _check_goal_patch(kind, task, payload)
    _check_acceptable(task, kind, expected_version, payload)
    with _goal_as_payload():
        goal, parsed = steering.merged_goal(task, dict(payload))
        return replanning.preview(task, goal, parsed)


def check_command(
    principal: Principal,
    *,
    task_id: UUID,
    type: str,  # noqa: A002 - the command's field has this name everywhere
    payload: Mapping[str, Any],
    expected_version: int | None,
    reason: str,
) -> Task:
    """Return the task that a command would be accepted for now, and change nothing.

    Raises: what `submit_command` would raise, but for a replay.
    """
    kind = parse_command(type, payload, reason)
    task = _steerable(principal, task_id, kind)
    _check_goal_patch(kind, task, payload)
    _check_acceptable(task, kind, expected_version, payload)
    return task


def need_of(kind: CommandType) -> str:
    """Return the capability that a command needs."""
    return "tasks:cancel" if kind is CommandType.CANCEL else "tasks:steer"


def _steerable(principal: Principal, task_id: UUID, kind: CommandType) -> Task:
    """Return the task that a person may steer so. Raises: NotFoundError, NotAllowedError."""
    capability = need_of(kind)
    task: Task | None = Task.objects.visible_to(principal).filter(pk=task_id).first()
    if task is None:
        require(principal, "tasks:read")
        raise NotFoundError("Not found.")
    require(principal, capability, task)
    if principal.user_id is None:
        raise NotAllowedError(capability, "A command needs a person who gives it.")
    return task


def parse_command(type_: str, payload: Mapping[str, Any], reason: str) -> CommandType:
    """Return the kind of a command that is valid in itself.

    Raises: InvalidInputError, ReservedKeyError, NotAllowedError.
    """
    problems = []
    if type_ not in frozenset(CommandType):
        known = ", ".join(CommandType)
        problems.append(FieldProblem("/type", "unknown_command", f"One of {known}."))
    if not 1 <= len(reason.strip()) <= REASON_MAX:
        detail = f"Say why, in 1 to {REASON_MAX} characters."
        problems.append(FieldProblem("/reason", "reason_required", detail))
    if problems:
        raise InvalidInputError("The command is not valid.", problems)
    refuse_reserved(dict(payload))
    check_payload(CommandType(type_), payload)
    return CommandType(type_)


def _check_goal_patch(kind: CommandType, task: Task, payload: Mapping[str, Any]) -> None:
    """Refuse a goal that could not be worked on, before anything is locked or stored."""
    if kind is not CommandType.ADJUST_GOAL:
        return
    with _goal_as_payload():
        _, goal = steering.merged_goal(task, dict(payload))
        planning.check_goal(registry.get_definition(task.workflow), goal)


@contextmanager
def _goal_as_payload() -> Iterator[None]:
    """Say /payload/x of what the goal calls /goal/x, since that is what the caller has sent."""
    try:
        yield
    except GoalError as error:
        problem = FieldProblem("/payload" + error.pointer, error.code, error.detail)
        raise InvalidInputError(error.detail, [problem]) from error
    except UnknownWorkflowError:
        raise
    except InvalidInputError as error:
        problems = [
            replace(problem, pointer="/payload" + problem.pointer.removeprefix("/goal"))
            for problem in error.errors
        ]
        raise InvalidInputError(error.message, problems) from error


def _find_replay(
    principal: Principal, command_id: UUID, fingerprint: str, task: Task
) -> Submitted | None:
    rows = SteeringCommand.objects.for_tenant(principal.tenant_id)
    found = rows.filter(command_id=command_id).first()
    if found is None:
        return None
    if found.payload_sha256 != fingerprint or found.requested_by_id != principal.user_id:
        raise IdempotencyMismatchError("This command id was used before for another command.")
    return _outcome(found, task, replayed=True)


def _check_acceptable(
    task: Task, kind: CommandType, expected_version: int | None, payload: Mapping[str, Any]
) -> None:
    require_version(task, expected_version)
    question = None
    if kind is CommandType.PROVIDE_INPUT:
        question = steering.open_question(task.tenant_id, task.id)
    code = rejection_of(
        kind,
        TaskStatus(task.status),
        question_open=question is not None,
        closing=bool(task.closing_as),
    )
    if code:
        raise CommandRejectedError(code, _REJECTIONS[code])
    if question is not None:
        steering.check_answer(question, payload["answer"])


_REJECTIONS = {
    "no_open_question": "No question of this task waits for an answer.",
    "task_closing": "The task is ending already.",
    "task_dead_lettered": "The task is held: repair it or cancel it.",
}


def _store(
    principal: Principal,
    task: Task,
    kind: CommandType,
    command_id: UUID,
    payload: Mapping[str, Any],
    fingerprint: str,
    reason: str,
    source: str,
) -> SteeringCommand:
    assert principal.user_id is not None  # noqa: S101 - submit_command lets only people through
    return command_intake.store(
        task,
        command_id=command_id,
        kind=kind,
        payload=payload,
        payload_sha256=fingerprint,
        reason=reason,
        requested_by_id=principal.user_id,
        source=source,
    )


def _outcome(command: SteeringCommand, task: Task, *, replayed: bool) -> Submitted:
    return Submitted(
        command_id=command.command_id,
        status=command.status,
        rejection=command.rejection,
        state_version=task.state_version,
        replayed=replayed,
    )
