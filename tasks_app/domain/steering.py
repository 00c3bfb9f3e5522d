"""The six steering commands: what their payloads may hold and how a goal is patched.

No Django here: a command is checked at the door with the same functions that apply it later.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from tasks_app.domain.errors import FieldProblem, InvalidInputError, NotAllowedError
from tasks_app.domain.states import TaskStatus


class CommandType(StrEnum):
    """What a person may tell a live task."""

    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    ADJUST_GOAL = "adjust_goal"
    PROVIDE_INPUT = "provide_input"
    SET_PRIORITY = "set_priority"


REASON_MAX = 500

# A steering payload never raises limits or rights (S15).
_FORBIDDEN_GOAL_KEYS = {
    "budget": "budgets:manage",
    "max_steps": "budgets:manage",
    "max_duration": "budgets:manage",
    "tools": "policy:manage",
    "agent": "agents:manage",
    "models": "agents:manage",
    "approval_policy": "policy:manage",
}


def check_payload(type_: CommandType, payload: Mapping[str, Any]) -> None:
    """Refuse a payload that does not fit its command.

    Raises:
        InvalidInputError: with a pointer to the field.
        NotAllowedError: the payload would raise a limit or a right.
    """
    match type_:
        case CommandType.SET_PRIORITY:
            _only(payload, {"priority"})
            priority = payload.get("priority")
            if (
                isinstance(priority, bool)
                or not isinstance(priority, int)
                or not 0 <= priority <= 9
            ):
                raise _problem("/payload/priority", "A whole number from 0 (first) to 9 (last).")
        case CommandType.ADJUST_GOAL:
            if not payload:
                raise _problem("/payload", "Name at least one field of the goal to change.")
            check_goal_patch(payload)
        case CommandType.PROVIDE_INPUT:
            _only(payload, {"answer"})
            if "answer" not in payload:
                raise _problem("/payload/answer", "The answer to the open question.")
        case CommandType.PAUSE | CommandType.RESUME | CommandType.CANCEL:
            _only(payload, set())


def check_goal_patch(patch: Mapping[str, Any]) -> None:
    """Refuse a change of a goal that would raise a limit or a right (S15). Raises: NotAllowedError."""
    for name in patch:
        if name.lower() in _FORBIDDEN_GOAL_KEYS:
            raise NotAllowedError(_FORBIDDEN_GOAL_KEYS[name.lower()])


def rejection(type_: CommandType, status: TaskStatus, *, question_open: bool, closing: bool) -> str:
    """Return the code why a command cannot apply to a task in this status; empty: it can (E74)."""
    match type_:
        case CommandType.PROVIDE_INPUT if not question_open:
            return "no_open_question"
        case CommandType.ADJUST_GOAL | CommandType.CANCEL if closing:
            return "task_closing"
        case CommandType.ADJUST_GOAL if status == TaskStatus.DEAD_LETTERED:
            return "task_dead_lettered"
        case CommandType.PAUSE | CommandType.RESUME if status == TaskStatus.DEAD_LETTERED:
            return "task_dead_lettered"
        case _:
            return ""


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7396): null removes, objects merge, all else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), value)
    return result


def _only(payload: Mapping[str, Any], allowed: set[str]) -> None:
    for name in payload:
        if name not in allowed:
            raise _problem(f"/payload/{name}", "Not a field of this command.", "unknown_field")


def _problem(pointer: str, detail: str, code: str = "invalid_value") -> InvalidInputError:
    return InvalidInputError(detail, [FieldProblem(pointer, code, detail)])
