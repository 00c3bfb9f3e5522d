"""Small real documents made in the tests: PDF by hand, Word by python-docx."""

import io
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import docx

from tasks_app.workflows.contracts.clauses import review_text
from tasks_app.workflows.contracts.model import DocumentReview
from tasks_app.workflows.contracts.reading import read_content
from tasks_app.workflows.contracts.rules import load_rules

AGREEMENT = """SERVICES AGREEMENT

This Agreement is made between Acme GmbH (the "Supplier") and Beta Ltd (the "Customer").
Each party has read it.

1. Payment. Invoices are payable within 30 days of receipt. Overdue amounts bear interest at
1.5% per month.

2. Liability

The Customer's liability under this Agreement shall be unlimited. In no event shall the Supplier
be liable for any indirect damages. The Supplier's total aggregate liability shall not exceed
EUR 10,000.

3. Term

This Agreement shall automatically renew for successive one-year terms unless either party gives
ninety (90) days' notice. The Supplier may terminate this Agreement at any time without cause.

4. Law

This Agreement is governed by the laws of the State of New York.
"""

CHINESE_AGREEMENT = """技术服务合同

第一条 付款

甲方应在收到发票后十五个工作日内付款。逾期付款的，每逾期一日按应付金额的万分之五支付违约金。

第二条 责任

乙方的赔偿责任不设上限。乙方应赔偿甲方因此遭受的全部损失，包括律师费。

第三条 争议解决

本合同适用中华人民共和国法律。因本合同引起的争议，任何一方可向甲方所在地人民法院提起诉讼。
"""


def review(text: str | bytes, name: str = "contract.txt") -> DocumentReview:
    """Return the review of one text with the rules of the product."""
    data = text.encode() if isinstance(text, str) else text
    return review_text(name, read_content(data, name), load_rules())


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    """Write files below a folder and return it."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def make_pdf(pages: Sequence[str], *, encrypted: bool = False) -> bytes:
    """Return a PDF with one line of text for each line of each page."""
    objects: list[bytes] = [b"<< /Type /Catalog /Pages 2 0 R >>", b""]
    objects.append(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    kids = []
    for page in pages:
        drawn = "".join(f"({line}) Tj T* " for line in page.splitlines())
        stream = zlib.compress(f"BT /F1 11 Tf 14 TL 50 780 Td {drawn}ET".encode("latin-1"))
        objects.append(
            b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(stream), stream)
        )
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> >> >>" % len(objects)
        )
        kids.append(b"%d 0 R" % len(objects))
    objects[1] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b" ".join(kids), len(kids))
    data = _serialise(objects)
    return _encrypt(data) if encrypted else data


def _serialise(objects: Sequence[bytes]) -> bytes:
    out = io.BytesIO()
    out.write(b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, body))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.writelines(b"%010d 00000 n \n" % offset for offset in offsets)
    out.write(b"trailer\n<< /Size %d /Root 1 0 R >>\n" % (len(objects) + 1))
    out.write(b"startxref\n%d\n%%%%EOF\n" % start)
    return out.getvalue()


def _encrypt(data: bytes) -> bytes:
    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(data)))
    writer.encrypt("secret", algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def make_docx(
    paragraphs: Sequence[str], *, table: Sequence[Sequence[str]] = (), header: str = ""
) -> bytes:
    """Return a Word document; a paragraph that begins with ``#`` is a heading."""
    document = docx.Document()
    if header:
        document.sections[0].header.paragraphs[0].text = header
    for text in paragraphs:
        if text.startswith("#"):
            document.add_heading(text.lstrip("# "), level=1)
        else:
            document.add_paragraph(text)
    if table:
        grid = document.add_table(rows=len(table), cols=len(table[0]))
        for row, cells in zip(grid.rows, table, strict=True):
            for cell, text in zip(row.cells, cells, strict=True):
                cell.text = text
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def make_zip_bomb() -> bytes:
    """Return a small archive in the shape of a Word document that unpacks to 200 MiB."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        with archive.open("word/document.xml", "w") as entry:
            for _ in range(200):
                entry.write(b" " * 1_048_576)
    return out.getvalue()
