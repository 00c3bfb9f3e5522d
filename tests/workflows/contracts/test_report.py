"""The report's files: complete, safe to open, and small for thousands of documents."""

import csv
import html.parser
import json
import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from tasks_app.workflows.contracts import bench, charts, visible
from tasks_app.workflows.contracts.html_report import CONTENT_SECURITY_POLICY, ReportHead
from tasks_app.workflows.contracts.model import DocumentReview, Finding
from tasks_app.workflows.contracts.phrases import TABLES
from tasks_app.workflows.contracts.problems import DocumentError
from tasks_app.workflows.contracts.report import MEDIA_TYPES, Outcome, write_report
from tasks_app.workflows.contracts.rules import load_rules
from tasks_app.workflows.contracts.summary import DETAILED_DOCUMENTS, Summary
from tests.workflows.contracts import documents

BOOK = load_rules()
NASTY = '=cmd|"/c calc"!A1 <script>alert(1)</script> \u202eevil\u202c &amp; \u200b'


def make_report(
    folder: Path, outcomes: Iterator[Outcome], *, language: str = "en", focus: tuple[str, ...] = ()
) -> Summary:
    head = ReportHead("/srv/contracts", "2026-11-29 15:00 UTC", "task-1", language, 1, 2, 3)
    return write_report(folder, outcomes, head=head, book=BOOK, focus=focus)


def two_documents_and_a_fault() -> Iterator[Outcome]:
    yield Outcome(0, "a.txt", documents.review(documents.AGREEMENT, "a.txt"), None)
    yield Outcome(1, "b.txt", documents.review("Nothing of note.", "b.txt"), None)
    yield Outcome(2, "c.pdf", None, DocumentError("encrypted", "The PDF is protected."))


