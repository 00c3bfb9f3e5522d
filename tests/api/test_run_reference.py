"""docs/reference/runs.md says what the run door's code says."""

import re

from tasks_app.api.langgraph import frames, render, urls
from tasks_app.domain.run_bodies import STREAM_MODES
from tests.architecture.sources import ROOT

PAGE = (ROOT / "docs/reference/runs.md").read_text(encoding="utf-8")


def _rows(name: str) -> list[list[str]]:
    found = re.search(rf"<!-- {name} -->\n(.*?)\n<!-- /{name} -->", PAGE, re.S)
    assert found, name
    return [
        [cell.strip().strip("`") for cell in line.strip("| ").split(" | ")]
        for line in found[1].splitlines()[2:]
    ]


def test_every_route_is_listed_with_what_it_needs() -> None:
    """Method, address and capability are those of the URLs."""
    declared = set()
    for pattern in urls.urlpatterns:
        if pattern.name == "nothing":
            continue
        place = re.sub(r"<\w+:(\w+)_id>", r"{\1}", str(pattern.pattern))
        view = getattr(pattern.callback, "view_class", None) or pattern.callback
        needs = getattr(view, "capabilities")  # noqa: B009 - both kinds have it
        declared |= {(method, f"/{place}", needed) for method, needed in needs.items()}
    assert {(row[0], row[1], row[2]) for row in _rows("routes")} == declared


def test_every_mode_is_listed_with_its_frame() -> None:
    """All that a client may ask for, and under which name it comes."""
    named = {mode: frames.MESSAGES_NAME if mode == frames.MESSAGES_MODE else mode
             for mode in STREAM_MODES}  # fmt: skip
    assert {row[0]: row[1] for row in _rows("modes")} == named


def test_every_event_that_gets_another_name_is_listed() -> None:
    """Names and categories are those that are sent."""
    for stored, name, category in _rows("events"):
        kind, _, about = stored.partition("`")
        data: dict[str, str] = {}
        if kind == "message":
            data = {"type": about.rpartition("`")[2]}
        if kind == "status":
            data = {"source": "queued", "target": "working"}
        if kind == "child":
            data = {"status": about.rpartition(" ")[2]}
        assert render.event_type_of(kind, data) == (name, category)
