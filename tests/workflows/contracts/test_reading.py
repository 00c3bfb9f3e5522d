"""Every format becomes text with sections; every unreadable file becomes a code, never a fault."""

import contextlib
import io
import os
import random
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks_app.workflows.contracts import pdf, reading
from tasks_app.workflows.contracts.problems import DocumentError
from tasks_app.workflows.contracts.reading import read_content, read_document
from tests.workflows.contracts import documents


def refusal(act: Callable[[], object]) -> str:
    """Return the code an act is refused with."""
    with pytest.raises(DocumentError) as caught:
        act()
    assert caught.value.message
    return caught.value.code


def test_plain_text_keeps_offsets_and_finds_headings() -> None:
    """Offsets count characters of the text; the heading above an offset is its section."""
    document = read_content(documents.AGREEMENT.encode(), "agreement")
    position = document.text.index("shall be unlimited")
    assert document.section_at(position) == "2. Liability"
    assert [item.title for item in document.headings] == [
        "SERVICES AGREEMENT", "1. Payment", "2. Liability", "3. Term", "4. Law",
    ]  # fmt: skip


def test_chinese_text_finds_numbered_clauses() -> None:
    document = read_content(documents.CHINESE_AGREEMENT.encode(), "合同.txt")
    assert document.section_at(document.text.index("不设上限")) == "第二条 责任"


@pytest.mark.parametrize("encoding", ["gb18030", "big5", "utf-16", "utf-8-sig"])
def test_chinese_encodings_are_recognised(encoding: str) -> None:
    text = documents.CHINESE_AGREEMENT
    if encoding == "big5":
        text = "本合約適用中華民國法律。乙方應賠償甲方因此遭受的全部損失。" * 8
    assert read_content(text.encode(encoding), "a.txt").text.strip() == text.strip()


def test_western_text_with_single_bytes_is_read() -> None:
    text = "Der Lieferant haftet unbeschränkt für Schäden. Größe und Höhe der Gebühr. " * 20
    assert "unbeschränkt" in read_content(text.encode("cp1252"), "a.txt").text


def test_markdown_headings_are_sections() -> None:
    document = read_content(b"# Licence\n\nText.\n\n## Liability\n\nNone is accepted.\n", "a.md")
    assert document.section_at(document.text.index("None is")) == "Liability"


def test_html_shows_visible_text_only() -> None:
    """Scripts, styles and the head are no text; line breaks are no paragraphs."""
    page = (
        b"<html><head><title>T</title><style>p{}</style></head><body><h2>Liability</h2>"
        b"<script>var a='indemnify'</script><p>In no event<br>shall we be&nbsp;liable.</p>"
        b"<!-- indemnify --><table><tr><td>Cap</td><td>EUR 5</td></tr></table></body></html>"
    )
    document = read_content(page, "a.html")
    assert "indemnify" not in document.text
    assert "In no event\nshall we be liable." in document.text
    assert document.section_at(document.text.index("In no event")) == "Liability"


def test_html_of_great_depth_is_read_without_recursion() -> None:
    page = b"<div>" * 50_000 + b"indemnify" + b"</div>" * 50_000
    assert "indemnify" in read_content(page, "deep.html").text


def test_pdf_is_read_page_by_page() -> None:
    data = documents.make_pdf(["LIABILITY\nNo liability is accepted.", "Second page here."])
    text = read_content(data, "a.pdf").text
    assert text.index("No liability") < text.index("Second page")


def test_pdf_is_recognised_by_content() -> None:
    assert read_content(documents.make_pdf(["Some words."]), "LICENSE").format == "pdf"


def test_docx_has_headings_tables_and_headers_once() -> None:
    data = documents.make_docx(
        ["# Liability", "No liability is accepted.", "# Fees", "See the table."],
        table=[["Fee", "EUR 500"], ["Cap", "EUR 900"]],
        header="Confidential draft",
    )
    document = read_content(data, "a.docx")
    assert document.section_at(document.text.index("No liability")) == "Liability"
    assert document.text.count("Confidential draft") == 1
    assert "EUR 900" in document.text


def test_comment_blocks_are_one_text() -> None:
    """A mark before each line of a licence in a comment is no bullet."""
    comment = (
        "/*\n * IN NO EVENT SHALL THE AUTHOR\n * OR ANY CONTRIBUTOR\n * BE LIABLE FOR DAMAGES.\n */"
    )
    assert documents.review(comment, "NOTICE").occurrences == {"liability_cap": 1}


@pytest.mark.parametrize(
    ("data", "name", "code"),
    [
        (b"  \n\t", "a.txt", "empty"),
        (b"\x00\x01\x02\x03" * 50, "a.txt", "binary_content"),
        (b"\x7fELF" + bytes(range(32)) * 50, "LICENSE", "binary_content"),
        (b"PK\x03\x04 rest", "a.txt", "binary_content"),
        (b"not a pdf", "a.pdf", "damaged"),
        (b"%PDF-1.7\ngarbage", "a.pdf", "damaged"),
        (b"PK\x03\x04 rest", "a.docx", "damaged"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"0" * 99, "a.docx", "encrypted"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"0" * 99, "a.doc", "unsupported_format"),
        (b"{\\rtf1 text}", "a.rtf", "unsupported_format"),
    ],
)
def test_unreadable_content_has_a_code(data: bytes, name: str, code: str) -> None:
    assert refusal(lambda: read_content(data, name)) == code


