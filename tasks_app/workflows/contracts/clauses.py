"""Which rules a document's sentences meet: the extraction half of a review.

Nothing here depends on the goal, so a changed focus never asks for a second reading. The work is
bounded: sentences have a greatest length, and each rule looks at a limited number of them.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Final, Literal

from .extraction import extract_facts
from .model import (
    MAX_EVIDENCE_PER_RULE,
    MAX_QUOTE_CHARACTERS,
    DocumentReview,
    Finding,
    LicenceHit,
)
from .rules import Licence, Rule, RuleBook
from .sentences import Sentence, collapse, split_sentences
from .text import DocumentText

MAX_CANDIDATES_PER_RULE: Final = 4_000
_KIND_CHARACTERS = 20_000
_SAMPLE_CHARACTERS = 6_000
_TRIES_PER_PATTERN = 6


def review_text(path: str, document: DocumentText, book: RuleBook) -> DocumentReview:
    """Return everything the rules find in one document."""
    index = _Index(list(split_sentences(document)))
    findings: list[Finding] = []
    occurrences: dict[str, int] = {}
    for rule in book.rules.values():
        shown: set[str] = set()
        for sentence, span in _matches(rule, index):
            occurrences[rule.id] = occurrences.get(rule.id, 0) + 1
            if len(shown) < MAX_EVIDENCE_PER_RULE and sentence.normal not in shown:
                shown.add(sentence.normal)
                findings.append(_finding(rule, document, sentence, span))
    findings.sort(key=lambda item: (item.start, item.rule))
    licences = find_licences(index, book.licences)
    return DocumentReview(
        path=path,
        format=document.format,
        language=language_of(document.text),
        kind=_kind(index, book, licences),
        characters=len(document.text),
        sentences=sum(not sentence.is_heading for sentence in index.sentences),
        text_sha256=index.digest(),
        licences=licences,
        findings=findings,
        occurrences=occurrences,
    )


def match_sentence(rule: Rule, normal: str) -> tuple[int, int] | None:
    """Return the range of `normal` that meets the rule, or None.

    A match that an exception overlaps does not count, but another one in the sentence may.
    """
    exceptions: list[tuple[int, int]] | None = None
    for pattern in rule.patterns:
        for match in islice(pattern.finditer(normal), _TRIES_PER_PATTERN):
            if exceptions is None:
                exceptions = [
                    found.span()
                    for expression in rule.exceptions
                    for found in islice(expression.finditer(normal), _TRIES_PER_PATTERN)
                ]
            start, end = match.span()
            if not any(low < end and start < high for low, high in exceptions):
                return start, end
    return None


@dataclass(slots=True)
class _Index:
    """All normal forms as one string, so that a plain search finds the sentences worth a look."""

    sentences: list[Sentence]
    text: str = ""
    starts: Sequence[int] = ()

    def __post_init__(self) -> None:
        lengths = [len(sentence.normal) + 1 for sentence in self.sentences]
        self.starts = [0, *accumulate(lengths)][:-1] if lengths else []
        self.text = "\n".join(sentence.normal for sentence in self.sentences)

    def holding(self, anchors: Sequence[str]) -> Iterator[Sentence]:
        """Yield the sentences that hold one of the anchors, in order."""
        numbers: set[int] = set()
        for anchor in anchors:
            position = self.text.find(anchor)
            while position >= 0 and len(numbers) <= MAX_CANDIDATES_PER_RULE:
                number = bisect_right(self.starts, position) - 1
                numbers.add(number)
                following = number + 1
                if following >= len(self.starts):
                    break
                position = self.text.find(anchor, self.starts[following])
        for number in sorted(numbers):
            yield self.sentences[number]

    def digest(self) -> str:
        """Return a digest that copies of a text share whatever their line breaks."""
        return hashlib.sha256(self.text.encode("utf-8", "replace")).hexdigest()


def _matches(rule: Rule, index: _Index) -> Iterator[tuple[Sentence, tuple[int, int]]]:
    for sentence in index.holding(rule.anchors):
        if not sentence.is_heading:
            span = match_sentence(rule, sentence.normal)
            if span:
                yield sentence, span


def _finding(
    rule: Rule, document: DocumentText, sentence: Sentence, span: tuple[int, int]
) -> Finding:
    whole = collapse(document.text[sentence.start : sentence.end])
    modifiers = [
        modifier.id
        for modifier in rule.modifiers
        if any(pattern.search(sentence.normal) for pattern in modifier.patterns)
    ]
    quote, mark = _window(whole, span)
    return Finding(
        rule=rule.id,
        quote=quote,
        start=sentence.start,
        end=sentence.end,
        section=document.section_at(sentence.start)[:120],
        marks=[mark],
        modifiers=modifiers,
        facts=extract_facts(rule.extract, whole),
    )


def _window(whole: str, span: tuple[int, int]) -> tuple[str, tuple[int, int]]:
    """Return at most MAX_QUOTE_CHARACTERS of a sentence around the match, and the match in it."""
    start, end = span
    if len(whole) <= MAX_QUOTE_CHARACTERS:
        return whole, (start, end)
    room = MAX_QUOTE_CHARACTERS - 2
    begin = max(0, min(start - max(0, room - (end - start)) // 3, len(whole) - room))
    stop = min(len(whole), begin + room)
    head, tail = ("…" if begin else ""), ("…" if stop < len(whole) else "")
    shift = len(head) - begin
    return f"{head}{whole[begin:stop]}{tail}", (start + shift, min(end, stop) + shift)


def find_licences(index: _Index, licences: Sequence[Licence]) -> list[LicenceHit]:
    """Return the public licences whose text or name stands in the document."""
    hits = []
    for licence in licences:
        how: Literal["text", "mention"] | None = None
        for sentence in index.holding(licence.anchors):
            if any(pattern.search(sentence.normal) for pattern in licence.text):
                how = "text"
                break
            if how is None and any(pattern.search(sentence.normal) for pattern in licence.name):
                how = "mention"
        if how:
            hits.append(LicenceHit(id=licence.id, family=licence.family, how=how))
    return hits


def _kind(
    index: _Index, book: RuleBook, licences: Sequence[LicenceHit]
) -> Literal["licence", "agreement", "notice", "other"]:
    if any(hit.how == "text" for hit in licences):
        return "licence"
    sample = index.text[:_KIND_CHARACTERS]
    for kind in book.kinds:
        if sum(bool(pattern.search(sample)) for pattern in kind.patterns) >= kind.least:
            # A text that only refers to a public licence is not that licence.
            return "notice" if kind.id == "licence" and licences else kind.id
    return "other"


_CJK_CHARACTERS = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_LETTERS = re.compile(r"[^\W\d_]")
_LATIN_CHARACTERS = re.compile("[A-Za-zÀ-ɏ]")


def language_of(text: str) -> Literal["en", "zh", "other"]:
    """Return the language most of the text is in; any Latin script counts as English."""
    sample = text[:_SAMPLE_CHARACTERS]
    chinese = len(_CJK_CHARACTERS.findall(sample))
    latin = len(_LATIN_CHARACTERS.findall(sample))
    letters = len(_LETTERS.findall(sample))
    if chinese * 3 > latin and chinese * 2 > letters - latin:
        return "zh"
    return "en" if latin * 2 >= letters else "other"
