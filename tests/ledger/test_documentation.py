"""The explanation of the ledger says what the code says."""

import re
from pathlib import Path

from ledger_app.domain.effects import EDGES, EffectKind
from ledger_app.services.verification import FaultCode

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "ledger-and-audit.md"


def test_page_lists_every_edge() -> None:
    """The table of edges is the table of the code."""
    page = PAGE.read_text()
    section = page.split("| from | to |", 1)[1].split("\n\n", 1)[0]
    listed = {
        source: set(re.findall(r"`(\w+)`", targets))
        for source, targets in re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.MULTILINE)
    }
    assert listed == {source.value: {t.value for t in targets} for source, targets in EDGES.items()}


def test_page_explains_every_fault_and_kind() -> None:
    """Whoever reads a code in a report finds it explained."""
    explained = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE))
    assert {code.value for code in FaultCode} <= explained
    assert {kind.value for kind in EffectKind} <= explained
