"""How much attention a document deserves: points, the reasons for each of them, and a level.

Points come from rules, from missing protections and from the licence family. The sum is capped at
100. Focus weighs what the goal asked for more heavily; it never changes what was found.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from .model import DocumentReview, Finding, Level
from .rules import Expected, Family, Rule, RuleBook

MAX_SCORE: Final = 100
SHORTEST_WHOLE_TEXT: Final = 600
_HARMLESS_FAMILIES = frozenset({"permissive", "public_domain"})


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a document has some of its points.

    Attributes:
        kind: rule, missing or family.
        id: Rule id, first expected rule id, or family id.
        points: What it adds to the score, 0 for what is only worth knowing.
        modifiers: Ids of modifiers that changed the points of a rule.
        in_focus: The goal asked for it.
    """

    kind: Literal["rule", "missing", "family"]
    id: str
    points: int
    modifiers: tuple[str, ...] = ()
    in_focus: bool = False


@dataclass(frozen=True, slots=True)
class Assessment:
    """The judgement on one document; reasons are sorted by points."""

    score: int
    level: Level
    reasons: tuple[Reason, ...]
    missing: tuple[Expected, ...]
    family: str

    @property
    def focus_hits(self) -> int:
        """Return how many reasons the goal asked for."""
        return sum(reason.in_focus for reason in self.reasons)


def assess(review: DocumentReview, book: RuleBook, focus: Iterable[str] = ()) -> Assessment:
    """Return the score of a review with its reasons."""
    wanted = frozenset(focus)
    reasons = [
        _rule_reason(book.rules[rule_id], review.findings, book, wanted)
        for rule_id in review.occurrences
        if rule_id in book.rules
    ]
    missing = missing_protections(review, book)
    reasons += [
        Reason("missing", item.any_of[0], item.points, in_focus=_wanted(item.any_of, book, wanted))
        for item in missing
    ]
    family = decide_family(review, book)
    if family is not None and family.points:
        reasons.append(Reason("family", family.id, family.points))
    reasons.sort(key=lambda reason: (-reason.points, reason.kind, reason.id))
    score = min(MAX_SCORE, sum(reason.points for reason in reasons))
    return Assessment(
        score=score,
        level=level_of(score, book),
        reasons=tuple(reasons),
        missing=missing,
        family=family.id if family else "",
    )


def level_of(score: int, book: RuleBook) -> Level:
    """Return the level a score belongs to."""
    medium, high, critical = book.levels
    if score >= critical:
        return Level.CRITICAL
    if score >= high:
        return Level.HIGH
    return Level.MEDIUM if score >= medium else Level.LOW


def missing_protections(review: DocumentReview, book: RuleBook) -> tuple[Expected, ...]:
    """Return the protections that a document of this kind should have and has not.

    Fragments, and texts in a language that the rules cannot read, are not accused of anything.
    """
    if review.characters < SHORTEST_WHOLE_TEXT or review.language == "other":
        return ()
    return tuple(
        item
        for item in book.expected.get(review.kind, ())
        if not any(rule_id in review.occurrences for rule_id in item.any_of)
    )


def decide_family(review: DocumentReview, book: RuleBook) -> Family | None:
    """Return the licence family that decides how the document is treated.

    A licence's own text decides. A reference counts when there is no text, or when the text is
    permissive and the document also speaks of source disclosure or of no commercial use.
    """
    texts = [hit.family for hit in review.licences if hit.how == "text"]
    mentions = [hit.family for hit in review.licences if hit.how == "mention"]
    restrictive = {"copyleft", "non_commercial"} & review.occurrences.keys()
    if not texts or (restrictive and _HARMLESS_FAMILIES.issuperset(texts)):
        texts += mentions
    families = [book.families[name] for name in texts if name in book.families]
    return min(families, key=lambda family: family.rank, default=None)


def _rule_reason(
    rule: Rule, findings: Iterable[Finding], book: RuleBook, wanted: frozenset[str]
) -> Reason:
    amounts = {modifier.id: modifier.add for modifier in rule.modifiers}
    best: tuple[int, tuple[str, ...]] | None = None
    for finding in findings:
        if finding.rule == rule.id:
            names = tuple(name for name in finding.modifiers if name in amounts)
            total = sum(amounts[name] for name in names)
            if best is None or total > best[0]:
                best = total, names
    extra, names = best or (0, ())
    in_focus = rule.id in wanted or rule.category in wanted
    points = max(0, rule.weight + extra)
    if in_focus:
        points = round(points * book.focus_factor)
    return Reason("rule", rule.id, points, names, in_focus)


def _wanted(rule_ids: Iterable[str], book: RuleBook, wanted: frozenset[str]) -> bool:
    return any(name in wanted or book.rules[name].category in wanted for name in rule_ids)
