"""Rule: each schedule and each case from the field of the runs contract has a test of its name."""

import re

from tests.architecture.sources import ROOT

_TEST = re.compile(r"^def (test_\w+)\(", re.M)
_SCHEDULE = re.compile(r"_(s\d\d|f\d)(?=_)")


def test_every_schedule_is_held_somewhere() -> None:
    """`test_s07_…` holds S7, `test_f5_…` F5; one test may hold several."""
    held: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name in _TEST.findall(path.read_text(encoding="utf-8")):
            for schedule in _SCHEDULE.findall(name):
                held.setdefault(schedule, []).append(f"{path.relative_to(ROOT)}::{name}")
    wanted = {*(f"s{number:02}" for number in range(1, 25)), *(f"f{n}" for n in range(1, 7))}
    assert wanted - held.keys() == set()
    assert held.keys() - wanted == set()
