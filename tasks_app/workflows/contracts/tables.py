"""The findings as files for other programs: two CSV tables and one JSON Lines file, streamed.

CSV begins with a byte order mark, because Excel reads Chinese text only then; every cell is plain
text to a spreadsheet.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from .model import DocumentReview
from .rules import RuleBook
from .scoring import Assessment
from .visible import cell

FINDING_COLUMNS: Final = (
    "document", "level", "score", "rule", "clause", "category", "points", "in_focus", "occurrences",
    "section", "start", "end", "modifiers", "facts", "evidence",
)  # fmt: skip
DOCUMENT_COLUMNS: Final = (
    "document", "status", "level", "score", "kind", "language", "format", "licence_family",
    "licences", "clauses", "missing", "reasons", "characters", "text_sha256", "error", "message",
)  # fmt: skip


class TableWriter:
    """Writes findings.csv, documents.csv and findings.jsonl side by side into a folder."""

    def __init__(self, folder: Path, book: RuleBook, language: str) -> None:
        self.findings_csv = folder / "findings.csv"
        self.documents_csv = folder / "documents.csv"
        self.findings_jsonl = folder / "findings.jsonl"
        self._book = book
        self._language = language
        self._files = ExitStack()

    def __enter__(self) -> Self:
        self._findings = self._table(self.findings_csv, FINDING_COLUMNS)
        self._documents = self._table(self.documents_csv, DOCUMENT_COLUMNS)
        self._lines = self._files.enter_context(
            self.findings_jsonl.open("w", encoding="utf-8", newline="\n")
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._files.close()

    def _table(self, path: Path, columns: Iterable[str]) -> Any:
        out = self._files.enter_context(path.open("w", encoding="utf-8-sig", newline=""))
        table = csv.writer(out)
        table.writerow(columns)
        return table

    def add(self, review: DocumentReview, verdict: Assessment) -> None:
        """Write one reviewed document."""
        points = {reason.id: reason for reason in verdict.reasons if reason.kind == "rule"}
        for finding in review.findings:
            rule = self._book.rules[finding.rule]
            reason = points[finding.rule]
            self._row(
                self._findings,
                review.path,
                verdict.level.value,
                verdict.score,
                finding.rule,
                rule.title.in_language(self._language),
                rule.category,
                reason.points,
                "yes" if reason.in_focus else "no",
                review.occurrences[finding.rule],
                finding.section,
                finding.start,
                finding.end,
                " ".join(finding.modifiers),
                "; ".join(f"{fact.kind}={fact.value}" for fact in finding.facts),
                finding.quote,
            )
        self._row(
            self._documents,
            review.path,
            "reviewed",
            verdict.level.value,
            verdict.score,
            review.kind,
            review.language,
            review.format,
            verdict.family,
            " ".join(f"{hit.id}({hit.how})" for hit in review.licences),
            sum(review.occurrences.values()),
            "; ".join(item.in_language(self._language) for item in verdict.missing),
            "; ".join(f"{reason.id} +{reason.points}" for reason in verdict.reasons),
            review.characters,
            review.text_sha256,
            "",
            "",
        )
        self._line(
            review.model_dump(mode="json")
            | {
                "score": verdict.score,
                "level": verdict.level.value,
                "family": verdict.family,
                "missing": [item.any_of for item in verdict.missing],
                "reasons": [
                    {"kind": reason.kind, "id": reason.id, "points": reason.points}
                    for reason in verdict.reasons
                ],
            }
        )

    def add_failure(self, path: str, code: str, message: str) -> None:
        """Write one document that could not be read."""
        blank = [""] * (len(DOCUMENT_COLUMNS) - 4)
        self._row(self._documents, path, "unreadable", *blank, code, message)
        self._line({"path": path, "error": {"code": code, "message": message}})

    @staticmethod
    def _row(table: Any, *values: object) -> None:
        table.writerow([cell(value) for value in values])

    def _line(self, document: dict[str, Any]) -> None:
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        self._lines.write(text.encode("utf-8", "replace").decode("utf-8") + "\n")
