"""Rules: a JSON Schema becomes a form and comes back as the same goal."""

from typing import Any

import pytest
from django.http import QueryDict

from tasks_app.dashboard import forms
from tasks_app.domain.errors import FieldProblem

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["name", "count", "address"],
    "$defs": {
        "Address": {
            "type": "object",
            "required": ["city"],
            "properties": {"city": {"type": "string"}, "zip": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string", "title": "Name", "description": "Who", "maxLength": 80},
        "text": {"type": "string", "maxLength": 4000},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "ratio": {"type": "number"},
        "urgent": {"type": "boolean", "default": False},
        "due": {"type": "string", "format": "date"},
        "mail": {"anyOf": [{"type": "string", "format": "email"}, {"type": "null"}]},
        "kind": {"type": "string", "enum": ["a", "b"], "default": "a"},
        "many": {"type": "string", "enum": list("abcdefgh")},
        "tags": {"type": "array", "items": {"type": "string"}},
        "address": {"$ref": "#/$defs/Address"},
        "rest": {"type": "array", "items": {"type": "object"}},
        "secret": {"type": "string", "writeOnly": True},
    },
}


def posted(**values: str) -> QueryDict:
    query = QueryDict(mutable=True)
    for name, value in values.items():
        query[f"goal/{name.replace('__', '/')}"] = value
    return query


def test_each_kind_of_schema_gets_its_control() -> None:
    """Long text, numbers, choices, lists, one level of objects; the rest is JSON."""
    fields = {f.pointer: f for f in forms.build_fields(SCHEMA, {})}
    kinds = {pointer.strip("/"): f.kind for pointer, f in fields.items()}
    assert kinds == {
        "name": "input", "text": "text", "count": "input", "ratio": "input", "urgent": "boolean",
        "due": "input", "mail": "input", "kind": "radio", "many": "select", "tags": "lines",
        "address": "group", "rest": "json", "secret": "input",
    }  # fmt: skip
    types = {p.strip("/"): f.input_type for p, f in fields.items() if f.kind == "input"}
    assert types == {
        "name": "text", "count": "number", "ratio": "number", "due": "date", "mail": "email",
        "secret": "password",
    }  # fmt: skip
    assert [f.pointer for f in fields["/address"].fields] == ["/address/city", "/address/zip"]
    assert fields["/kind"].value == "a"


def test_a_filled_form_reads_back_as_the_same_goal() -> None:
    """What was stored, shown and posted unchanged is what was stored."""
    goal = {
        "name": "N", "text": "long\ntext", "count": 3, "ratio": 0.5, "urgent": True,
        "due": "2026-11-29", "mail": "a@example.org", "kind": "b", "many": "c",
        "tags": ["x", "y"], "address": {"city": "Berlin"}, "rest": [{"a": 1}], "secret": "s",
    }  # fmt: skip
    assert forms.goal_as_shown(SCHEMA, goal) == goal


def test_empty_optional_fields_are_left_out_and_needed_ones_named() -> None:
    """Absent is not the same as empty; the pointers are those of admission."""
    read = forms.read_goal(SCHEMA, posted(name="  ", count="x", tags=" a \n\n b ", kind="a"))
    assert read.goal == {"urgent": False, "kind": "a", "tags": ["a", "b"], "address": {}}
    assert {p.pointer: p.code for p in read.problems} == {
        "/name": "required",
        "/count": "unreadable",
        "/address/city": "required",
    }


def test_problems_of_admission_find_their_field() -> None:
    """Pointers into the body, and deeper ones, lead to the control that holds the value."""
    problems = [
        FieldProblem("/goal/tags/1", "x", "bad tag"),
        FieldProblem("/goal/address/city", "x", "no such city"),
        FieldProblem("/elsewhere", "x", "general"),
    ]
    fields = forms.build_fields(SCHEMA, {}, problems)
    by_pointer = {f.pointer: f for f in fields}
    assert by_pointer["/tags"].error == "bad tag"
    assert by_pointer["/address"].fields[0].error == "no such city"
    shown = forms.show_problems(fields, problems)
    assert [item.id for item in shown] == ["f-tags", "f-address-city", ""]


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1}, {}, {"a": None}),
        ({}, {"a": []}, {"a": []}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, {"a": {"c": 3}}),
        ({"a": {"b": 1}}, {"a": {}}, {"a": {"b": None}}),
        ({"a": [1]}, {"a": [1, 2]}, {"a": [1, 2]}),
    ],
)
def test_merge_patch_is_the_smallest_change(
    before: dict[str, Any], after: dict[str, Any], patch: dict[str, Any]
) -> None:
    """RFC 7396: only what differs, null for what is gone."""
    assert forms.merge_patch(before, after) == patch


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("rest", '[{"a": 1, "a": 2}]'), ("rest", '[{"a": NaN}]'), ("rest", "[9007199254740993]"),
        ("rest", "[" * 40 + "]" * 40), ("rest", '["\\ud800"]'),
        ("ratio", "nan"), ("ratio", "inf"), ("count", "9007199254740993"),
    ],
)  # fmt: skip
def test_form_reads_json_and_numbers_as_programs_send_them(field: str, text: str) -> None:
    """S124: what no other door takes is no value here either."""
    given = {"name": "n", "count": "1", "address__city": "c", field: text}
    read = forms.read_goal(SCHEMA, posted(**given))
    assert [(problem.pointer, problem.code) for problem in read.problems] == [
        (f"/{field}", "unreadable")
    ]
