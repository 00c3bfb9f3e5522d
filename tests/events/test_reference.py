"""Rule: docs/reference/events.md says what events/catalogue.py says."""

import inspect
import re

from tasks_app.events.catalogue import (
    DATA_SHAPES,
    EventType,
    PushedForm,
    StreamNotice,
    TenantForm,
    TenantHint,
    describe_fields,
)
from tests.architecture.sources import ROOT

PAGE = (ROOT / "docs/reference/events.md").read_text(encoding="utf-8")


def _section(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n(.*?)\n<!-- /{name} -->", PAGE, re.S)
    assert found, name
    return found[1]


def _rows(name: str) -> list[list[str]]:
    lines = _section(name).splitlines()[2:]
    return [re.split(r" (?<!\\)\| ", line.strip("| ")) for line in lines]


def _fields(shape: type) -> str:
    return "; ".join(f"`{name}`: {text}" for name, text in describe_fields(shape).items())


def test_every_type_is_described_with_its_data() -> None:
    """Same types, same order; meaning and fields are those of the code."""
    expected = [
        [
            f"`{kind}`",
            inspect.cleandoc(DATA_SHAPES[kind].__doc__ or ""),
            _fields(DATA_SHAPES[kind]).replace("|", "\\|"),
        ]
        for kind in EventType
    ]
    assert _rows("types") == expected


def test_pushed_forms_are_described() -> None:
    """The fields that travel, on a task's and on a tenant's stream."""
    assert _section("pushed") == _fields(PushedForm)
    assert _section("tenant") == _fields(TenantForm)


def test_every_notice_and_hint_is_described() -> None:
    """No name on the wire without a line."""
    assert [row[0].strip("`") for row in _rows("notices")] == [str(name) for name in StreamNotice]
    assert [row[0].strip("`") for row in _rows("hints")] == [str(name) for name in TenantHint]


def test_pages_listen_to_every_name_on_the_wire() -> None:
    """A browser hears only the names that it asked for: live.js asks for all of them."""
    script = (ROOT / "tasks_app/static/rt/live.js").read_text(encoding="utf-8")
    names = [*EventType, *TenantHint, *StreamNotice]
    assert [str(name) for name in names if f"'{name}'" not in script] == []
