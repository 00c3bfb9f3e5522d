"""The OpenAPI schema of commands takes exactly what the door takes."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tasks_app.domain.errors import InvalidInputError
from tasks_app.domain.steering import CommandType, check_payload
from tests.api.calls import openapi

PAYLOADS: tuple[dict[str, Any], ...] = (
    {},
    {"priority": 0},
    {"priority": 9},
    {"priority": 10},
    {"priority": "5"},
    {"priority": 5, "x": 1},
    {"answer": {"x": 1}},
    {"answer": None},
    {"answer": 1, "x": 2},
    {"exclude": ["drafts"], "x": None},
)


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    document = openapi()
    return Draft202012Validator({**document, "$ref": "#/components/schemas/CommandInput"})


def is_taken(type_: CommandType, payload: dict[str, Any]) -> bool:
    try:
        check_payload(type_, payload)
    except InvalidInputError:
        return False
    return True


@pytest.mark.parametrize("type_", CommandType)
@pytest.mark.parametrize("payload", PAYLOADS, ids=str)
def test_schema_and_door_agree(
    validator: Draft202012Validator, type_: CommandType, payload: dict[str, Any]
) -> None:
    """Each payload under each command: valid here means taken there."""
    body = {"type": type_.value, "payload": payload, "expectedVersion": 1, "reason": "r"}
    assert validator.is_valid(body) == is_taken(type_, payload)


def test_payload_may_be_left_out_where_it_is_empty(validator: Draft202012Validator) -> None:
    """A pause carries nothing; a changed goal names what changes."""
    body = {"expectedVersion": 1, "reason": "r"}
    assert validator.is_valid({**body, "type": "pause"})
    assert not validator.is_valid({**body, "type": "adjust_goal"})
