"""What was measured, against what was aimed at: the table on the screen and the JSON file."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import rich.box
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One measured number.

    Attributes:
        target: what was aimed at; None for a number that only explains others.
        at_least: whether more is better.
        ratio: the same number as a share of the yardstick measured beside it, where there is one.
        note: what the yardstick was, or why the number may surprise.
    """

    name: str
    value: float
    unit: str
    target: float | None = None
    at_least: bool = False
    ratio: float | None = None
    note: str = ""

    @property
    def holds(self) -> bool | None:
        """Tell whether the target is met; None without a target."""
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target

    @property
    def verdict(self) -> str:
        """Return "holds", or by how much the target is missed."""
        if self.target is None or self.holds is None:
            return ""
        if self.holds:
            return "holds"
        low, high = sorted((self.value, self.target))
        return f"misses {high / low:.2f}×" if low > 0 else "misses"


def write_json(path: Path, figures: Sequence[Figure], facts: dict[str, object]) -> None:
    """Write everything that was measured, for programs that compare runs."""
    rows = [{**asdict(figure), "holds": figure.holds} for figure in figures]
    path.write_text(json.dumps({"facts": facts, "figures": rows}, indent=1) + "\n")


def print_table(figures: Sequence[Figure], console: Console) -> None:
    """Print the figures with their targets and verdicts."""
    table = Table(box=rich.box.SIMPLE)
    for heading in ("figure", "value", "target", "ratio", "verdict", "note"):
        is_number = heading in {"value", "target", "ratio"}
        table.add_column(heading, justify="right" if is_number else "left", overflow="fold")
    for figure in figures:
        sign = "≥" if figure.at_least else "≤"
        style = "" if figure.holds is None else "green" if figure.holds else "red"
        table.add_row(
            figure.name,
            f"{_short(figure.value)} {figure.unit}",
            "" if figure.target is None else f"{sign} {_short(figure.target)}",
            "" if figure.ratio is None else f"{figure.ratio:.2f}",
            f"[{style}]{figure.verdict}[/]" if style else "",
            figure.note,
        )
    console.print(table)


def _short(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"
