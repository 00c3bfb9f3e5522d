"""What the report needs to know about all documents, kept small while the reviews stream past.

A row of a few words stays for each document; full reviews stay only for the highest scores.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from .model import DocumentReview, Level
from .rules import RuleBook
from .scoring import Assessment, Reason, assess

DETAILED_DOCUMENTS: Final = 200
MAX_FAILURES_KEPT: Final = 1_000
SCORE_RANGE: Final = 5
WEIGHTY_POINTS: Final = 6  # what nearly every licence has is no news
LEVELS: Final = (Level.CRITICAL, Level.HIGH, Level.MEDIUM, Level.LOW)


@dataclass(frozen=True, slots=True)
class Row:
    """One document of the full table."""

    index: int
    path: str
    score: int
    level: Level
    kind: str
    language: str
    family: str
    main: Reason | None
    clauses: int


@dataclass(frozen=True, slots=True)
class Failure:
    """One document that could not be read."""

    path: str
    code: str
    message: str


@dataclass(slots=True)
class Summary:
    """Totals of a review; `add` and `add_failure` are called once for each document."""

    book: RuleBook
    focus: tuple[str, ...] = ()
    rows: list[Row] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    failed: int = 0
    findings: int = 0
    levels: Counter[Level] = field(default_factory=Counter)
    ranges: Counter[int] = field(default_factory=Counter)
    families: Counter[str] = field(default_factory=Counter)
    clause_levels: dict[str, Counter[Level]] = field(default_factory=dict)
    clause_points: Counter[str] = field(default_factory=Counter)
    missing: Counter[tuple[str, str]] = field(default_factory=Counter)
    lacking: int = 0
    copies: dict[str, list[int]] = field(default_factory=dict)
    _best: list[tuple[int, int, int, DocumentReview, Assessment]] = field(default_factory=list)

    def add(self, index: int, review: DocumentReview) -> Assessment:
        """Count one review and return its assessment."""
        verdict = assess(review, self.book, self.focus)
        self.rows.append(
            Row(
                index=index,
                path=review.path,
                score=verdict.score,
                level=verdict.level,
                kind=review.kind,
                language=review.language,
                family=verdict.family,
                main=next((reason for reason in verdict.reasons if reason.points), None),
                clauses=sum(review.occurrences.values()),
            )
        )
        self.findings += sum(review.occurrences.values())
        self.levels[verdict.level] += 1
        self.ranges[min(verdict.score // SCORE_RANGE, 100 // SCORE_RANGE - 1)] += 1
        self.families[verdict.family] += 1
        for rule_id in review.occurrences:
            self.clause_levels.setdefault(rule_id, Counter())[verdict.level] += 1
        for reason in verdict.reasons:
            if reason.kind == "rule" and reason.points >= WEIGHTY_POINTS:
                self.clause_points[reason.id] += reason.points
        self.lacking += bool(verdict.missing)
        for item in verdict.missing:
            self.missing[review.kind, item.any_of[0]] += 1
        self._keep(index, review, verdict)
        return verdict

    def add_failure(self, path: str, code: str, message: str) -> None:
        """Count one document that could not be read."""
        self.failed += 1
        if len(self.failures) < MAX_FAILURES_KEPT:
            self.failures.append(Failure(path, code, message))

    def _keep(self, index: int, review: DocumentReview, verdict: Assessment) -> None:
        group = self.copies.setdefault(review.text_sha256, [])
        group.append(len(self.rows) - 1)
        if len(group) > 1:
            return
        entry = (verdict.score, verdict.focus_hits, -index, review, verdict)
        if len(self._best) < DETAILED_DOCUMENTS:
            heapq.heappush(self._best, entry)
        else:
            heapq.heappushpop(self._best, entry)

    @property
    def reviewed(self) -> int:
        """Return how many documents were read and reviewed."""
        return len(self.rows)

    @property
    def distinct(self) -> int:
        """Return how many different texts they hold."""
        return len(self.copies)

    def detailed(self) -> Iterable[tuple[DocumentReview, Assessment, Sequence[Row]]]:
        """Yield the highest scores with the rows of their copies, what was asked for first."""
        order = sorted(self._best, key=lambda entry: (-entry[0], -entry[1], -entry[2]))
        for _, _, _, review, verdict in order:
            others = [self.rows[number] for number in self.copies[review.text_sha256][1:]]
            yield review, verdict, others

    def by_score(self) -> list[Row]:
        """Return all rows, highest score first."""
        return sorted(self.rows, key=lambda row: (-row.score, row.path))

    def heaviest_clause(self) -> tuple[str, int] | None:
        """Return the weighty rule that adds most points in all, and in how many documents it is."""
        if not self.clause_points:
            return None
        rule_id, points = max(self.clause_points.items(), key=lambda item: (item[1], item[0]))
        return (rule_id, self.clause_levels[rule_id].total()) if points else None
