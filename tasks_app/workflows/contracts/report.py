"""From streamed reviews to the report's files: one pass over the results, bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .details import reason_title
from .html_report import ReportHead, write_html
from .model import DocumentReview
from .rules import RuleBook
from .summary import Summary
from .tables import TableWriter

__all__ = ["MEDIA_TYPES", "Fault", "Outcome", "reason_title", "write_report"]

MEDIA_TYPES = {
    "report.html": "text/html; charset=utf-8",
    "findings.csv": "text/csv; charset=utf-8",
    "documents.csv": "text/csv; charset=utf-8",
    "findings.jsonl": "application/jsonl",
}
_TELL_EVERY = 50


class Fault(Protocol):
    """Why a document has no review."""

    @property
    def code(self) -> str:
        """Return the stable code."""

    @property
    def message(self) -> str:
        """Return the sentence for people."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One document of the review: its result or its fault."""

    index: int
    path: str
    review: DocumentReview | None
    fault: Fault | None


def write_report(
    folder: Path,
    outcomes: Iterable[Outcome],
    *,
    head: ReportHead,
    book: RuleBook,
    focus: Iterable[str] = (),
    tell: Callable[[int], None] = lambda done: None,
) -> Summary:
    """Write all files of the report into `folder` and return the totals.

    Args:
        folder: An empty folder.
        outcomes: Streamed; gone through once.
        head: The title block.
        book: The rules the reviews were made with.
        focus: What the goal asked for.
        tell: Called now and then with the number of documents done.
    """
    summary = Summary(book, tuple(focus))
    with TableWriter(folder, book, head.language) as tables:
        for outcome in outcomes:
            if outcome.review is not None:
                verdict = summary.add(outcome.index, outcome.review)
                tables.add(outcome.review, verdict)
            else:
                code = outcome.fault.code if outcome.fault else "unknown"
                message = outcome.fault.message if outcome.fault else ""
                summary.add_failure(outcome.path, code, message)
                tables.add_failure(outcome.path, code, message)
            if (outcome.index + 1) % _TELL_EVERY == 0:
                tell(outcome.index + 1)
    with (folder / "report.html").open("w", encoding="utf-8", errors="replace") as out:
        write_html(out, head, summary)
    return summary
