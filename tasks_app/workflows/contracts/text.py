"""Extracted text with light structure: where the headings are, and which one holds at an offset.

Also the recognition of headings in plain text, where nothing marks them but habit.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

MAX_HEADING_CHARACTERS = 120


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading or clause label: the range it covers in the text, and its title."""

    start: int
    end: int
    title: str


@dataclass(frozen=True, slots=True)
class DocumentText:
    """The text of a document; offsets everywhere else count characters of `text`.

    Attributes:
        text: All of it, line feeds only, paragraphs separated by an empty line.
        headings: In order of their start.
        format: text, markdown, html, pdf or docx.
    """

    text: str
    headings: tuple[Heading, ...]
    format: str
    _starts: tuple[int, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "_starts", tuple(item.start for item in self.headings))

    def section_at(self, offset: int) -> str:
        """Return the title of the last heading that starts at or before `offset`, or ""."""
        index = bisect_right(self._starts, offset) - 1
        return self.headings[index].title if index >= 0 else ""


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph or heading as a format reader found it."""

    text: str
    is_heading: bool = False


def assemble(blocks: Iterable[Block], *, format_name: str, max_characters: int) -> DocumentText:
    """Join blocks into one text; stop reading soon after the limit is passed.

    The caller compares the length with the limit, so the overrun stays visible.
    """
    parts: list[str] = []
    marked: list[Heading] = []
    length = 0
    for block in blocks:
        content = clean(block.text).strip()
        if not content:
            continue
        if parts:
            parts.append("\n\n")
            length += 2
        if block.is_heading and len(content) <= MAX_HEADING_CHARACTERS:
            marked.append(Heading(length, length + len(content), one_line(content)))
        parts.append(content)
        length += len(content)
        if length > max_characters:
            break
    text = "".join(parts)
    return DocumentText(text, merge_headings(marked, find_headings(text)), format_name)


_UNWANTED = re.compile("[\x00-\x08\x0e-\x1f\x7f\ufeff\u200b\u2060\u00ad\ufffe\uffff\ud800-\udfff]")
_LINE_ENDS = re.compile("\r\n|\r|\x0b|\x0c|\u2028|\u2029|\x85")
_SPACES = re.compile(r"\s+")


def clean(text: str) -> str:
    """Return `text` with line feeds only and without invisible characters that hide words."""
    return _UNWANTED.sub("", _LINE_ENDS.sub("\n", text))


def one_line(text: str) -> str:
    """Return a title on one line, without the rules drawn around it."""
    return _SPACES.sub(" ", text).strip(" =~_*#-")


_MARKED_LINES = re.compile(
    r"(?:^[ \t]*(?P<mark>\*|#|//|;|>|\||%|dnl\b|REM\b)[^\n]*\n)(?:^[ \t]*(?P=mark)[^\n]*(?:\n|\Z)){2,}",
    re.MULTILINE,
)
_MARK = re.compile(r"^([ \t]*)(\*|#|//|;|>|\||%|dnl\b|REM\b)", re.MULTILINE)
_MARK_AT_END = re.compile(r"(?<=[ \t])[*#|][ \t]*$", re.MULTILINE)


def blank_comment_marks(text: str) -> str:
    """Return `text` with the marks of comment blocks and boxes replaced by spaces.

    A licence in a source comment has a mark before each line, which is no bullet. Three lines in
    a row with one mark make a block. The length never changes.
    """
    return _MARKED_LINES.sub(_blank_block, text)


def _blank_block(match: re.Match[str]) -> str:
    block = _MARK.sub(lambda mark: mark[1] + " " * len(mark[2]), match[0])
    return _MARK_AT_END.sub(lambda mark: " " * len(mark[0]), block)


_CJK_NUMERAL = "一二三四五六七八九十百零〇两\\d"
_LABEL = re.compile(
    r"(?:article|section|clause|schedule|annex|exhibit|appendix|part)[ ]+[\divxlc]{1,6}[a-z]?\b"
    rf"|第[{_CJK_NUMERAL}]{{1,6}}[条章节款部]|[一二三四五六七八九十]{{1,3}}、",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"(?:\d{1,3}(?:\.\d{1,3}){0,3}|[IVX]{1,6}|[A-Z])[.)]?[ \t]+(?=[A-Z“\"])")
_NUMBERED_CJK = re.compile(r"\d{1,3}(?:\.\d{1,3}){0,3}[.、．]?[ \t]*(?=[一-鿿])")
_RUN_IN = re.compile(
    r"(?:\d{1,3}(?:\.\d{1,3}){0,3}[.)]?[ \t]+|\([a-z]\)[ \t]+)"
    r"([A-Z][A-Za-z ,/&'’-]{2,60}?)(?:\.|:)[ \t]+(?=[\"“A-Z(])"
)
_SENTENCE_STOP = (".", ";", ",", ":", "。", "；", "，", "：", "!", "?")


def find_headings(text: str) -> tuple[Heading, ...]:
    """Return the lines of `text` that read as headings or numbered clause titles."""
    found: list[Heading] = []
    before_blank = True
    position = 0
    lines = text.split("\n")
    for number, line in enumerate(lines):
        stripped = line.strip()
        if stripped and len(stripped) <= 4000:
            following = lines[number + 1].strip() if number + 1 < len(lines) else ""
            heading = _heading_of(stripped, before_blank, following)
            if heading:
                start = position + len(line) - len(line.lstrip())
                found.append(Heading(start, start + heading[0], heading[1]))
        before_blank = not stripped or stripped == "."
        position += len(line) + 1
    return tuple(found)


def _heading_of(line: str, before_blank: bool, following: str) -> tuple[int, str] | None:
    """Return (characters covered, title) when the line is or starts with a heading."""
    run_in = _RUN_IN.match(line)
    if run_in and _few_words(run_in.group(1)):
        return run_in.end(1) + 1, one_line(line[: run_in.end(1)])
    if _is_underline(following) and before_blank and len(line) <= MAX_HEADING_CHARACTERS:
        return len(line), one_line(line)
    if len(line) <= 80 and not line.endswith(_SENTENCE_STOP) and _few_words(line):
        labelled = _LABEL.match(line) or _NUMBERED.match(line)
        numbered_cjk = _NUMBERED_CJK.match(line) if len(line) <= 24 else None
        alone = before_blank and (not following or following == ".")
        if (labelled and alone) or numbered_cjk or (_LABEL.match(line) and len(line) <= 30):
            return len(line), one_line(line)
        if alone and _is_capitals(line):
            return len(line), one_line(line)
    label = _LABEL.match(line)
    if label and line.startswith("第"):
        return label.end(), line[: label.end()]
    return None


def _few_words(line: str) -> bool:
    return len(line.split()) <= 10


def _is_capitals(line: str) -> bool:
    letters = [character for character in line if character.isalpha()]
    return len(letters) >= 4 and all(character.isupper() for character in letters)


def _is_underline(line: str) -> bool:
    return len(line) >= 4 and (set(line) in ({"="}, {"-"}, {"~"}))


def merge_headings(marked: Iterable[Heading], guessed: Iterable[Heading]) -> tuple[Heading, ...]:
    """Return all headings in order; where two overlap, the one the format marked wins."""
    kept = sorted(marked, key=lambda item: item.start)
    starts = [item.start for item in kept]
    result = list(kept)
    for item in guessed:
        index = bisect_right(starts, item.end - 1) - 1
        if index < 0 or kept[index].end <= item.start:
            result.append(item)
    return tuple(sorted(result, key=lambda item: item.start))
