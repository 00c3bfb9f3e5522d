"""The one JSON form and the one hash (S103)."""

import hashlib
import json
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from ledger_app.domain.canonical import (
    MAX_DEPTH,
    MAX_INTEGER,
    canonical_bytes,
    canonical_text,
    check,
    cleaned,
    digest_of,
    storable_text,
)
from ledger_app.domain.errors import NotCanonicalError

text = st.text(st.characters(exclude_categories=["Cs"]))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-MAX_INTEGER, MAX_INTEGER)
    | st.floats(-MAX_INTEGER, MAX_INTEGER)
    | st.floats(1e21, 1e300)
    | text
)
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(text, inner), max_leaves=30
)
anything = st.recursive(
    scalars
    | st.text()
    | st.binary()
    | st.integers()
    | st.floats()
    | st.decimals()
    | st.uuids()
    | st.datetimes(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text(), inner)
        | st.sets(st.integers())
        | st.dictionaries(st.integers(), inner)
    ),
    max_leaves=20,
)


@given(json_values)
def test_canonical_form_round_trips(value: Any) -> None:
    """Reading the canonical form gives the value back, and its form is its own canonical form."""
    data = canonical_bytes(value)
    assert json.loads(data) == value
    assert canonical_bytes(json.loads(data)) == data


@given(json_values)
def test_canonical_form_is_what_rfc8785_writes(value: Any) -> None:
    """What the fast encoder writes is byte for byte what the RFC's own encoder writes."""
    assert canonical_bytes(value) == rfc8785.dumps(value)


@pytest.mark.parametrize(
    "value",
    [
        {"b": '\x00\x1f\x7f\b\t\n\f\r"\\/\u2028é😀', "a": [True, None, -0, 10**15]},
        {"é": 1, "z": 2},
        {"a": {"\ufb01": 1, "\U0001f600": 2}},
        {"a": (1, [2.0, 1e21])},
    ],
)
def test_canonical_form_of_odd_values_is_what_rfc8785_writes(value: Any) -> None:
    """Control characters, foreign keys and floats are spelled as the RFC says."""
    assert canonical_bytes(value) == rfc8785.dumps(value)


@given(st.dictionaries(text, scalars, min_size=2))
def test_digest_does_not_depend_on_key_order(value: dict[str, Any]) -> None:
    """Two orders of the same members have one digest."""
    assert digest_of(value) == digest_of(dict(reversed(list(value.items()))))


def test_digest_is_sha256_of_the_canonical_text() -> None:
    """The digest can be recomputed with nothing but SHA-256."""
    value = {"b": [1, 2.50, "ü"], "a": None}
    assert canonical_text(value) == '{"a":null,"b":[1,2.5,"ü"]}'
    assert digest_of(value) == hashlib.sha256('{"a":null,"b":[1,2.5,"ü"]}'.encode()).hexdigest()


def test_keys_are_ordered_by_utf16_code_units() -> None:
    """Outside the basic plane the order differs from `json.dumps(sort_keys=True)`."""
    value = {"\ufb01": 1, "\U0001f600": 2}
    assert canonical_text(value) == '{"\U0001f600":2,"\ufb01":1}'
    assert list(json.loads(json.dumps(value, sort_keys=True))) != list(
        json.loads(canonical_text(value))
    )


@pytest.mark.parametrize(
    ("value", "pointer", "message"),
    [
        ({"a": [1, MAX_INTEGER + 1]}, "/a/1", "integer beyond"),
        ({"a": -MAX_INTEGER - 1}, "/a", "integer beyond"),
        ({"a": float("nan")}, "/a", "not finite"),
        ({"a": float("-inf")}, "/a", "not finite"),
        ({"a": [1e16]}, "/a/0", "whole number beyond"),
        (-1e20, "", "whole number beyond"),
        ({"a/b": {"~": b"x"}}, "/a~1b/~0", "type bytes"),
        ({"a": Decimal(1)}, "/a", "type Decimal"),
        ({"a": uuid.UUID(int=0)}, "/a", "type UUID"),
        ({"a": {1, 2}}, "/a", "type set"),
        ({"a": {1: "x"}}, "/a", "key of type int"),
        ({"a": "x\ud800"}, "/a", "lone surrogate"),
        ({"x\udfff": 1}, "", "lone surrogate"),
        ("\ud800", "", "lone surrogate"),
    ],
)
def test_canonical_form_refuses_what_json_cannot_say(
    value: object, pointer: str, message: str
) -> None:
    """The error names the place and the reason."""
    with pytest.raises(NotCanonicalError, match=message) as caught:
        digest_of(value)
    assert caught.value.pointer == pointer
    assert caught.value.code == "not_canonical"


def test_canonical_form_refuses_hostile_depth() -> None:
    """Ten thousand levels are refused, not a crash of the interpreter's stack."""
    value: list[Any] = []
    for _ in range(10_000):
        value = [value]
    with pytest.raises(NotCanonicalError, match=f"deeper than {MAX_DEPTH}"):
        digest_of(value)
    with pytest.raises(NotCanonicalError, match="deeper"):
        check(value)
    assert "[too deep]" in canonical_text(cleaned(value))


def test_storable_text_refuses_nul_only_where_there_is_one() -> None:
    """Jsonb cannot hold U+0000; the six characters that spell it are harmless."""
    assert storable_text({"a": "\\u0000"}) == '{"a":"\\\\u0000"}'
    with pytest.raises(NotCanonicalError, match=r"U\+0000 at /a"):
        storable_text({"a": "\x00"})


@given(anything)
def test_cleaned_value_always_has_a_canonical_form(value: Any) -> None:
    """What people read in the audit can always be written, whatever a tool returned."""
    result = cleaned(value)
    storable_text(result)
    assert cleaned(result) == result


def test_cleaned_keeps_what_is_already_fit() -> None:
    """Only what has no form is changed, to text."""
    at = datetime(2026, 1, 2, tzinfo=UTC)
    assert cleaned({"a": [1, "é", None, True, 0.5]}) == {"a": [1, "é", None, True, 0.5]}
    assert cleaned({"n": 2**60, "at": at, "b": b"ab", "s": "a\x00\ud800"}) == {
        "n": str(2**60),
        "at": "2026-01-02 00:00:00+00:00",
        "b": "[2 bytes]",
        "s": "a\ufffd\ufffd",
    }
