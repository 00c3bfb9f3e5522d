"""Forms made from a workflow's JSON Schema, and their way back into a goal.

The form only reads and shows. Whether a goal is right is decided by admission, whose problems are
put at their fields by JSON pointer.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from tasks_app.dashboard.schemas import Schema, plain_schema
from tasks_app.domain import json_text
from tasks_app.domain.errors import FieldProblem
from tasks_app.domain.json_text import escaped
from tasks_app.templatetags import refusals

_INPUT_TYPES = {"date": "date", "date-time": "datetime-local", "uri": "url", "email": "email"}
_MANY_CHOICES = 6
_LONG_TEXT = 200


@dataclass(frozen=True, slots=True)
class FormField:
    """One control, or a group of them."""

    pointer: str
    kind: str
    label: str
    help: str
    required: bool
    value: Any
    error: str = ""
    choices: tuple[str, ...] = ()
    minimum: Any = None
    maximum: Any = None
    max_length: int | None = None
    step: str = ""
    input_type: str = "text"
    secret: bool = False
    fields: tuple["FormField", ...] = ()
    part: str = "goal"

    @property
    def name(self) -> str:
        """Return the name in the posted form."""
        return f"{self.part}{self.pointer}"

    @property
    def id(self) -> str:
        """Return the id of the control."""
        part = "f" if self.part == "goal" else self.part
        return part + self.pointer.replace("/", "-")

    @property
    def aria(self) -> SafeString:
        """Return what ties the control to its help and its error."""
        notes = [f"{self.id}-err"] if self.error else []
        if self.help or self.kind in {"lines", "json"}:
            notes.append(f"{self.id}-help")
        pairs = [("aria-invalid", "true")] if self.error else []
        if notes:
            pairs.append(("aria-describedby", " ".join(notes)))
        return format_html_join("", ' {}="{}"', pairs)


@dataclass(frozen=True, slots=True)
class ShownProblem:
    """A problem in the list above a form, with a link to its field when there is one."""

    id: str
    label: str
    detail: str


@dataclass(frozen=True, slots=True)
class ReadGoal:
    """What a posted form says: the goal, and what could not even be read."""

    goal: dict[str, Any]
    problems: tuple[FieldProblem, ...]


def build_fields(
    schema: Schema, values: Mapping[str, Any], problems: Iterable[FieldProblem] = ()
) -> tuple[FormField, ...]:
    """Return the controls for an object schema, filled with values, problems at their fields."""
    errors: dict[str, str] = {}
    for problem in problems:
        errors.setdefault(_field_pointer(schema, problem.pointer), refusals.detail(problem))
    return _build_object(schema, schema, values, errors, "", 0)


def read_goal(schema: Schema, posted: QueryDict) -> ReadGoal:
    """Return the goal that a posted form describes; empty optional fields are left out."""
    problems: list[FieldProblem] = []
    goal = _read_object(schema, schema, posted, "", 0, problems)
    return ReadGoal(goal=goal, problems=tuple(problems))


def goal_as_shown(schema: Schema, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the form would send back if nobody touched it: defaults are filled in."""
    posted = QueryDict(mutable=True)
    for item in _flat(build_fields(schema, values)):
        if item.kind == "boolean":
            posted[item.name] = "true" if item.value else ""
        elif item.kind != "group":
            posted[item.name] = item.value
    return read_goal(schema, posted).goal


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON merge patch (RFC 7396) that turns one object into the other."""
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            if inner := merge_patch(old, value):
                patch[key] = inner
        elif key not in before or old != value:
            patch[key] = value
    return patch


def show_problems(
    fields: Sequence[FormField], problems: Iterable[FieldProblem]
) -> tuple[ShownProblem, ...]:
    """Return problems for the list above the form."""
    known = {item.pointer: item for item in _flat(fields)}
    shown = []
    for problem in problems:
        item = known.get(_known_pointer(known, problem.pointer))
        known_as = (item.id, item.label) if item else ("", "")
        shown.append(ShownProblem(*known_as, refusals.detail(problem)))
    return tuple(shown)


# --- schema → controls ----------------------------------------------------------------------
def _build_object(
    root: Schema,
    schema: Schema,
    values: Mapping[str, Any],
    errors: Mapping[str, str],
    base: str,
    depth: int,
) -> tuple[FormField, ...]:
    required = set(schema.get("required", ()))
    return tuple(
        _build_field(
            root,
            part,
            values.get(key),
            errors,
            f"{base}/{escaped(key)}",
            key,
            key in required,
            depth,
        )
        for key, part in schema.get("properties", {}).items()
    )


def _build_field(
    root: Schema,
    raw: Schema,
    value: Any,
    errors: Mapping[str, str],
    pointer: str,
    key: str,
    required: bool,
    depth: int,
) -> FormField:
    part = plain_schema(root, raw)
    kind = _kind(part, required, depth)
    if value is None:
        value = part.get("default")
    common: dict[str, Any] = {
        "pointer": pointer,
        "kind": kind,
        "label": str(part.get("title") or key.replace("_", " ").capitalize()),
        "help": str(part.get("description", "")),
        "required": required,
        "error": errors.get(pointer, ""),
        "secret": bool(part.get("writeOnly")),
    }
    if kind == "group":
        inner = value if isinstance(value, Mapping) else {}
        fields = _build_object(root, part, inner, errors, pointer, depth + 1)
        return FormField(**common, value=None, fields=fields)
    return FormField(
        **common,
        value=_shown(kind, value),
        choices=tuple(_text(choice) for choice in part.get("enum", ())),
        minimum=part.get("minimum", part.get("exclusiveMinimum")),
        maximum=part.get("maximum", part.get("exclusiveMaximum")),
        max_length=part.get("maxLength") if kind == "input" else None,
        step={"integer": "1", "number": "any"}.get(str(part.get("type")), ""),
        input_type=_input_type(part),
    )


def _kind(part: Schema, required: bool, depth: int) -> str:
    match part.get("type"):
        case _ if "enum" in part and part.get("type") != "array":
            few = len(part["enum"]) <= _MANY_CHOICES and (required or "default" in part)
            return "radio" if few else "select"
        case "string":
            long = part.get("maxLength", 0) > _LONG_TEXT and part.get("format") not in _INPUT_TYPES
            return "text" if long else "input"
        case "integer" | "number":
            return "input"
        case "boolean":
            return "boolean"
        case "array" if part.get("items", {}).get("type") == "string":
            return "lines"
        case "object" if part.get("properties") and depth == 0:
            return "group"
        case _:
            return "json"


def _input_type(part: Schema) -> str:
    if part.get("type") in {"integer", "number"}:
        return "number"
    if part.get("writeOnly"):
        return "password"
    return _INPUT_TYPES.get(str(part.get("format")), "text")


def _shown(kind: str, value: Any) -> Any:
    if kind == "boolean":
        return bool(value)
    if value is None:
        return ""
    if kind == "lines" and isinstance(value, list):
        return "\n".join(str(line) for line in value)
    if kind == "json" and not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False, indent=2)
    return value if isinstance(value, str) else _text(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


# --- posted form → goal ---------------------------------------------------------------------
def _read_object(
    root: Schema,
    schema: Schema,
    posted: QueryDict,
    base: str,
    depth: int,
    problems: list[FieldProblem],
) -> dict[str, Any]:
    required = set(schema.get("required", ()))
    goal: dict[str, Any] = {}
    for key, raw in schema.get("properties", {}).items():
        pointer = f"{base}/{escaped(key)}"
        part = plain_schema(root, raw)
        kind = _kind(part, key in required, depth)
        if kind == "group":
            inner = _read_object(root, part, posted, pointer, depth + 1, problems)
            if inner or key in required:
                goal[key] = inner
            continue
        text = posted.get(f"goal{pointer}", "")
        if kind == "boolean":
            goal[key] = text == "true"
        elif text.strip():
            try:
                goal[key] = _read_value(kind, part, text)
            except ValueError as error:
                problems.append(FieldProblem(pointer, "unreadable", str(error)))
        elif key in required:
            problems.append(FieldProblem(pointer, "required", _("This field is needed.")))
        elif kind == "lines" and part.get("default"):
            goal[key] = []
    return goal


def _read_value(kind: str, part: Schema, text: str) -> Any:
    text = text.replace("\r\n", "\n")
    if kind == "lines":
        return [line.strip() for line in text.split("\n") if line.strip()]
    if kind == "json":
        try:
            return json_text.loads(text)
        except ValueError as error:
            raise ValueError(_("This is not JSON: %(why)s") % {"why": error}) from None
    if kind in {"radio", "select"}:
        return next((c for c in part["enum"] if _text(c) == text), text)
    return _read_number(part, text) if part.get("type") in {"integer", "number"} else text


def _read_number(part: Schema, text: str) -> int | float:
    try:
        number = int(text) if part["type"] == "integer" else float(text)
    except ValueError:
        raise ValueError(_("Enter a number.")) from None
    if not math.isfinite(number) or abs(number) > json_text.MAX_INTEGER:
        raise ValueError(_("Enter a number."))
    return number


# --- pointers -----------------------------------------------------------------------------
def _field_pointer(schema: Schema, pointer: str) -> str:
    """Return the pointer inside the goal of a field that the form shows."""
    parts = pointer.removeprefix("/goal").split("/")[1:]
    properties = schema.get("properties", {})
    if not parts or parts[0] not in properties:
        return pointer
    part = plain_schema(schema, properties[parts[0]])
    if _kind(part, False, 0) == "group" and len(parts) > 1:
        return f"/{parts[0]}/{parts[1]}"
    return f"/{parts[0]}"


def _known_pointer(known: Mapping[str, FormField], pointer: str) -> str:
    parts = pointer.removeprefix("/goal").split("/")[1:]
    for end in range(len(parts), 0, -1):
        candidate = "/" + "/".join(parts[:end])
        if candidate in known:
            return candidate
    return ""


def _flat(fields: Sequence[FormField]) -> Iterable[FormField]:
    for item in fields:
        yield item
        yield from _flat(item.fields)


@dataclass(frozen=True, slots=True)
class GoalForm:
    """Everything a template needs to show a goal form again, text kept."""

    fields: tuple[FormField, ...]
    idempotency_key: str
    title: str = ""
    priority: str = "5"
    reason: str = ""
    expected_version: str = ""
    problem: str = ""
    problems: tuple[ShownProblem, ...] = ()
    errors: Mapping[str, str] = field(default_factory=dict)
    filled: bool = False
