"""Rules: pages that repeat a table of the code agree with it; links lead somewhere."""

import os
import re
from pathlib import Path

import pytest

from tasks_app.domain.states import EDGES, TERMINAL, TaskStatus
from tests.architecture.sources import ROOT

PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), ROOT / "deploy/README.md"])


def diagram() -> str:
    """Return the state diagram of domain/states.py."""
    edges = [(source, target) for source in EDGES for target in sorted(EDGES[source])]
    ends = [status for status in EDGES if status in TERMINAL]
    lines = ["stateDiagram-v2", f"    [*] --> {TaskStatus.QUEUED}"]
    lines += [f"    {source} --> {target}" for source, target in edges]
    lines += [f"    {status} --> [*]" for status in ends]
    return "```mermaid\n" + "\n".join(lines) + "\n```"


def test_state_diagram_is_the_one_that_the_table_makes() -> None:
    """E30: run this with UPDATE_REFERENCE=1 and look at the difference before committing it."""
    file = ROOT / "docs/explanation/task-life.md"
    drawn = re.compile(r"```mermaid\n.*?```", re.S)
    if os.environ.get("UPDATE_REFERENCE"):
        file.write_text(drawn.sub(diagram(), file.read_text(encoding="utf-8")), encoding="utf-8")
    page = file.read_text(encoding="utf-8")
    assert drawn.findall(page) == [diagram()]
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
