"""Sentences are cut and recognised as a lawyer would: measured on a labelled corpus and on real texts."""

import importlib.metadata
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tasks_app.workflows.contracts.clauses import match_sentence, review_text
from tasks_app.workflows.contracts.model import MAX_EVIDENCE_PER_RULE, MAX_QUOTE_CHARACTERS
from tasks_app.workflows.contracts.reading import read_content
from tasks_app.workflows.contracts.rules import load_rules
from tasks_app.workflows.contracts.sentences import collapse, normalise, split_sentences
from tests.workflows.contracts import documents

HERE = Path(__file__).parent
BOOK = load_rules()
WORD = re.compile(r"\w+")


class Score(NamedTuple):
    """Precision and recall over all labels of a corpus."""

    sentences: int
    precision: float
    recall: float
    wrong: list[str]


def measure(name: str) -> Score:
    rows = yaml.safe_load((HERE / name).read_bytes())
    right = extra = missed = 0
    wrong = []
    for row in rows:
        normal = normalise(collapse(row["t"]))
        found = {name for name, rule in BOOK.rules.items() if match_sentence(rule, normal)}
        wanted = set(row["l"])
        assert wanted <= BOOK.rules.keys()
        right += len(found & wanted)
        extra += len(found - wanted)
        missed += len(wanted - found)
        if found != wanted:
            wrong.append(f"{row['t']} +{sorted(found - wanted)} -{sorted(wanted - found)}")
    return Score(len(rows), right / (right + extra), right / (right + missed), wrong)


@pytest.mark.parametrize(("name", "least"), [("corpus.yaml", 120), ("corpus_held_out.yaml", 60)])
def test_precision_and_recall(name: str, least: int, capsys: pytest.CaptureFixture[str]) -> None:
    """At least nine of ten, both ways, in both corpora."""
    score = measure(name)
    with capsys.disabled():
        shown = f"precision {score.precision:.3f}, recall {score.recall:.3f}"
        print(f"\n{name}: {score.sentences} sentences, {shown}")  # noqa: T201
    assert score.sentences >= least
    assert score.precision >= 0.9, score.wrong
    assert score.recall >= 0.9, score.wrong


@pytest.mark.parametrize("name", ["corpus.yaml", "corpus_held_out.yaml"])
def test_anchors_hide_nothing_from_the_patterns(name: str) -> None:
    """The search for plain strings leaves out no sentence that a pattern would match."""
    for row in yaml.safe_load((HERE / name).read_bytes()):
        normal = normalise(collapse(row["t"]))
        for rule in BOOK.rules.values():
            if match_sentence(rule, normal):
                assert any(anchor in normal for anchor in rule.anchors), (rule.id, row["t"])


def test_agreement_is_read_as_a_lawyer_would() -> None:
    review = documents.review(documents.AGREEMENT)
    assert review.kind == "agreement"
    assert review.language == "en"
    assert set(review.occurrences) == {
        "payment_terms", "late_interest", "unlimited_liability", "liability_cap", "auto_renewal",
        "termination_convenience", "governing_law",
    }  # fmt: skip
    facts = {finding.rule: [fact.value for fact in finding.facts] for finding in review.findings}
    assert facts["payment_terms"] == ["30 days"]
    assert facts["late_interest"] == ["1.5% per month"]
    assert facts["auto_renewal"] == ["1 year", "90 days"]
    assert facts["governing_law"] == ["State of New York"]
    assert "EUR 10,000" in facts["liability_cap"]


def test_chinese_agreement_is_read_as_well() -> None:
    review = documents.review(documents.CHINESE_AGREEMENT)
    assert review.kind == "agreement"
    assert review.language == "zh"
    assert set(review.occurrences) == {
        "payment_terms", "late_interest", "penalty", "unlimited_liability", "indemnity",
        "governing_law", "jurisdiction",
    }  # fmt: skip
    sections = {finding.rule: finding.section for finding in review.findings}
    assert sections["unlimited_liability"] == "第二条 责任"
    facts = {finding.rule: [fact.value for fact in finding.facts] for finding in review.findings}
    assert facts["governing_law"] == ["中华人民共和国"]
    assert facts["payment_terms"] == ["15 days"]


def test_evidence_points_into_the_text() -> None:
    """Offsets give the sentence, marks give the words inside the quote."""
    text = read_content(documents.AGREEMENT.encode(), "a").text
    for finding in documents.review(documents.AGREEMENT).findings:
        assert collapse(text[finding.start : finding.end]) == finding.quote
        (start, end) = finding.marks[0]
        assert 0 <= start < end <= len(finding.quote)
        assert match_sentence(BOOK.rules[finding.rule], normalise(finding.quote)) == (start, end)


def test_long_quote_keeps_the_marked_words() -> None:
    sentence = "whereas " * 100 + "the Supplier accepts unlimited liability " + "and so on " * 50
    (finding,) = documents.review(sentence).findings
    (start, end) = finding.marks[0]
    assert finding.quote[start:end] == "unlimited liability"
    assert len(finding.quote) <= MAX_QUOTE_CHARACTERS


def test_headings_are_no_evidence() -> None:
    assert documents.review("12. INDEMNIFICATION\n\nThe parties met.\n").occurrences == {}


