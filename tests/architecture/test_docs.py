"""Rules: pages that repeat a table of the code agree with it; links lead somewhere."""

import re
from pathlib import Path

import pytest

from tasks_app.domain.states import EDGES, TERMINAL, TaskStatus
from tests.architecture.sources import ROOT

PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), ROOT / "deploy/README.md"])


def test_state_diagram_has_exactly_the_edges_of_the_table() -> None:
    """docs/explanation/task-life.md draws domain/states.py."""
    page = (ROOT / "docs/explanation/task-life.md").read_text(encoding="utf-8")
    drawn = set(re.findall(r"^    (\S+) --> (\S+)$", page, re.M))
    edges = {(str(source), str(target)) for source in EDGES for target in EDGES[source]}
    ends = {(str(status), "[*]") for status in TERMINAL}
    assert drawn == edges | ends | {("[*]", "queued")}
    assert all(f"`{status}`" in page for status in TaskStatus)


@pytest.mark.parametrize("document", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    """Every relative link names a file or folder that exists, and a heading that exists."""
    broken = []
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target or target.startswith("mailto:"):
            continue
        file, _, heading = target.partition("#")
        path = (document.parent / file).resolve() if file else document
        if not path.exists() or (heading and heading not in _headings(path)):
            broken.append(target)
    assert broken == []


def _headings(page: Path) -> set[str]:
    lines = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", line).strip().lower().replace(" ", "-") for line in lines}


def test_every_page_is_reachable_from_the_index() -> None:
    """docs/README.md or a page that it names leads to each page; decisions by their folder."""
    reached: set[Path] = set()
    waiting = [ROOT / "docs/README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.is_file():
            continue
        reached.add(page)
        targets = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
        waiting += [(page.parent / target).resolve() for target in targets if "://" not in target]
    decisions = set((ROOT / "docs/decisions").glob("*.md"))
    assert set((ROOT / "docs").rglob("*.md")) - decisions - reached == set()
