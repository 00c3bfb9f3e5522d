"""The steps of a task over time as an inline drawing: at most sixty rows, made by the server.

Long idle time is not folded yet; a row is a step of the plan, so a map over thousands of items
is one bar.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils.translation import gettext as _

from tasks_app.queries.slices import SliceRow
from tasks_app.queries.steps import StepRow
from tasks_app.templatetags import words
from tasks_app.templatetags.dashboard import duration

WIDTH = 820
_LABEL = 190
_LABEL_TEXT = 24
_ROW = 24
_MAX_ROWS = 60
_TICKS = 4
_MAX_MARKS = 300


@dataclass(frozen=True, slots=True)
class Bar:
    """One step's time."""

    label: str
    title: str
    tone: str
    x: int
    y: int
    width: int
    text_y: int


@dataclass(frozen=True, slots=True)
class Tick:
    """One label of the axis."""

    x: int
    label: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Mark:
    """One take-over by another worker."""

    x: int
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Everything the template draws; whole numbers, so that they mean the same in every locale."""

    width: int
    height: int
    axis: int
    tick_end: int
    labels: int
    title: str
    caption: str
    rows: tuple[Bar, ...]
    ticks: tuple[Tick, ...]
    takeovers: tuple[Mark, ...]
    checkpoints: tuple[int, ...]


def draw(
    steps: Sequence[StepRow],
    slices: Sequence[SliceRow],
    checkpoints: Sequence[datetime],
    *,
    now: datetime,
) -> Chart | None:
    """Return the drawing; None before anything has started."""
    begun = [(step, step.started_at) for step in steps if step.started_at is not None][:_MAX_ROWS]
    if not begun:
        return None
    start = min(at for _step, at in begun)
    end = max(max(step.finished_at or now for step, _at in begun), start + timedelta(seconds=0.1))
    span = (end - start).total_seconds()

    def x(at: datetime) -> int:
        share = (at - start).total_seconds() / span
        return _LABEL + round(min(max(share, 0.0), 1.0) * (WIDTH - _LABEL - 8))

    axis = len(begun) * _ROW + 4
    return Chart(
        width=WIDTH,
        height=axis + 28,
        axis=axis,
        tick_end=axis + 6,
        labels=axis + 20,
        title=_("Steps over %(time)s") % {"time": duration(span)},
        caption=_("Dashed lines: another worker took over. Short marks: checkpoints."),
        rows=tuple(
            _bar(step, index, x(at), x(step.finished_at or now))
            for index, (step, at) in enumerate(begun)
        ),
        ticks=_ticks(span),
        takeovers=tuple(
            Mark(x(s.started_at), _("%(worker)s took over") % {"worker": s.worker})
            for s in slices
            if s.recovered
        ),
        checkpoints=tuple(sorted({x(at) for at in checkpoints[:_MAX_MARKS]})),
    )


def _bar(step: StepRow, index: int, left: int, right: int) -> Bar:
    look = words.look("step", step.status)
    name = step.place or step.method
    # The end tells calls of one method apart.
    label = name if len(name) <= _LABEL_TEXT else "…" + name[1 - _LABEL_TEXT :]
    return Bar(
        label=label,
        title=f"{name}: {look.word}, {duration(step.seconds)}",
        tone=look.tone,
        x=left,
        y=index * _ROW + 6,
        width=max(right - left, 3),
        text_y=index * _ROW + 17,
    )


def _ticks(span: float) -> tuple[Tick, ...]:
    room = WIDTH - _LABEL - 8
    return tuple(
        Tick(
            x=_LABEL + round(room * index / _TICKS),
            label=duration(span * index / _TICKS),
            anchor="end" if index == _TICKS else "middle",
        )
        for index in range(_TICKS + 1)
    )
