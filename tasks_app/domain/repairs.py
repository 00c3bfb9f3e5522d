"""Repairing a held task: the verbs, what each may be given, and what stands in its way (E61).

No Django here: pages and REST offer a verb by the same function that refuses it under the lock.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tasks_app.domain import json_text
from tasks_app.domain.errors import FieldProblem, InvalidInputError
from tasks_app.domain.steering import check_goal_patch

PROOF_MAX = 2000
# The acts that one request may repair together.
BULK_MAX = 500


class RepairVerb(StrEnum):
    """What a person may do with a task that is held."""

    CONTINUE_FROM = "continue_from"
    SETTLE_EFFECT = "settle_effect"
    REQUEUE = "requeue"
    FORK = "fork"
    CLOSE = "close"


class Settlement(StrEnum):
    """What a person says about an act whose outcome nobody knows."""

    DONE = "done"
    NOT_DONE = "not_done"
    CALL_AGAIN = "call_again"


@dataclass(frozen=True, slots=True)
class HoldState:
    """What a held task is held by, as far as a verb depends on it.

    Attributes:
        damaged: the newest checkpoint cannot be trusted.
        good: number of the newest checkpoint that can be; None without one.
        in_doubt: acts whose outcome nobody knows; begun: calls whose answer was never stored.
        overdue: the task's own deadline has passed, so it would fail as soon as it is queued.
    """

    damaged: bool
    good: int | None
    in_doubt: int
    begun: int
    overdue: bool


# What stands in a verb's way, by its code.
OBSTACLES = {
    "checkpoint_damaged": "The newest checkpoint cannot be trusted; continue from an older one.",
    "deadline_passed": "The task's own deadline has passed; it would fail at once.",
    "effect_in_doubt": "Nobody knows whether an act has happened; settle it first.",
    "effect_not_in_doubt": "No such act of this task is open.",
    "no_good_checkpoint": "The task has no checkpoint that can be trusted.",
}


def obstacle(verb: RepairVerb, state: HoldState) -> str:
    """Return the code why a verb cannot apply to a held task; empty: it can."""
    match verb:
        case RepairVerb.SETTLE_EFFECT:
            return "" if state.in_doubt or state.begun else "effect_not_in_doubt"
        case RepairVerb.CONTINUE_FROM | RepairVerb.REQUEUE if state.in_doubt:
            return "effect_in_doubt"
        # A new task acts under new keys: nothing may be open under the old ones.
        case RepairVerb.FORK if state.in_doubt or state.begun:
            return "effect_in_doubt"
        case RepairVerb.CONTINUE_FROM if state.good is None:
            return "no_good_checkpoint"
        case RepairVerb.REQUEUE if state.damaged:
            return "checkpoint_damaged"
        case RepairVerb.CONTINUE_FROM | RepairVerb.REQUEUE if state.overdue:
            return "deadline_passed"
        case _:
            return ""


def offered(state: HoldState) -> tuple[RepairVerb, ...]:
    """Return the verbs that can apply now, in the order in which a person should think of them."""
    return tuple(verb for verb in RepairVerb if not obstacle(verb, state))


def check_payload(verb: RepairVerb, payload: Mapping[str, Any]) -> None:
    """Refuse a payload that does not fit its verb.

    Raises:
        InvalidInputError: with a pointer to the field.
        NotAllowedError: a fork's goal would raise a limit or a right.
    """
    for name in payload:
        if name not in _FIELDS[verb]:
            raise _problem(f"/payload/{name}", "Not a field of this verb.", "unknown_field")
    match verb:
        case RepairVerb.CONTINUE_FROM:
            _check_checkpoint(payload.get("checkpoint"))
        case RepairVerb.SETTLE_EFFECT:
            _check_settlement(payload)
        case RepairVerb.FORK:
            _check_patch(payload.get("goal", {}))
        case _:
            pass


def read_texts(verb: str, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the payload that the fields of a form say; fields of other verbs are left out.

    Raises:
        InvalidInputError: a field that should hold JSON does not.
    """
    match verb:
        case RepairVerb.CONTINUE_FROM:
            number = texts.get("checkpoint", "").strip()
            if not number:
                return {}
            whole = number.isascii() and number.isdigit() and len(number) < 10
            return {"checkpoint": int(number) if whole else number}
        case RepairVerb.SETTLE_EFFECT:
            payload: dict[str, Any] = {"outcome": texts.get("outcome", "")}
            payload |= {"effect": texts["effect"]} if texts.get("effect") else {}
            payload |= {"hold": True} if texts.get("hold") else {}
            if payload["outcome"] == Settlement.DONE:
                payload["proof"] = texts.get("proof", "")
                payload["result"] = _read_json(texts, "result")
            return payload
        case RepairVerb.FORK:
            goal = _read_json(texts, "goal")
            return {} if goal in (None, {}) else {"goal": goal}
        case _:
            return {}


def _read_json(texts: Mapping[str, str], name: str) -> Any:
    text = texts.get(name, "").strip()
    try:
        return json_text.loads(text) if text else None
    except ValueError:
        raise _problem(f"/payload/{name}", "This is not JSON.", "not_json") from None


_FIELDS = {
    RepairVerb.CONTINUE_FROM: {"checkpoint"},
    RepairVerb.SETTLE_EFFECT: {"effect", "outcome", "result", "proof", "hold"},
    RepairVerb.REQUEUE: set[str](),
    RepairVerb.FORK: {"goal"},
    RepairVerb.CLOSE: set[str](),
}


def _check_checkpoint(number: object) -> None:
    if number is None or (isinstance(number, int) and not isinstance(number, bool) and number > 0):
        return
    raise _problem(
        "/payload/checkpoint", "The number of a checkpoint, or nothing: the newest good."
    )


def _check_settlement(payload: Mapping[str, Any]) -> None:
    outcome = payload.get("outcome")
    if outcome not in frozenset(Settlement):
        raise _problem("/payload/outcome", f"One of {', '.join(Settlement)}.")
    if not isinstance(payload.get("effect", ""), str):
        raise _problem("/payload/effect", "The key of an effect of this task.")
    if not isinstance(payload.get("hold", False), bool):
        raise _problem("/payload/hold", "true or false.")
    if "result" in payload and outcome != Settlement.DONE:
        raise _problem("/payload/result", "Only an act that is done has a result.")
    proof = payload.get("proof", "")
    if not isinstance(proof, str) or len(proof) > PROOF_MAX:
        raise _problem("/payload/proof", f"Text or a reference, up to {PROOF_MAX} characters.")
    if outcome == Settlement.DONE and not proof.strip():
        raise _problem("/payload/proof", "Say how you know that it was done.", "proof_required")


def _check_patch(patch: object) -> None:
    if not isinstance(patch, Mapping):
        raise _problem("/payload/goal", "Fields of the goal to change, as a JSON object.")
    check_goal_patch(patch)


def _problem(pointer: str, detail: str, code: str = "invalid_value") -> InvalidInputError:
    return InvalidInputError(detail, [FieldProblem(pointer, code, detail)])