def test_encrypted_pdf_is_refused() -> None:
    data = documents.make_pdf(["Secret."], encrypted=True)
    assert refusal(lambda: read_content(data, "a.pdf")) == "encrypted"


def test_scanned_pdf_is_told_from_an_empty_file() -> None:
    assert refusal(lambda: read_content(documents.make_pdf([""]), "a.pdf")) == "no_text"


def test_pdf_with_too_many_pages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf, "MAX_PAGES", 2)
    data = documents.make_pdf(["a", "b", "c"])
    assert refusal(lambda: read_content(data, "a.pdf")) == "too_many_pages"


@pytest.mark.slow
def test_pdf_that_needs_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child's processor time is limited: a parser that spins cannot hold a worker."""
    monkeypatch.setattr(pdf, "MAX_SECONDS", 1)
    monkeypatch.setattr(pdf, "_CHILD", Path(__file__).with_name("spinning_child.py"))
    data = documents.make_pdf(["a"])
    assert refusal(lambda: read_content(data, "a.pdf")) == "took_too_long"


def test_pdf_reader_gets_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child that reads what strangers wrote has none of the worker's environment."""
    monkeypatch.setenv("DJANGO_SECRET_KEY", "secret")
    seen: list[dict[str, str]] = []
    original = subprocess.run

    def watching(*args: Any, **options: Any) -> Any:
        seen.append(options["env"])
        return original(*args, **options)

    monkeypatch.setattr(subprocess, "run", watching)
    assert "Words" in read_content(documents.make_pdf(["Words."]), "a.pdf").text
    assert "DJANGO_SECRET_KEY" not in seen[0]


def test_word_bomb_is_refused_before_it_is_unpacked() -> None:
    data = documents.make_zip_bomb()
    assert len(data) < 1_000_000
    assert refusal(lambda: read_content(data, "a.docx")) == "archive_too_large"


def test_word_document_without_parts_is_damaged() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types xmlns='x'/>")
    assert refusal(lambda: read_content(out.getvalue(), "a.docx")) == "damaged"


def test_limits_on_size_and_length(tmp_path: Path) -> None:
    with (tmp_path / "big.txt").open("wb") as out:
        out.truncate(reading.MAX_FILE_BYTES + 1)
    assert refusal(lambda: read_document(tmp_path, "big.txt")) == "too_large"
    long_text = b"word " * (reading.MAX_CHARACTERS // 5 + 1)
    assert refusal(lambda: read_content(long_text, "a.txt")) == "too_long"


def test_files_that_lead_astray_are_refused(tmp_path: Path) -> None:
    """A link out of the folder, a pipe and a vanished file are refused at once."""
    inside, outside = tmp_path / "in", tmp_path / "out.txt"
    inside.mkdir()
    outside.write_text("secret")
    (inside / "link.txt").symlink_to(outside)
    (inside / "loop.txt").symlink_to("loop.txt")
    os.mkfifo(inside / "pipe.txt")
    assert refusal(lambda: read_document(inside, "link.txt")) == "symlink_outside"
    assert refusal(lambda: read_document(inside, "../out.txt")) == "symlink_outside"
    assert refusal(lambda: read_document(inside, "pipe.txt")) == "not_a_file"
    assert refusal(lambda: read_document(inside, "gone.txt")) == "missing"
    assert refusal(lambda: read_document(inside, "loop.txt")) == "unreadable"


def test_link_inside_the_folder_is_read(tmp_path: Path) -> None:
    documents.write(tmp_path, {"a/LICENSE": "No warranty is given.\n"})
    (tmp_path / "b.txt").symlink_to("a/LICENSE")
    assert "No warranty" in read_document(tmp_path, "b.txt").text


def test_file_without_permission_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("text")
    path.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # root may read everything, nobody may not
    try:
        assert refusal(lambda: read_document(tmp_path, "a.txt")) == "permission_denied"
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("seed", range(12))
def test_damaged_documents_never_raise_anything_else(seed: int) -> None:
    """Bytes changed at random give a text or a code."""
    dice = random.Random(seed)  # noqa: S311 - repeatable, not secret
    for data, name in (
        (documents.make_docx(["Some text.", "# Heading"], table=[["a", "b"]]), "a.docx"),
        (documents.AGREEMENT.encode(), "a.html"),
        (documents.AGREEMENT.encode("utf-16"), "a.txt"),
    ):
        broken = bytearray(data)
        for _ in range(30):
            broken[dice.randrange(len(broken))] = dice.randrange(256)
        with contextlib.suppress(DocumentError):
            read_content(bytes(broken), name)
