"""One command for many tasks: chosen once, told one by one, each with an outcome of its own (U21)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4, uuid5

from tasks_app.admission import commands, replays
from tasks_app.admission.commands import Submitted
from tasks_app.admission.replays import Kept
from tasks_app.domain.errors import FieldProblem, InvalidInputError, RuntimeFault
from tasks_app.domain.principal import Principal
from tasks_app.domain.repairs import BULK_MAX
from tasks_app.domain.states import TERMINAL, TaskStatus
from tasks_app.domain.steering import CommandType
from tasks_app.policy.capabilities import require
from tasks_app.queries.tasks import TaskFilters, list_tasks

# What makes sense for tasks that nobody looked at one by one.
BULK_TYPES = (CommandType.PAUSE, CommandType.RESUME, CommandType.CANCEL, CommandType.SET_PRIORITY)
# How many tasks a filter chooses at once; its cursor leads to the next.
CHOSEN_MAX = 200


@dataclass(frozen=True, slots=True)
class Target:
    """One task, and the version of it that was seen."""

    task_id: UUID
    expected_version: int | None
    title: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """The tasks that one request means; `next_cursor` where a filter leaves more."""

    targets: tuple[Target, ...]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """One task of many that is not, or would not be, told; nothing of it was stored."""

    task_id: UUID
    fault: RuntimeFault


@dataclass(frozen=True, slots=True)
class Order:
    """What all of them are told."""

    type: str
    payload: Mapping[str, Any]
    reason: str


def choose_tasks(principal: Principal, filters: TaskFilters, cursor: str | None) -> Choice:
    """Return visible tasks that fit, at their present versions; ended ones only if they are named.

    Raises: InvalidInputError: the cursor is of another choice.
    """
    live = tuple(status.value for status in TaskStatus if status not in TERMINAL)
    narrowed = replace(filters, states=filters.states or live)
    try:
        found = list_tasks(principal, narrowed, cursor, CHOSEN_MAX)
    except InvalidInputError as error:
        problem = FieldProblem("/select/cursor", "invalid_cursor", error.message)
        raise InvalidInputError(error.message, [problem]) from None
    targets = tuple(Target(row.id, row.state_version, row.title) for row in found.items)
    return Choice(targets, found.next_cursor)


def choose_once(
    principal: Principal,
    order: Order,
    *,
    key: str | None,
    request: Mapping[str, object],
    choose: Callable[[], Choice],
) -> tuple[Choice, UUID, bool]:
    """Return what a request means, what its commands' ids are made of, and whether it is a repeat.

    The same request with the same key means the tasks of the first time, whatever fits a filter by
    now. Without a key each request stands for itself.

    Transaction: its own. Raises: as `replays.once` and `steer_tasks`; a refused request keeps
        nothing.
    """
    _check(principal, order)
    if key is None:
        return choose(), uuid4(), False
    kept = replays.once(principal, key=key, request=request, act=lambda: Kept(200, _text(choose())))
    bulk_id = uuid5(principal.tenant_id, f"bulk:{principal.actor}:{key}")
    return _choice(kept.body), bulk_id, kept.replayed


def steer_tasks(
    principal: Principal,
    order: Order,
    targets: Sequence[Target],
    *,
    bulk_id: UUID,
    source: str,
    request_id: str | None = None,
) -> list[Submitted | Refused]:
    """Tell several tasks the same, each in a transaction of its own, in their order.

    Args:
        bulk_id: the same again repeats nothing: each command's id is made of it and of its task.

    Raises: NotAllowedError, TenantSuspendedError, InvalidInputError, ReservedKeyError: no task was
        touched.
    """
    _check(principal, order, targets)
    outcomes: list[Submitted | Refused] = []
    for target in targets:
        try:
            outcomes.append(
                commands.submit_command(
                    principal,
                    task_id=target.task_id,
                    command_id=uuid5(bulk_id, str(target.task_id)),
                    type=order.type,
                    payload=order.payload,
                    expected_version=target.expected_version,
                    reason=order.reason,
                    source=source,
                    request_id=request_id,
                )
            )
        except RuntimeFault as fault:
            outcomes.append(Refused(target.task_id, fault))
    return outcomes


def preview_tasks(
    principal: Principal, order: Order, targets: Sequence[Target]
) -> list[Target | Refused]:
    """Return which of the tasks would be told, and why the others would not; changes nothing.

    Raises: as `steer_tasks`.
    """
    _check(principal, order, targets)
    outcomes: list[Target | Refused] = []
    for target in targets:
        try:
            task = commands.check_command(
                principal,
                task_id=target.task_id,
                type=order.type,
                payload=order.payload,
                expected_version=target.expected_version,
                reason=order.reason,
            )
            outcomes.append(replace(target, title=task.title))
        except RuntimeFault as fault:
            outcomes.append(Refused(target.task_id, fault))
    return outcomes


def _check(principal: Principal, order: Order, targets: Sequence[Target] = ()) -> None:
    kind = commands.parse_command(order.type, order.payload, order.reason)
    if kind not in BULK_TYPES:
        problem = FieldProblem("/type", "invalid_value", f"One of {', '.join(BULK_TYPES)}.")
        raise InvalidInputError(problem.detail, [problem])
    require(principal, commands.need_of(kind))
    if len(targets) > BULK_MAX:
        problem = FieldProblem("/tasks", "invalid_value", f"At most {BULK_MAX} tasks.")
        raise InvalidInputError(problem.detail, [problem])


def _text(choice: Choice) -> dict[str, Any]:
    targets = [[str(one.task_id), one.expected_version, one.title] for one in choice.targets]
    return {"targets": targets, "next_cursor": choice.next_cursor}


def _choice(body: Any) -> Choice:
    targets = (Target(UUID(id_), version, title) for id_, version, title in body["targets"])
    return Choice(tuple(targets), body["next_cursor"])