def test_evidence_is_limited_and_all_is_counted() -> None:
    review = documents.review(" ".join(f"You shall indemnify us in case {n}." for n in range(40)))
    assert review.occurrences["indemnity"] == 40
    assert len(review.findings) == MAX_EVIDENCE_PER_RULE


def test_repeated_sentence_is_shown_once() -> None:
    review = documents.review("You shall indemnify us. " * 40)
    assert review.occurrences["indemnity"] == 40
    assert len(review.findings) == 1


def test_copies_share_a_digest() -> None:
    one = "You shall indemnify\nus for all losses.\n"
    two = "You shall\n   indemnify us for all losses.\n"
    assert documents.review(one).text_sha256 == documents.review(two).text_sha256


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Acme Inc. shall pay. It may not.", ["acme inc. shall pay.", "it may not."]),
        ("See No. 5 of Art. 3, e.g. this. Next one.", ["see no. 5 of art. 3, e.g. this.", "next one."]),
        ("3. You may copy. 4. You may not.", ["3. you may copy.", "4. you may not."]),
        ("甲方应付款。乙方应交货；逾期的，赔偿。", ["甲方应付款。", "乙方应交货；", "逾期的，赔偿。"]),
        ("One\ntwo.\n\nThree", ["one two.", "three"]),
        ("You must:\n  (a) pay\n  (b) wait", ["you must:", "(a) pay", "(b) wait"]),
        ("本软件不\n提供保证。", ["本软件不提供保证。"]),
        ("the termi-\nnation of it", ["the termination of it"]),
        ("Version 2.0 is out", ["version 2.0 is out"]),
    ],
)  # fmt: skip
def test_sentences(text: str, sentences: list[str]) -> None:
    found = [item.normal for item in split_sentences(read_content(text.encode(), "a.txt"))]
    assert found == sentences


def licence_text(package: str, name: str) -> str:
    distribution = importlib.metadata.distribution(package)
    for entry in distribution.files or ():
        if entry.name == name and "dist-info" in str(entry):
            return Path(str(distribution.locate_file(entry))).read_text("utf-8")
    raise AssertionError(f"{package} has no {name}")


@pytest.mark.parametrize(
    ("package", "name", "licence", "wanted", "unwanted"),
    [
        ("httpx", "LICENSE.md", "BSD",
         {"warranty_disclaimer", "liability_cap", "attribution", "trademark"},
         {"copyleft", "patent_grant", "indemnity", "unlimited_liability"}),
        ("pydantic", "LICENSE", "MIT",
         {"warranty_disclaimer", "liability_cap", "attribution"},
         {"copyleft", "patent_grant", "termination_cause", "trademark"}),
        ("requests", "LICENSE", "Apache-2.0",
         {"patent_grant", "patent_retaliation", "indemnity", "liability_cap", "warranty_disclaimer",
          "trademark", "attribution"},
         {"copyleft", "non_commercial", "auto_renewal", "unlimited_liability", "exclusivity"}),
        ("hypothesis", "LICENSE.txt", "MPL",
         {"copyleft", "patent_grant", "patent_retaliation", "liability_cap", "warranty_disclaimer",
          "termination_cause", "jurisdiction"},
         {"non_commercial", "non_compete", "auto_renewal", "payment_terms"}),
        ("psycopg", "LICENSE.txt", "LGPL", {"copyleft", "incorporation"},
         {"non_commercial", "auto_renewal", "unlimited_liability"}),
    ],
)  # fmt: skip
def test_real_licences(
    package: str, name: str, licence: str, wanted: set[str], unwanted: set[str]
) -> None:
    """The texts everybody knows give the clauses everybody knows, and not others."""
    review = documents.review(licence_text(package, name), name)
    assert [hit.id for hit in review.licences if hit.how == "text"] == [licence]
    assert wanted <= review.occurrences.keys()
    assert not unwanted & review.occurrences.keys()


@pytest.mark.slow
def test_speed(capsys: pytest.CaptureFixture[str]) -> None:
    """A review costs at most 34 times the reading of its words: 40 documents a second, usually.

    That is on a processor core which reads the words of 20 kB in 0.75 ms.
    """
    text = licence_text("requests", "LICENSE") + licence_text("httpx", "LICENSE.md")
    content = (text * 2)[:20_000].encode()

    def review() -> None:
        review_text("a.txt", read_content(content, "a.txt"), BOOK)

    def read() -> None:
        [word.group().casefold() for word in WORD.finditer(content.decode())]

    # The best of three: other processes share the processor.
    pairs = [(processor_seconds(review, 20), processor_seconds(read, 100)) for _ in range(3)]
    reviewing, reading = (min(times) for times in zip(*pairs, strict=True))
    with capsys.disabled():
        ratio = f"{reviewing / reading:.1f} times the reading of its words"
        print(f"\n{1 / reviewing:.0f} documents of 20 kB a second, {ratio}")  # noqa: T201
    assert reviewing <= 34 * reading


def processor_seconds(act: Callable[[], None], times: int) -> float:
    began = time.process_time()
    for _ in range(times):
        act()
    return (time.process_time() - began) / times
