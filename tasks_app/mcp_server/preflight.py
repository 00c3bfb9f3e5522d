"""Questions before a task exists: asked with the answer to the call, answered by calling again.

What was answered so far travels in `requestState`, which the SDK seals and binds to caller, tool and
arguments. A nonce in it stands for the one task that may come of it, as an idempotency key does.
"""

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft202012Validator
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolRequestParams

from tasks_app.mcp_server.caller import Context, elicitation_modes
from tasks_app.workflows.definition import Question

Json = dict[str, Any]
Ask = Callable[[Mapping[str, Any], Mapping[str, Mapping[str, Any]]], Mapping[str, Question]]

_DECLINED = {"decline", "cancel"}


@dataclass(frozen=True, slots=True)
class Asked:
    """The arguments with all answers in them, or the result that ends this round."""

    arguments: Mapping[str, Any]
    result: Json | None = None
    nonce: str = ""


def ask(ctx: Context, params: CallToolRequestParams, questions_of: Ask | None) -> Asked:
    """Take the answers that came, and ask what is still open.

    Raises: MCPError for answers or a state that no question of ours has led to.
    """
    arguments = params.arguments or {}
    if questions_of is None:
        return Asked(arguments)
    nonce, answers = _state(params.request_state)
    responses = _responses(ctx)
    open_ones = questions_of(arguments, answers)
    for name in [name for name in open_ones if name in responses]:
        answer = _answer(open_ones[name], responses[name])
        if answer is None:
            return Asked(arguments, _declined(name))
        answers[name] = answer
    open_ones = questions_of(arguments, answers)
    if open_ones:
        return Asked(arguments, _round(ctx, open_ones, nonce, answers))
    given = {name: value for answer in answers.values() for name, value in answer.items()}
    return Asked({**arguments, **given}, nonce=nonce if answers else "")


def _round(
    ctx: Context,
    questions: Mapping[str, Question],
    nonce: str,
    answers: Mapping[str, Mapping[str, Any]],
) -> Json:
    if "form" not in elicitation_modes(ctx):
        # Nobody can be asked: the model is told what is missing, and calls again with it.
        missing = "; ".join(f"{name}: {one.message}" for name, one in questions.items())
        text = f"This is needed first: {missing}"
        return {
            "resultType": "complete",
            "content": [{"type": "text", "text": text}],
            "isError": True,
        }
    return {
        "resultType": "input_required",
        "inputRequests": {
            name: {
                "method": "elicitation/create",
                "params": {
                    "mode": "form",
                    "message": one.message,
                    "requestedSchema": {"type": "object", **one.schema},
                },
            }
            for name, one in questions.items()
        },
        "requestState": json.dumps({"nonce": nonce, "answers": answers}),
    }


def _state(text: str | None) -> tuple[str, dict[str, Mapping[str, Any]]]:
    """Return nonce and earlier answers; the SDK has checked that the text is ours."""
    if text is None:
        return secrets.token_urlsafe(18), {}
    state = json.loads(text)
    return state["nonce"], dict(state["answers"])


def _responses(ctx: Context) -> Mapping[str, Any]:
    responses = (ctx.params or {}).get("inputResponses") or {}
    return responses if isinstance(responses, Mapping) else {}


def _answer(question: Question, response: Any) -> Mapping[str, Any] | None:
    """Return the fields of an answer; None when the person declined. Raises: MCPError."""
    if not isinstance(response, Mapping):
        raise MCPError(INVALID_PARAMS, "An answer is an object with an action.")
    if response.get("action") in _DECLINED:
        return None
    content = response.get("content")
    if response.get("action") != "accept" or not isinstance(content, Mapping):
        raise MCPError(INVALID_PARAMS, "An accepted answer has its content.")
    schema = {"type": "object", **question.schema}
    known = {name: value for name, value in content.items() if name in schema.get("properties", {})}
    errors = [error.message[:300] for error in Draft202012Validator(schema).iter_errors(known)]
    if errors:
        raise MCPError(INVALID_PARAMS, "An answer does not fit what was asked.", {"errors": errors})
    return known


def _declined(name: str) -> Json:
    text = f"The person did not answer {name}; nothing was started."
    return {"resultType": "complete", "content": [{"type": "text", "text": text}], "isError": True}
