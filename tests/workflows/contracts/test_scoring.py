"""The score can be added up from its reasons, and focus changes weight but never findings."""

import pytest

from tasks_app.workflows.contracts.model import DocumentReview, Finding, Level, LicenceHit
from tasks_app.workflows.contracts.rules import load_rules
from tasks_app.workflows.contracts.scoring import assess, decide_family, level_of
from tests.workflows.contracts import documents

BOOK = load_rules()


def make_review(**overrides: object) -> DocumentReview:
    values: dict[str, object] = {
        "path": "a.txt", "format": "text", "language": "en", "kind": "other", "characters": 5000,
        "sentences": 10, "text_sha256": "0" * 64, **overrides,
    }  # fmt: skip
    return DocumentReview.model_validate(values)


def test_score_is_the_sum_of_its_reasons() -> None:
    verdict = assess(documents.review(documents.AGREEMENT), BOOK)
    assert verdict.score == sum(reason.points for reason in verdict.reasons)
    assert verdict.level == level_of(verdict.score, BOOK) is Level.CRITICAL
    assert verdict.reasons[0].id == "unlimited_liability"


def test_score_ends_at_one_hundred() -> None:
    everything = dict.fromkeys(BOOK.rules, 1)
    assert assess(make_review(occurrences=everything), BOOK).score == 100


def test_repetition_adds_nothing() -> None:
    once = documents.review("You shall indemnify us.")
    often = documents.review("You shall indemnify us. " * 9)
    assert assess(once, BOOK).score == assess(often, BOOK).score == BOOK.rules["indemnity"].weight


def test_modifiers_change_the_points() -> None:
    mutual = documents.review("Each party shall indemnify the other.")
    one_sided = documents.review("You shall indemnify us against any and all claims.")
    assert (
        assess(mutual, BOOK).score < BOOK.rules["indemnity"].weight < assess(one_sided, BOOK).score
    )


def test_heaviest_finding_of_a_rule_counts() -> None:
    finding = Finding(rule="indemnity", quote="x", start=0, end=1)
    findings = [
        finding.model_copy(update={"modifiers": names}) for names in (["mutual"], ["broad"], [])
    ]
    review = make_review(findings=findings, occurrences={"indemnity": 3})
    (reason,) = assess(review, BOOK).reasons
    assert (reason.points, reason.modifiers) == (22, ("broad",))


@pytest.mark.parametrize("focus", ["indemnity", "term", "auto_renewal"])
def test_focus_raises_the_weight_only(focus: str) -> None:
    """What is found stays the same, so a changed focus asks for no second reading."""
    review = documents.review(
        "The Customer shall indemnify the Supplier. This licence renews automatically each year."
    )
    plain, focused = assess(review, BOOK), assess(review, BOOK, [focus])
    assert focused.score > plain.score
    assert focused.focus_hits == 1
    assert {reason.id for reason in plain.reasons} == {reason.id for reason in focused.reasons}


def test_missing_protection_is_a_signal_of_its_own() -> None:
    whole = "Permission is hereby granted to use this. Redistribution is permitted as well. " * 12
    verdict = assess(documents.review(whole), BOOK)
    assert [item.any_of[0] for item in verdict.missing] == ["liability_cap", "warranty_disclaimer"]
    assert {reason.kind for reason in verdict.reasons} == {"missing"}


def test_fragments_and_other_languages_are_not_accused() -> None:
    short = make_review(kind="licence", characters=200)
    foreign = make_review(kind="licence", language="other")
    assert assess(short, BOOK).missing == assess(foreign, BOOK).missing == ()


@pytest.mark.parametrize(
    ("hits", "rules", "family"),
    [
        ([("MIT", "permissive", "text")], {}, "permissive"),
        ([("MIT", "permissive", "text"), ("GPL", "strong_copyleft", "mention")], {}, "permissive"),
        ([("MIT", "permissive", "text"), ("GPL", "strong_copyleft", "mention")],
         {"copyleft": 1}, "strong_copyleft"),
        ([("MPL", "weak_copyleft", "text"), ("GPL", "strong_copyleft", "mention")],
         {"copyleft": 1}, "weak_copyleft"),
        ([("GPL", "strong_copyleft", "mention")], {}, "strong_copyleft"),
        ([], {}, None),
    ],
)  # fmt: skip
def test_licence_family(
    hits: list[tuple[str, str, str]], rules: dict[str, int], family: str | None
) -> None:
    licences = [LicenceHit.model_validate({"id": a, "family": b, "how": c}) for a, b, c in hits]
    found = decide_family(make_review(licences=licences, occurrences=rules), BOOK)
    assert (found.id if found else None) == family
