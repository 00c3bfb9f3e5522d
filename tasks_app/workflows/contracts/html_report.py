"""The report as one HTML file that needs nothing else: no script, no request, no fonts.

Everything that came from documents passes through `visible.html`. The file carries a content
security policy of its own, so that even a mistake here could load or run nothing.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from . import charts
from .details import DocumentSections, reason_title
from .phrases import phrases
from .rules import RuleBook
from .scoring import Reason, level_of
from .summary import DETAILED_DOCUMENTS, LEVELS, SCORE_RANGE, Row, Summary
from .visible import html, markup_text

STYLE: Final = Path(__file__).with_name("report.css").read_text("utf-8")
_STYLE_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
CONTENT_SECURITY_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_DIGEST}'; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)

_RESTRICTIVE = ("network_copyleft", "strong_copyleft", "restricted")
_TOP_CHART = 10


@dataclass(frozen=True, slots=True)
class ReportHead:
    """What the title block says.

    Attributes:
        folder: The reviewed folder.
        made_at: When, as text.
        task: Id of the task, or "".
        language: en or zh.
        excluded: Documents the goal left out.
        other_files: Files that are not documents.
        passed_over: Folders not entered: linked or too deep.
    """

    folder: str
    made_at: str
    task: str
    language: str
    excluded: int = 0
    other_files: int = 0
    passed_over: int = 0


def write_html(out: TextIO, head: ReportHead, summary: Summary) -> None:
    """Write the whole report."""
    report = _Report(head, summary)
    for part in report.parts():
        out.write(part)


class _Report:
    def __init__(self, head: ReportHead, summary: Summary) -> None:
        self._head = head
        self._summary = summary
        self._book: RuleBook = summary.book
        self._language = head.language
        self._say: Callable[..., str] = phrases(head.language)

    def parts(self) -> Iterator[str]:
        yield self._opening()
        yield "<main>"
        yield from self._overview()
        if self._summary.reviewed:
            yield from self._charts()
            yield from self._clauses()
            yield from self._missing()
            yield from self._details()
            yield from self._all_documents()
        yield from self._failures()
        yield from self._method()
        yield "</main>"
        yield f'<footer class="end">{html(self._say("not_advice"))}</footer></body></html>\n'

    def _opening(self) -> str:
        say, head = self._say, self._head
        focus = ", ".join(self._focus_title(name) for name in self._summary.focus) or say("none")
        facts = [
            (say("made"), head.made_at),
            (say("rules"), f"{self._book.version} ({self._book.sha256[:12]})"),
            (say("focus"), focus),
        ]
        if head.task:
            facts.append((say("task"), head.task))
        items = "".join(f"<div><dt>{html(k)}</dt><dd>{html(v)}</dd></div>" for k, v in facts)
        links = "".join(
            f'<li><a href="#{name}">{html(say(key))}</a></li>'
            for name, key in (
                ("summary", "summary"), ("clauses", "clause_table"), ("missing", "missing_title"),
                ("details", "details"), ("all", "all"), ("failed", "failed"), ("method", "method"),
            )
            if self._has(name)
        )  # fmt: skip
        language = "zh-Hans" if self._language == "zh" else "en"
        return (
            f'<!doctype html><html lang="{language}"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{markup_text(CONTENT_SECURITY_POLICY)}">'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            '<meta name="color-scheme" content="light dark"><meta name="robots" content="noindex">'
            f'<link rel="icon" href="data:,"><title>{html(say("title"))}</title>'
            f'<style>{STYLE}</style></head><body><header class="top"><h1>{html(say("title"))}</h1>'
            f'<p class="path"><bdi>{html(head.folder)}</bdi></p><dl class="facts">{items}</dl>'
            f"<nav><ol>{links}</ol></nav></header>"
        )

    def _has(self, section: str) -> bool:
        if section in {"summary", "method"}:
            return True
        return bool(self._summary.failed if section == "failed" else self._summary.reviewed)

    def _focus_title(self, name: str) -> str:
        if name in self._book.rules:
            return self._book.rules[name].title.in_language(self._language)
        if name in self._book.categories:
            return self._book.categories[name].in_language(self._language)
        return name

    def _overview(self) -> Iterator[str]:
        say, summary = self._say, self._summary
        urgent = summary.levels[LEVELS[0]] + summary.levels[LEVELS[1]]
        tiles = [
            ("", summary.reviewed, "reviewed"),
            (' class="alarm"' if urgent else "", urgent, "attention"),
            ("", summary.findings, "clauses"),
            ("", summary.distinct, "distinct"),
            (' class="alarm"' if summary.failed else "", summary.failed, "unreadable"),
        ]
        yield f'<section id="summary"><h2>{html(say("summary"))}</h2><ul class="tiles">'
        for extra, number, key in tiles:
            yield f"<li{extra}><b>{number:,}</b><span>{html(say(key))}</span></li>"
        yield '</ul><ul class="lead">'
        for sentence in self._sentences():
            yield f"<li>{html(sentence)}</li>"
        yield "</ul></section>"

    def _sentences(self) -> Iterator[str]:
        say, summary = self._say, self._summary
        if not summary.reviewed:
            yield say("no_documents")
        else:
            yield say(
                "s_levels",
                reviewed=f"{summary.reviewed:,}",
                critical=summary.levels[LEVELS[0]],
                high=summary.levels[LEVELS[1]],
            )
            top = summary.by_score()[0]
            if top.score:
                yield say("s_top", name=top.path, score=top.score)
        heaviest = summary.heaviest_clause()
        if heaviest:
            title = self._book.rules[heaviest[0]].title.in_language(self._language)
            yield say("s_clause", name=title, count=heaviest[1])
        restrictive = sum(summary.families[name] for name in _RESTRICTIVE)
        if restrictive:
            yield say("s_family", count=restrictive)
        if summary.lacking:
            yield say("s_missing", count=summary.lacking)
        copies = summary.reviewed - summary.distinct
        if copies:
            yield say("s_copies", copies=f"{copies:,}", distinct=f"{summary.distinct:,}")
        if summary.failed:
            yield say("s_unreadable", count=summary.failed)

    def _charts(self) -> Iterator[str]:
        yield '<div class="grid">'
        yield self._distribution()
        yield self._families()
        yield "</div>"
        yield '<div class="grid">'
        yield from self._top()
        yield "</div>"

    def _distribution(self) -> str:
        say, summary = self._say, self._summary
        medium, high, critical = self._book.levels
        ranges = range(100 // SCORE_RANGE)
        colours = [level_of(number * SCORE_RANGE, self._book).value for number in ranges]
        counts = [summary.ranges[number] for number in ranges]
        chart = charts.histogram(counts, colours, say("distribution"), say("score_axis"))
        limits = dict(zip(LEVELS, (critical, high, medium, 0), strict=True))
        rows = "".join(
            f"<tr><th>{self._pill(level)}</th>"
            f'<td class="num">{limits[level]}+</td>'
            f'<td class="num">{summary.levels[level]:,}</td>'
            f'<td class="num">{100 * summary.levels[level] / summary.reviewed:.0f} %</td></tr>'
            for level in LEVELS
        )
        table = self._table(
            rows,
            (say("level"), ""),
            (say("score"), "num"),
            (say("documents"), "num"),
            (say("share"), "num"),
        )
        return self._figure("distribution", "distribution_help", chart, table)

    def _families(self) -> str:
        say, summary = self._say, self._summary
        colours = {"network_copyleft": "critical", "strong_copyleft": "high", "restricted": "high",
                   "weak_copyleft": "medium", "permissive": "low", "public_domain": "low"}  # fmt: skip
        known = [*self._book.families, ""]
        shown = [
            (self._family(name), summary.families[name], colours.get(name, "plain"))
            for name in known
            if summary.families[name]
        ]
        highest = max((count for _, count, _ in shown), default=1)
        chart = charts.bars(
            [(name, count, f"{count:,}", colour) for name, count, colour in shown],
            say("families"),
            highest,
        )
        rows = "".join(
            f'<tr><th>{html(name)}</th><td class="num">{count:,}</td>'
            f'<td class="num">{100 * count / summary.reviewed:.0f} %</td></tr>'
            for name, count, _ in shown
        )
        table = self._table(
            rows, (say("families"), ""), (say("documents"), "num"), (say("share"), "num")
        )
        return self._figure("families", "families_help", chart, table)

    def _top(self) -> Iterator[str]:
        say = self._say
        best = [
            (review.path, verdict)
            for review, verdict, _ in list(self._summary.detailed())[:_TOP_CHART]
        ]
        chart = charts.bars(
            [
                (path, verdict.score, str(verdict.score), verdict.level.value)
                for path, verdict in best
            ],
            say("top"),
            100,
        )
        rows = "".join(
            f'<tr><th class="doc"><a href="#d{number}"><bdi>{html(path)}</bdi></a></th>'
            f'<td class="num">{verdict.score}</td><td>{html(self._main(verdict.reasons))}</td></tr>'
            for number, (path, verdict) in enumerate(best)
        )
        table = self._table(
            rows, (say("documents"), ""), (say("score"), "num"), (say("main_reason"), "")
        )
        yield (
            f"<figure><figcaption><h3>{html(say('top'))}</h3>"
            f'<p class="help">{html(say("top_help"))}</p></figcaption>{chart}</figure>'
        )
        yield f'<figure><div class="wide">{table}</div></figure>'

    def _clauses(self) -> Iterator[str]:
        say, summary = self._say, self._summary
        ordered = sorted(
            summary.clause_levels.items(), key=lambda item: (-item[1].total(), item[0])
        )
        highest = max((counts.total() for _, counts in ordered), default=1)
        yield f'<section id="clauses"><h2>{html(say("clause_table"))}</h2>'
        yield f'<p class="help">{html(say("clause_help"))}</p><ul class="key">'
        for level in LEVELS:
            yield (
                '<li><svg width="12" height="12" aria-hidden="true">'
                f'<rect class="f-{level.value}" width="12" height="12" rx="3"/></svg>'
                f"{html(say(level.value))}</li>"
            )
        yield '</ul><div class="wide"><table><thead><tr>'
        heads = [(say("clause"), ""), (say("category"), "narrow-off"), ("", "bar")]
        heads += [(say(level.value), "num narrow-off") for level in LEVELS]
        heads.append((say("documents"), "num"))
        yield "".join(f'<th class="{style}">{html(name)}</th>' for name, style in heads)
        yield "</tr></thead><tbody>"
        for rule_id, counts in ordered:
            rule = self._book.rules[rule_id]
            bar = charts.stacked(
                {level.value: counts[level] for level in LEVELS}, highest,
                ", ".join(f"{say(level.value)} {counts[level]}" for level in LEVELS),
            )  # fmt: skip
            category = self._book.categories[rule.category].in_language(self._language)
            yield (
                f"<tr><th>{html(rule.title.in_language(self._language))}</th>"
                f'<td class="narrow-off">{html(category)}</td><td>{bar}</td>'
            )
            for level in LEVELS:
                yield f'<td class="num narrow-off">{counts[level] or "–"}</td>'
            yield f'<td class="num">{counts.total():,}</td></tr>'
        yield "</tbody></table></div></section>"

    def _missing(self) -> Iterator[str]:
        say, summary = self._say, self._summary
        yield f'<section id="missing"><h2>{html(say("missing_title"))}</h2>'
        yield f'<p class="help">{html(say("missing_help"))}</p>'
        if not summary.missing:
            yield f"<p>{html(say('nothing_missing'))}</p></section>"
            return
        rows = []
        for kind, items in self._book.expected.items():
            for item in items:
                count = summary.missing[kind, item.any_of[0]]
                if count:
                    rows.append(
                        f"<tr><th>{html(item.in_language(self._language))}</th>"
                        f"<td>{html(say(kind))}</td>"
                        f'<td class="num">{item.points}</td><td class="num">{count:,}</td></tr>'
                    )
        yield self._table(
            "".join(rows),
            (say("missing"), ""), (say("kind"), ""), (say("points").capitalize(), "num"), (say("documents"), "num"),
        )  # fmt: skip
        yield "</section>"

    def _details(self) -> Iterator[str]:
        say = self._say
        count = min(DETAILED_DOCUMENTS, self._summary.distinct)
        yield f'<section id="details"><h2>{html(say("details"))}</h2>'
        yield f'<p class="help">{html(say("details_help", count=count))}</p>'
        yield from DocumentSections(self._book, self._language).sections(self._summary)
        yield "</section>"

    def _all_documents(self) -> Iterator[str]:
        say = self._say
        yield f'<section id="all"><h2>{html(say("all"))}</h2>'
        yield f'<p class="help">{html(say("all_help"))}</p><div class="wide"><table><thead><tr>'
        for key, style in (
            ("documents", ""), ("score", "num"), ("level", ""), ("kind", "narrow-off"),
            ("families", "narrow-off"), ("clauses", "num narrow-off"), ("main_reason", "narrow-off"),
        ):  # fmt: skip
            yield f'<th class="{style}">{html(say(key))}</th>'
        yield "</tr></thead><tbody>"
        for row in self._summary.by_score():
            yield self._row(row)
        yield "</tbody></table></div></section>"

    def _row(self, row: Row) -> str:
        main = self._main((row.main,)) if row.main else ""
        family = self._family(row.family) if row.family else "–"
        return (
            f'<tr><td class="doc"><bdi>{html(row.path)}</bdi></td><td class="num">{row.score}</td>'
            f"<td>{self._pill(row.level)}</td>"
            f'<td class="narrow-off">{html(self._say(row.kind))}</td>'
            f'<td class="narrow-off">{html(family)}</td>'
            f'<td class="num narrow-off">{row.clauses}</td><td class="narrow-off">{html(main)}</td></tr>\n'
        )

    def _failures(self) -> Iterator[str]:
        say, summary = self._say, self._summary
        if not summary.failed:
            return
        yield f'<section id="failed"><h2>{html(say("failed"))}</h2>'
        yield f'<p class="help">{html(say("failed_help"))}</p><div class="wide">'
        rows = "".join(
            f'<tr><td class="doc"><bdi>{html(item.path)}</bdi></td><td>{html(item.message)}</td>'
            f"<td>{html(item.code)}</td></tr>"
            for item in summary.failures
        )
        yield self._table(rows, (say("documents"), ""), (say("reason"), ""), (say("code"), ""))
        yield "</div>"
        rest = summary.failed - len(summary.failures)
        if rest:
            yield f"<p>{html(say('failed_more', count=rest))}</p>"
        yield "</section>"

    def _method(self) -> Iterator[str]:
        say = self._say
        medium, high, critical = self._book.levels
        yield f'<section id="method" class="method"><h2>{html(say("method"))}</h2>'
        yield f"<p><strong>{html(say('not_advice'))}</strong></p>"
        yield f"<p>{html(say('method_1', count=len(self._book.rules)))}</p>"
        yield f"<p>{html(say('method_2', medium=medium, high=high, critical=critical))}</p>"
        yield f"<p>{html(say('method_3'))}</p><p>{html(say('method_4'))}</p>"
        if self._head.excluded or self._head.other_files or self._head.passed_over:
            text = say(
                "left_out",
                excluded=f"{self._head.excluded:,}",
                other=f"{self._head.other_files:,}",
                folders=f"{self._head.passed_over:,}",
            )
            yield f"<p>{html(text)}</p>"
        yield "</section>"

    def _main(self, reasons: Sequence[Reason]) -> str:
        if not reasons:
            return ""
        return reason_title(reasons[0], self._book, self._language)

    def _family(self, name: str) -> str:
        if name in self._book.families:
            return self._book.families[name].title.in_language(self._language)
        return self._say("no_family")

    def _pill(self, level: str) -> str:
        return f'<span class="pill p-{level}">{html(self._say(level))}</span>'

    def _figure(self, title: str, help_key: str, chart: str, table: str) -> str:
        return (
            f"<figure><figcaption><h3>{html(self._say(title))}</h3>"
            f'<p class="help">{html(self._say(help_key))}</p></figcaption>{chart}{table}</figure>'
        )

    @staticmethod
    def _table(rows: str, *heads: tuple[str, str]) -> str:
        titles = "".join(f'<th class="{style}">{html(name)}</th>' for name, style in heads)
        return f"<table><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>"
