"""Where sentences begin and end, in English and Chinese, and the form rules are matched against.

Offsets always count characters of the document's text; only quotes have white space collapsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from .text import DocumentText

MAX_SENTENCE_CHARACTERS: Final = 1_500


class Sentence(NamedTuple):
    """One sentence: its range in the text, its normal form, and whether it is a heading."""

    start: int
    end: int
    normal: str
    is_heading: bool


_CJK = "\u2e80-\u303f\u3400-\u4dbf\u4e00-\u9fff\uff00-\uffef"
_PREFIX = re.compile(r"\n[ \t]*(?:(?:#|\*|//|;|>|\||--|dnl\b|rem\b|%|\.(?=[ \t]*\n))+[ \t]*)")
_CJK_GAP = re.compile(rf"(?<=[{_CJK}])\s+(?=[{_CJK}])")
_HYPHEN = re.compile(r"(?<=[a-z])-\n[ \t]*(?=[a-z])")
_SPACES = re.compile(r"\s+")
_SAME_LENGTH = str.maketrans(
    {
        "“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "‘": "'", "’": "'", "`": "'",
        "–": "-", "—": "-", "‐": "-", "‑": "-", "−": "-", "\u00a0": " ", "％": "%",
        **{chr(0xFF10 + digit): str(digit) for digit in range(10)},
    }
)  # fmt: skip


def collapse(text: str) -> str:
    """Return `text` as one line: comment marks, line ends and hyphenation removed."""
    if "\n" in text:
        text = _PREFIX.sub("\n", text)
        text = _HYPHEN.sub("", text)
    return _SPACES.sub(" ", _CJK_GAP.sub("", text)).strip()


def normalise(quote: str) -> str:
    """Return a collapsed text in the form rules see; character by character as long as `quote`."""
    plain = quote.translate(_SAME_LENGTH)
    lowered = plain.lower()
    if len(lowered) == len(plain):
        return lowered
    return "".join(low if len(low := character.lower()) == 1 else character for character in plain)


def split_sentences(document: DocumentText) -> Iterator[Sentence]:
    """Yield the sentences and headings of a document in order."""
    position = 0
    for heading in document.headings:
        if heading.start < position:
            continue
        yield from _split_range(document.text, position, heading.start)
        normal = normalise(collapse(document.text[heading.start : heading.end]))
        yield Sentence(heading.start, heading.end, normal, is_heading=True)
        position = heading.end
    yield from _split_range(document.text, position, len(document.text))


_PARAGRAPH = re.compile(
    r"\n[ \t]*(?:[#*/;.]{0,3}[ \t]*)\n\s*"  # an empty line, also inside a comment
    r"|\n(?=[ \t]*(?:(?:[a-z]|[ivx]{1,5}|\d{1,3})[.)][ \t]+|\((?:[a-z]|[ivx]{1,5}|\d{1,3})\)"
    r"|[-*•·–●][ \t]+|[(（][一二三四五六七八九十]{1,3}[)）]|\d{1,2}、)[ \t]*\S)"
)
_END = re.compile(r"[.!?][\"'”’)\]]{0,3}(?=\s)|[。！？；][”’」』）]{0,2}")
_ABBREVIATION = re.compile(
    r"(?:\b(?:inc|ltd|co|corp|llc|no|nos|art|sec|cl|e\.g|i\.e|etc|vs|u\.s|u\.k|mr|mrs|ms|dr|st|jr"
    r"|cf|al|ver|v|fig|p|pp|para|approx|dept|univ|incl|resp)|\b[A-Z]|\.[A-Za-z])$",
    re.IGNORECASE,
)
_CLAUSE_NUMBER = re.compile(
    r"^[(\s]*(?:\d{1,3}(?:\.\d{1,3}){0,4}|[a-z]|[ivx]{1,5})$", re.IGNORECASE
)
_OPENING = re.compile(r"\s+[\"'“‘(\[*_]{0,3}(?:[A-Z0-9©]|[^\x00-\x7f])")


def _split_range(text: str, start: int, end: int) -> Iterator[Sentence]:
    position = start
    for cut in _PARAGRAPH.finditer(text, start, end):
        yield from _split_paragraph(text, position, cut.start())
        position = cut.start()
    yield from _split_paragraph(text, position, end)


def _split_paragraph(text: str, start: int, end: int) -> Iterator[Sentence]:
    position = start
    for match in _END.finditer(text, start, end):
        if match.end() < end and _ends_sentence(text, position, match, end):
            yield from _pieces(text, position, match.end())
            position = match.end()
    yield from _pieces(text, position, end)


def _ends_sentence(text: str, start: int, match: re.Match[str], end: int) -> bool:
    if text[match.start()] in "。！？；!?":
        return True
    if not _OPENING.match(text, match.end(), end):
        return False
    before = text[max(start, match.start() - 16) : match.start()]
    if _ABBREVIATION.search(before):
        return False
    return not (match.start() - start <= 14 and _CLAUSE_NUMBER.match(text[start : match.start()]))


def _pieces(text: str, start: int, end: int) -> Iterator[Sentence]:
    """Yield the range as a sentence, cut where it is longer than any sentence may be."""
    while end - start > MAX_SENTENCE_CHARACTERS:
        limit = start + MAX_SENTENCE_CHARACTERS
        cut = max(
            text.rfind("; ", start + 200, limit), text.rfind(";\n", start + 200, limit),
            text.rfind("\n\n", start + 200, limit),
        )  # fmt: skip
        if cut < 0:
            cut = max(text.rfind(" ", start + 200, limit), text.rfind("，", start + 200, limit))
        cut = limit if cut < 0 else cut + 1
        yield from _trimmed(text, start, cut)
        start = cut
    yield from _trimmed(text, start, end)


_BEFORE_SENTENCE = " \t\n\u3000.,;:#*|>/"


def _trimmed(text: str, start: int, end: int) -> Iterator[Sentence]:
    raw = text[start:end].rstrip()
    stripped = raw.lstrip(_BEFORE_SENTENCE)
    if len(stripped) < 2:
        return
    begin = start + len(raw) - len(stripped)
    normal = normalise(collapse(stripped))
    if normal:
        yield Sentence(begin, begin + len(stripped), normal, is_heading=False)