class Page(html.parser.HTMLParser):
    """Collects tags, attributes and text, and checks that tags are closed in order."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(source)
        assert self._open == []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        values = dict(attrs)
        if values.get("id"):
            assert values["id"] not in self.ids
            self.ids.add(str(values["id"]))
        if tag == "a":
            self.links.add(str(values["href"]))
        if tag not in {"meta", "link", "br"}:
            self._open.append(tag)

    @override
    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    @override
    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    @override
    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read_page(folder: Path) -> Page:
    return Page((folder / "report.html").read_text("utf-8"))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_report_is_whole_and_self_contained(tmp_path: Path, language: str) -> None:
    """No script, no style attribute, no address of another host; every link leads somewhere."""
    make_report(tmp_path, two_documents_and_a_fault(), language=language)
    page = read_page(tmp_path)
    source = (tmp_path / "report.html").read_text("utf-8")
    assert not page.tags & {"script", "img", "iframe", "object", "form", "input"}
    assert not {name for name in page.attributes if name.startswith("on") or name == "style"}
    assert not re.search(r"(?:src|href|url)\s*[=(]\s*[\"']?(?:https?:)?//", source)
    assert {link.removeprefix("#") for link in page.links} <= page.ids
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(MEDIA_TYPES)


def test_report_says_what_matters(tmp_path: Path) -> None:
    summary = make_report(tmp_path, two_documents_and_a_fault(), focus=("term", "liability"))
    text = " ".join(read_page(tmp_path).text)
    assert (summary.reviewed, summary.failed) == (2, 1)
    for words in (
        "not legal advice", "Documents reviewed: 2, of them 1 critical", "Begin with a.txt (100)",
        "Unlimited liability", "The PDF is protected.", "encrypted", BOOK.version,
        "The Customer's", "2. Liability", "Not looked at in this folder",
        "Term and termination",
    ):  # fmt: skip
        assert words in text, words


def test_policy_of_the_file_allows_its_style_and_nothing_else(tmp_path: Path) -> None:
    """The digest in the policy is that of the style element, or the page would be bare."""
    import base64
    import hashlib

    make_report(tmp_path, two_documents_and_a_fault())
    source = (tmp_path / "report.html").read_text("utf-8")
    (style,) = re.findall(r"<style>(.*?)</style>", source, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in CONTENT_SECURITY_POLICY
    assert CONTENT_SECURITY_POLICY.startswith("default-src 'none'")


def hostile() -> Iterator[Outcome]:
    finding = Finding(
        rule="indemnity", quote=NASTY, start=0, end=9, section=NASTY, marks=[(0, len(NASTY))]
    )
    review = DocumentReview(
        path=NASTY, format="text", language="en", kind="other", characters=9, sentences=1,
        text_sha256="0", findings=[finding], occurrences={"indemnity": 1},
    )  # fmt: skip
    yield Outcome(0, NASTY, review, None)
    yield Outcome(1, NASTY, None, DocumentError("damaged", NASTY))


def test_hostile_text_is_shown_as_text(tmp_path: Path) -> None:
    """Markup is escaped; direction and invisible characters are written out."""
    make_report(tmp_path, hostile())
    source = (tmp_path / "report.html").read_text("utf-8")
    page = read_page(tmp_path)
    assert "script" not in page.tags
    assert "\u202e" not in source
    assert "\u200b" not in source
    assert "U+202E" in "".join(page.text)
    assert not re.search(r"<svg[^>]*>(?:(?!</svg>).)*<span", source, re.DOTALL)
    assert "<script>alert(1)</script>" in "".join(page.text)


def test_no_cell_is_a_formula(tmp_path: Path) -> None:
    make_report(tmp_path, hostile())
    for name in ("findings.csv", "documents.csv"):
        with (tmp_path / name).open(encoding="utf-8-sig", newline="") as source:
            for row in csv.reader(source):
                for value in row:
                    assert not value.startswith(("=", "+", "-", "@", "\t", "\r")), value
                    assert "\u202e" not in value


@pytest.mark.parametrize("value", ["=1+1", "+49 30", "-5", "@sum", "\t=1", "＝1", " =1", "|cmd"])
def test_cell_is_made_plain(value: str) -> None:
    assert visible.cell(value).startswith("'")


def test_long_names_keep_both_ends_in_charts() -> None:
    name = "合同文件夹/" + "二〇二六年度技术服务合同" * 4 + "最终版.docx"
    chart = charts.bars([(name, 50, "50", "high")], "Scores", 100)
    assert "合同文件夹" in chart
    assert "最终版.docx" in chart
    assert name not in chart


def test_numbers_stay_numbers() -> None:
    assert visible.cell(-5) == "-5"
    assert visible.cell("ordinary") == "ordinary"


def test_csv_opens_in_excel_with_chinese(tmp_path: Path) -> None:
    outcome = Outcome(
        0, "合同.txt", documents.review(documents.CHINESE_AGREEMENT, "合同.txt"), None
    )
    make_report(tmp_path, iter([outcome]), language="zh")
    data = (tmp_path / "findings.csv").read_bytes()
    assert data.startswith(b"\xef\xbb\xbf")
    rows = list(csv.DictReader(data.decode("utf-8-sig").splitlines()))
    assert {"无限责任", "适用法律"} <= {row["clause"] for row in rows}
    assert rows[0]["document"] == "合同.txt"


def test_json_lines_hold_everything(tmp_path: Path) -> None:
    make_report(tmp_path, two_documents_and_a_fault())
    text = (tmp_path / "findings.jsonl").read_text("utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["path"] for line in lines] == ["a.txt", "b.txt", "c.pdf"]
    assert lines[0]["score"] >= BOOK.levels[2]
    assert lines[2]["error"] == {"code": "encrypted", "message": "The PDF is protected."}


def test_empty_review_has_a_report(tmp_path: Path) -> None:
    make_report(tmp_path, iter(()))
    assert "No document could be reviewed." in " ".join(read_page(tmp_path).text)


def test_both_languages_have_the_same_phrases() -> None:
    blanks = re.compile(r"\{(\w+)\}")
    assert TABLES["en"].keys() == TABLES["zh"].keys()
    for key, english in TABLES["en"].items():
        assert set(blanks.findall(english)) == set(blanks.findall(TABLES["zh"][key])), key


def test_same_text_is_detailed_once(tmp_path: Path) -> None:
    names = [f"{number}/LICENSE" for number in range(12)]
    outcomes = (
        Outcome(index, name, documents.review(documents.AGREEMENT, name), None)
        for index, name in enumerate(names)
    )
    summary = make_report(tmp_path, outcomes)
    text = " ".join(read_page(tmp_path).text)
    assert (summary.reviewed, summary.distinct) == (12, 1)
    assert "Same text: 1/LICENSE" in text
    assert "and 5 more" in text


def many(count: int) -> Iterator[Outcome]:
    base = documents.review(documents.AGREEMENT, "x")
    long = [item.model_copy(update={"quote": item.quote.ljust(600, "x")}) for item in base.findings]
    for index in range(count):
        path = f"folder-{index // 50}/a contract with a rather long name {index:05}.docx"
        yield Outcome(
            index,
            path,
            base.model_copy(update={"path": path, "text_sha256": str(index), "findings": long}),
            None,
        )


@pytest.mark.crash
def test_two_thousand_documents_make_a_small_file(tmp_path: Path) -> None:
    summary = make_report(tmp_path, many(2_000))
    assert summary.reviewed == 2_000
    assert len(list(summary.detailed())) == DETAILED_DOCUMENTS
    assert (tmp_path / "report.html").stat().st_size <= 5_000_000


@pytest.mark.crash
def test_memory_hardly_grows_with_the_number_of_documents(tmp_path: Path) -> None:
    """A row stays for each document, a whole review only for the highest scores."""
    peaks = []
    for count in (250, 750):
        (tmp_path / str(count)).mkdir()
        tracemalloc.start()
        make_report(tmp_path / str(count), many(count))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (peaks[1] - peaks[0]) / 500 < 2_500


def test_bench_reviews_a_folder_without_a_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents.write(tmp_path / "in", {"a.txt": documents.AGREEMENT, "b.pdf": "no pdf"})
    assert bench.main([str(tmp_path / "in"), str(tmp_path / "out")]) == 0
    assert "2 documents, 1 unreadable" in capsys.readouterr().out
    assert (tmp_path / "out" / "report.html").is_file()
    assert bench.main([]) == 2
