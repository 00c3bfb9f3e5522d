"""``.venv/bin/python -m tasks_app.workflows.contracts.bench DIR [OUT]``: the review, no server.

Reviews a folder in this process, writes the report's files into OUT when it is given, and says how
fast it was and how much memory it took.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from .clauses import review_text
from .discovery import UNREAD, list_documents
from .html_report import ReportHead
from .problems import DocumentError
from .reading import read_document
from .report import Outcome, write_report
from .rules import load_rules
from .summary import Summary


def review_folder(folder: Path) -> Iterator[Outcome]:
    """Yield the outcome of every document of a folder, one at a time."""
    book = load_rules()
    for index, document in enumerate(list_documents(folder)):
        try:
            if document.problem:
                raise DocumentError(document.problem, UNREAD[document.problem])
            text = read_document(folder, document.path)
        except DocumentError as error:
            yield Outcome(index, document.path, None, error)
        else:
            yield Outcome(index, document.path, review_text(document.path, text, book), None)


def run(folder: Path, out: Path) -> Summary:
    """Review a folder into report files."""
    head = ReportHead(folder=str(folder), made_at="", task="", language="en")
    return write_report(out, review_folder(folder), head=head, book=load_rules())


def main(arguments: list[str]) -> int:
    """Run the command line; 2 for wrong usage."""
    if len(arguments) not in {1, 2}:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    if not Path(arguments[0]).is_dir():
        sys.stderr.write(f"{arguments[0]} is not a folder, or may not be read\n")
        return 2
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(arguments[1]) if len(arguments) == 2 else Path(scratch)
        out.mkdir(parents=True, exist_ok=True)
        summary = run(Path(arguments[0]).resolve(), out)
        size = (out / "report.html").stat().st_size
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    count = summary.reviewed + summary.failed
    sys.stdout.write(
        f"{count} documents, {summary.failed} unreadable, {seconds:.1f} s, {count / seconds:.0f} a second\n"
        f"peak memory {peak:.0f} MiB, report.html {size / 1024:.0f} KiB\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
