"""Charts as inline SVG: no script, no style attribute, colours by class, words beside colours.

Every chart is small enough in its own units to be read on a telephone without being scaled down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from unicodedata import east_asian_width

from .visible import markup_text, plain

_WIDTH = 360


def histogram(counts: Sequence[int], levels: Sequence[str], label: str, axis: str) -> str:
    """Return columns for score ranges of equal width from 0 to 100.

    Args:
        counts: Documents in each range.
        levels: CSS class of each column.
        label: What the chart shows, for screen readers.
        axis: Words under the axis.
    """
    height, base, top = 170, 136, 20
    highest = max([*counts, 1])
    step = (_WIDTH - 8) / max(len(counts), 1)
    parts = [_open(height, label)]
    for number, (count, level) in enumerate(zip(counts, levels, strict=True)):
        size = (base - top) * count / highest
        size = max(size, 2) if count else 0
        left = 4 + number * step
        parts.append(
            f'<rect class="f-{level}" x="{left + 1:.1f}" y="{base - size:.1f}" '
            f'width="{step - 2:.1f}" height="{size:.1f}" rx="2"/>'
        )
        if count * 12 >= highest:  # the table beside the chart has the rest
            middle = max(left + step / 2, 20)
            parts.append(
                f'<text class="v" x="{middle:.1f}" y="{base - size - 5:.1f}">{count:,}</text>'
            )
        if number % 2 == 0:
            score = 100 * number // len(counts)
            parts.append(f'<text class="t" x="{left + 3:.1f}" y="{base + 15}">{score}</text>')
    parts.append(f'<line class="axis" x1="4" x2="{_WIDTH - 4}" y1="{base}" y2="{base}"/>')
    parts.append(
        f'<text class="t" x="{_WIDTH / 2}" y="{base + 31}">{markup_text(axis)}</text></svg>'
    )
    return "".join(parts)


def bars(rows: Sequence[tuple[str, float, str, str]], label: str, highest: float) -> str:
    """Return horizontal bars, each under its own words.

    Args:
        rows: (name, value, shown value, CSS class).
        label: What the chart shows, for screen readers.
        highest: Value of a full bar.
    """
    pitch = 34
    parts = [_open(pitch * max(len(rows), 1) + 4, label)]
    for number, (name, value, shown, level) in enumerate(rows):
        y = number * pitch
        size = (_WIDTH - 8) * value / highest if highest else 0
        parts.append(
            f'<text class="n" x="4" y="{y + 13}">{markup_text(_short(plain(name), 46))}</text>'
            f'<text class="e" x="{_WIDTH - 4}" y="{y + 13}">{markup_text(shown)}</text>'
            f'<rect class="f-track" x="4" y="{y + 18}" width="{_WIDTH - 8}" height="8" rx="4"/>'
            f'<rect class="f-{level}" x="4" y="{y + 18}" width="{max(size, 3):.1f}" height="8" rx="4"/>'
        )
    parts.append("</svg>")
    return "".join(parts)


def stacked(counts: Mapping[str, int], highest: int, label: str) -> str:
    """Return one bar whose parts follow `counts` in order; widths are percentages."""
    parts = [
        f'<svg class="cellbar" role="img" aria-label="{markup_text(label)}" width="100%" height="12">'
    ]
    left = 0.0
    for level, count in counts.items():
        if count:
            size = 100 * count / max(highest, 1)
            parts.append(
                f'<rect class="f-{level}" x="{left:.2f}%" y="1" width="{size:.2f}%" height="10"/>'
            )
            left += size
    parts.append("</svg>")
    return "".join(parts)


def meter(score: int, level: str) -> str:
    """Return a small bar for one score; the number stands beside it."""
    return (
        '<svg class="meter" aria-hidden="true" width="64" height="8">'
        '<rect class="f-track" width="64" height="8" rx="4"/>'
        f'<rect class="f-{level}" width="{max(3, 64 * score / 100):.0f}" height="8" rx="4"/></svg>'
    )


def _open(height: int, label: str) -> str:
    return f'<svg class="chart" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{markup_text(label)}">'


def _short(name: str, limit: int) -> str:
    """Return the name, cut in the middle where it is wide: both ends tell files apart.

    Args:
        name: A path.
        limit: Room in Latin characters; a Chinese one takes two.
    """
    if _width(name) <= limit:
        return name
    head, tail = name, name
    while _width(head) > limit // 3:
        head = head[:-1]
    while _width(tail) > limit * 2 // 3 - 1:
        tail = tail[1:]
    return f"{head}…{tail}"


def _width(text: str) -> int:
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)
