"""What a slice holds back for its next commit."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ledger_app.domain.canonical import clean_text, cleaned
from tasks_app.models import Step


@dataclass(slots=True)
class Held:
    """Outcomes of steps, ranges of items and events; they become visible together."""

    steps: dict[int, dict[str, Any]] = field(default_factory=dict)
    # Steps of a function that are stored together with their outcome, by key.
    added: dict[str, dict[str, Any]] = field(default_factory=dict)
    ranges: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    units: int = 0
    active_seconds: float = 0.0
    # When the first of it came, on this process's monotonic clock.
    since: float = 0.0

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing to write."""
        return not (self.steps or self.added or self.ranges or self.events)

    def add_result(self, step: Step, outcome: dict[str, Any]) -> None:
        """Hold a step's outcome, and the step itself where it has no row yet."""
        self._touch()
        if is_new(step):
            self.added[step.key] = {**_columns(step), **outcome}
        else:
            self.steps[step.id] = outcome

    def add_range(self, row: dict[str, Any]) -> None:
        """Hold the results of a range of items."""
        self._touch()
        self.ranges.append(row)

    def add_event(self, event_type: str, data: Mapping[str, object]) -> None:
        """Hold a journal event."""
        self._touch()
        self.events.append({"type": event_type, "data": storable(data)})

    def _touch(self) -> None:
        if self.is_empty:
            self.since = time.monotonic()


def storable(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts, with what an author's code has said, in the nearest form that a row takes."""
    return {clean_text(str(name)): cleaned(fact) for name, fact in facts.items()}


def is_new(step: Step) -> bool:
    """Tell whether a step has no row yet."""
    return step.pk is None


def _columns(step: Step) -> dict[str, Any]:
    """Return what a new row holds besides its outcome; arguments of finished steps are not kept."""
    names = ("key", "scope", "position", "kind", "method", "options", "signature", "plan_version")
    return {name: getattr(step, name) for name in names}
