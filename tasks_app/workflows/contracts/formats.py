"""Text, Markdown, HTML and Word documents from bytes to text; PDF has its own module.

Sizes are checked before anything is unpacked, and HTML is read as a stream, never as a tree.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from charset_normalizer import from_bytes
from lxml import etree

from .problems import DocumentError
from .text import (
    Block,
    DocumentText,
    Heading,
    assemble,
    blank_comment_marks,
    clean,
    find_headings,
    merge_headings,
)

if TYPE_CHECKING:
    from docx.document import Document as WordDocument
    from docx.table import Table

MAX_ARCHIVE_ENTRIES: Final = 5_000
MAX_UNPACKED_BYTES: Final = 100 * 1024 * 1024
MAX_WORD_XML_BYTES: Final = 30 * 1024 * 1024

_SAMPLE_BYTES = 64 * 1024
_LIKELY_ENCODINGS = [
    "gb18030", "big5", "shift_jis", "euc_jp", "euc_kr",
    "cp1252", "cp1250", "cp1251", "iso8859_15", "mac_roman",
]  # fmt: skip
_CONTROLS = bytes(byte for byte in range(0x20) if byte not in b"\t\n\r\x0b\x0c\x1b\x08")


def read_plain(data: bytes) -> DocumentText:
    """Return plain text as it stands, with guessed headings."""
    text = blank_comment_marks(clean(decode(data)))
    return DocumentText(text, find_headings(text), "text")


_MARKDOWN_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.{1,120}?)[ \t]*#{0,6}$", re.MULTILINE)


def read_markdown(data: bytes) -> DocumentText:
    """Return Markdown source as text; `#` lines are headings, marks are left in place."""
    text = clean(decode(data))
    marked = [
        Heading(match.start(), match.end(), match.group(1).strip("*_` "))
        for match in _MARKDOWN_HEADING.finditer(text)
    ]
    return DocumentText(text, merge_headings(marked, find_headings(text)), "markdown")


def decode(data: bytes) -> str:
    """Return bytes as text: byte order mark, then UTF-8, then the most likely other encoding.

    Raises:
        DocumentError: binary_content, unknown_encoding.
    """
    for mark, encoding in (
        (b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe\x00\x00", "utf-32"),
        (b"\x00\x00\xfe\xff", "utf-32"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"),
    ):  # fmt: skip
        if data.startswith(mark):
            return data.decode(encoding, errors="replace")
    if _is_binary(data):
        raise DocumentError("binary_content", "The file holds binary data, not text.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        return _decode_guessed(data, error)


def _decode_guessed(data: bytes, error: UnicodeDecodeError) -> str:
    strays = data.decode("utf-8", errors="replace").count("\ufffd")
    if strays * 2_000 < len(data) and any(byte > 0x7F for byte in _outside(data, error)):
        return data.decode("utf-8", errors="replace")  # UTF-8 with a few damaged bytes
    start = max(0, error.start - _SAMPLE_BYTES // 2)
    sample = data[start : start + _SAMPLE_BYTES]
    best = from_bytes(sample, cp_isolation=_LIKELY_ENCODINGS).best()
    if best is None:
        raise DocumentError("unknown_encoding", "The character encoding cannot be recognised.")
    return data.decode(best.encoding, errors="replace")


def _outside(data: bytes, error: UnicodeDecodeError) -> bytes:
    """Return some bytes before the first damaged one: valid UTF-8 by construction."""
    return data[max(0, error.start - 100_000) : error.start]


def _is_binary(data: bytes) -> bool:
    sample = data[:8192]
    if b"\x00" in sample:
        return True
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    return controls * 50 > len(sample)


_BLOCKS = frozenset(
    [
        "p",
        "div",
        "li",
        "ul",
        "ol",
        "dl",
        "dt",
        "dd",
        "table",
        "tr",
        "td",
        "th",
        "section",
        "article",
        "header",
        "footer",
        "main",
        "aside",
        "nav",
        "blockquote",
        "pre",
        "hr",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "title",
        "caption",
        "form",
        "fieldset",
        "body",
    ]
)
_HIDDEN = frozenset({"script", "style", "noscript", "template", "head", "svg", "iframe", "object"})
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})


class _HtmlText:
    """Collects the visible text of HTML as blocks while the parser runs."""

    def __init__(self, max_characters: int) -> None:
        self.blocks: list[Block] = []
        self._parts: list[str] = []
        self._hidden = 0
        self._preformatted = 0
        self._left = max_characters + 1

    def start(self, tag: str, attributes: object) -> None:
        del attributes
        if tag in _HIDDEN:
            self._hidden += 1
        if tag in _BLOCKS:
            self.flush(is_heading=False)
        elif tag == "br":
            self._parts.append("\n")
        if tag == "pre":
            self._preformatted += 1

    def end(self, tag: str) -> None:
        if tag in _HIDDEN and self._hidden:
            self._hidden -= 1
        if tag in _BLOCKS:
            self.flush(is_heading=tag in _HEADINGS)
        if tag == "pre" and self._preformatted:
            self._preformatted -= 1

    def data(self, text: str) -> None:
        if self._hidden or self._left <= 0:
            return
        self._left -= len(text)
        self._parts.append(text if self._preformatted else re.sub(r"\s+", " ", text))

    def close(self) -> list[Block]:
        self.flush(is_heading=False)
        return self.blocks

    def flush(self, *, is_heading: bool) -> None:
        if self._parts:
            self.blocks.append(Block("".join(self._parts), is_heading))
            self._parts = []


def read_html(data: bytes, *, max_characters: int) -> DocumentText:
    """Return the visible text of an HTML page; scripts, styles and the head are left out."""
    text = clean(decode(data))
    target = _HtmlText(max_characters)
    parser = etree.HTMLParser(target=target, no_network=True, remove_comments=True)
    try:
        for start in range(0, len(text), 65_536):
            parser.feed(text[start : start + 65_536])
        blocks = parser.close()
    except (etree.LxmlError, ValueError, AssertionError) as error:
        raise DocumentError("damaged", "The HTML cannot be parsed.") from error
    return assemble(blocks, format_name="html", max_characters=max_characters)


# What hostile XML makes python-docx raise. Not `Exception`: the engine ends a step by raising.
_WORD_FAULTS = (
    ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, OSError, RuntimeError,
    TypeError, ValueError, zipfile.BadZipFile, zlib.error, etree.LxmlError,
)  # fmt: skip


def read_docx(data: bytes, *, max_characters: int) -> DocumentText:
    """Return the text of a Word document: page headers, paragraphs, tables, page footers.

    Raises:
        DocumentError: archive_too_large, encrypted, damaged.
    """
    _check_archive(data)
    import docx.exceptions  # slow to import, and most folders hold no Word document

    try:
        document = docx.Document(io.BytesIO(data))
        blocks = _word_blocks(document)
        return assemble(blocks, format_name="docx", max_characters=max_characters)
    except (*_WORD_FAULTS, docx.exceptions.PythonDocxError) as error:
        raise DocumentError("damaged", "The Word document is damaged.") from error


def _check_archive(data: bytes) -> None:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        raise DocumentError("damaged", "The file is not a Word document.") from error
    if any(entry.flag_bits & 0x1 for entry in entries):
        raise DocumentError("encrypted", "The document is protected by a password.")
    unpacked = sum(entry.file_size for entry in entries)
    word_xml = sum(
        entry.file_size for entry in entries if entry.filename.endswith((".xml", ".rels"))
    )
    if (
        len(entries) > MAX_ARCHIVE_ENTRIES
        or unpacked > MAX_UNPACKED_BYTES
        or word_xml > MAX_WORD_XML_BYTES
    ):
        raise DocumentError(
            "archive_too_large",
            f"Unpacked the document would take {unpacked / 1_048_576:.0f} MiB; that is refused.",
        )
    if not any(entry.filename == "[Content_Types].xml" for entry in entries):
        raise DocumentError("damaged", "The archive is not a Word document.")


def _word_blocks(document: WordDocument) -> Iterator[Block]:
    from docx.table import Table as WordTable

    sections = list(document.sections)[:50]
    seen: set[str] = set()
    for section in sections:
        yield from _once(seen, (paragraph.text for paragraph in section.header.paragraphs))
    for item in document.iter_inner_content():
        if isinstance(item, WordTable):
            yield from _table_blocks(item)
        else:
            style = (item.style.name or "") if item.style is not None else ""
            yield Block(item.text, style.startswith(("Heading", "Title", "标题")))
    for section in sections:
        yield from _once(seen, (paragraph.text for paragraph in section.footer.paragraphs))


def _once(seen: set[str], texts: Iterator[str]) -> Iterator[Block]:
    for text in texts:
        if text.strip() and text not in seen:
            seen.add(text)
            yield Block(text)


def _table_blocks(table: Table) -> Iterator[Block]:
    """One block for each cell with text; a merged cell counts once."""
    for row in table.rows:
        done: set[int] = set()
        for cell in row.cells:
            if id(cell._tc) in done:  # noqa: SLF001 - the only identity of a merged cell
                continue
            done.add(id(cell._tc))  # noqa: SLF001
            if cell.text.strip():
                yield Block(cell.text)
