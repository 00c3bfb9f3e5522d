"""The rule file is read strictly, and no pattern of it can be made slow."""

import time

import pytest
import yaml

from tasks_app.workflows.contracts import workflow
from tasks_app.workflows.contracts.clauses import match_sentence, review_text
from tasks_app.workflows.contracts.rules import (
    RULE_FILE,
    RuleFileError,
    compile_pattern,
    load_rules,
    parse_rules,
)
from tasks_app.workflows.contracts.sentences import MAX_SENTENCE_CHARACTERS
from tasks_app.workflows.contracts.text import DocumentText

HOSTILE_CHARACTERS = 30_000
BOOK = load_rules()


def test_rules_cover_both_languages() -> None:
    """Every rule has patterns, a title and advice in English and Chinese."""
    source = yaml.safe_load(RULE_FILE.read_bytes())
    assert len(source["rules"]) >= 30
    for rule in source["rules"]:
        assert rule["patterns"]["en"], rule["id"]
        assert rule["patterns"]["zh"], rule["id"]
        assert rule["advice"]["zh"]
        assert any(ord(anchor[0]) > 0x3000 for anchor in rule["anchors"]), rule["id"]


def test_form_names_every_category() -> None:
    description = workflow.ReviewGoal.model_fields["focus"].description or ""
    assert [name for name in BOOK.categories if name not in description] == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("    weight: 35\n", "    weight: 35\n    colour: red\n"),
        (
            "category: liability\n    title: {en: Unlimited",
            "category: none\n    title: {en: Unlimited",
        ),
        ("family: permissive\n    anchors: [apache", "family: nice\n    anchors: [apache"),
        ("    weight: 35\n", "    weight: heavy\n"),
        ("- id: indemnity\n", "- id: liability_cap\n"),
        ("medium: 25", "medium: 95"),
        ("any_of: [force_majeure]", "any_of: [unheard_of]"),
        ("rules:\n", "rule:\n"),
        ("anchors: [terminat, cancel", "anchors: [Terminat, cancel"),
    ],
)
def test_wrong_rule_file_is_refused(before: str, after: str) -> None:
    text = RULE_FILE.read_text("utf-8")
    assert before in text
    with pytest.raises(RuleFileError):
        parse_rules(text.replace(before, after, 1).encode())


@pytest.mark.parametrize("pattern", ["a*", "(?:ab)+", "a{2,}", ".{0,900}", "<999>", "(", "[^x]*y"])
def test_unbounded_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(RuleFileError):
        compile_pattern(pattern)


@pytest.mark.parametrize("pattern", [r"a\*", "[*+]{0,2}", r"\bx<60>y", "(?:a|b){0,4}"])
def test_bounded_pattern_is_accepted(pattern: str) -> None:
    compile_pattern(pattern)


def hostile_sentences(anchors: tuple[str, ...]) -> list[str]:
    """Return texts that start a rule's patterns again and again and never let them end."""
    words = [*anchors, "no", "not", "liable", "shall", "under", "patent", "责任", "不得"]
    return [f"{word} " * 900 for word in words] + [" ".join(words) * 30, "a" * 1500]


@pytest.mark.slow
@pytest.mark.parametrize("rule_id", sorted(BOOK.rules))
def test_rule_is_fast_on_hostile_text(rule_id: str) -> None:
    """30 kB that are made against a rule take it well under a third of a second for each kind of text."""
    rule = BOOK.rules[rule_id]
    for text in hostile_sentences(rule.anchors):
        sentence = text[:MAX_SENTENCE_CHARACTERS]
        rounds = HOSTILE_CHARACTERS // len(sentence)
        started = time.process_time()
        for _ in range(rounds):
            match_sentence(rule, sentence)
        assert time.process_time() - started < 0.3, sentence[:40]


@pytest.mark.slow
def test_whole_review_of_hostile_text_is_bounded() -> None:
    """A long text that every rule wants to look at takes time in proportion to its length."""
    unit = "no party shall not be liable to terminate the patent under this licence, personal data "
    text = (unit * 6_000)[:400_000]
    started = time.process_time()
    review_text("a.txt", DocumentText(text, (), "text"), BOOK)
    assert time.process_time() - started < 12
