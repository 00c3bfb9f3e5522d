"""The report's sections about single documents: reasons, clauses and the sentences behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from .model import DocumentReview, Finding
from .phrases import phrases
from .rules import RuleBook
from .scoring import Assessment, Reason
from .summary import Row, Summary
from .visible import html

MAX_CLAUSES: Final = 14
MAX_QUOTES: Final = 2
MAX_QUOTE_SHOWN: Final = 420
_MAX_COPIES = 6


class DocumentSections:
    """Writes one `article` for each document with a high score."""

    def __init__(self, book: RuleBook, language: str) -> None:
        self._book = book
        self._language = language
        self._say = phrases(language)

    def sections(self, summary: Summary) -> Iterator[str]:
        """Yield the sections, highest score first."""
        for number, (review, verdict, copies) in enumerate(summary.detailed()):
            yield from self._section(number, review, verdict, copies)

    def _section(
        self, number: int, review: DocumentReview, verdict: Assessment, copies: Sequence[Row]
    ) -> Iterator[str]:
        say, level = self._say, verdict.level.value
        yield (
            f'<article id="d{number}"><header><h3><bdi>{html(review.path)}</bdi></h3>'
            f'<span class="score">{verdict.score}</span>'
            f'<span class="pill p-{level}">{html(say(level))}</span></header>'
        )
        about = [say(review.kind), review.format]
        about.append(say(review.language if review.language != "other" else "other_language"))
        about += [hit.id for hit in review.licences if hit.how == "text"]
        about.append(f"{review.characters:,} {say('characters')}")
        yield f'<p class="meta">{html(" · ".join(about))}'
        if copies:
            yield f"<br>{html(self._copies(copies))}"
        yield "</p>"
        yield self._reasons(verdict)
        yield from self._clauses(review, verdict)
        yield "</article>\n"

    def _copies(self, copies: Sequence[Row]) -> str:
        names = ", ".join(row.path for row in copies[:_MAX_COPIES])
        text = self._say("copies", names=names)
        if len(copies) > _MAX_COPIES:
            text += f" {self._say('and_more', count=len(copies) - _MAX_COPIES)}"
        return text

    def _reasons(self, verdict: Assessment) -> str:
        items = []
        for reason in verdict.reasons:
            if reason.points:
                style = "focus" if reason.in_focus else "lack" if reason.kind == "missing" else ""
                items.append(
                    f'<li class="{style}">{html(reason_title(reason, self._book, self._language))} <b>+{reason.points}</b></li>'
                )
        return f'<ul class="reasons">{"".join(items)}</ul>' if items else ""

    def _clauses(self, review: DocumentReview, verdict: Assessment) -> Iterator[str]:
        rules = [reason for reason in verdict.reasons if reason.kind == "rule"]
        rules.sort(key=lambda reason: not reason.in_focus)
        for reason in rules[:MAX_CLAUSES]:
            rule = self._book.rules[reason.id]
            found = [finding for finding in review.findings if finding.rule == reason.id]
            quotes = found[: MAX_QUOTES if reason.points > 4 else 1]
            yield (
                f'<section class="clause"><h4>{html(reason_title(reason, self._book, self._language))}'
                f"<small>+{reason.points} {html(self._say('points'))}</small></h4>"
            )
            for finding in quotes:
                yield self._quote(finding)
            rest = review.occurrences[reason.id] - len(quotes)
            more = f" {self._say('more', count=rest)}" if rest > 0 else ""
            yield f'<p class="advice">{html(rule.advice.in_language(self._language) + more)}</p>'
            yield "</section>"
        if len(rules) > MAX_CLAUSES:
            text = self._say("more_clauses", count=len(rules) - MAX_CLAUSES)
            yield f'<p class="advice">{html(text)}</p>'

    def _quote(self, finding: Finding) -> str:
        place = [finding.section] if finding.section else []
        place.append(f"{self._say('characters')} {finding.start:,}–{finding.end:,}")
        place += [f"{self._say(f'fact_{fact.kind}')}: {fact.value}" for fact in finding.facts]
        return (
            f'<blockquote dir="auto">{_marked(finding)}'
            f"<footer>{html(' · '.join(place))}</footer></blockquote>"
        )


def reason_title(reason: Reason, book: RuleBook, language: str) -> str:
    """Return a reason in words."""
    if reason.kind == "family":
        return book.families[reason.id].title.in_language(language)
    if reason.kind == "missing":
        items = (item for kind in book.expected.values() for item in kind)
        return next(item.in_language(language) for item in items if item.any_of[0] == reason.id)
    rule = book.rules[reason.id]
    title = rule.title.in_language(language)
    names = [
        modifier.title.in_language(language)
        for modifier in rule.modifiers
        if modifier.id in reason.modifiers
    ]
    return f"{title} ({', '.join(names)})" if names else title


def _marked(finding: Finding) -> str:
    """Return the quote as HTML with the words that made the rule fire marked."""
    quote = finding.quote
    start, end = finding.marks[0] if finding.marks else (0, 0)
    head = tail = ""
    if len(quote) > MAX_QUOTE_SHOWN:
        begin = max(0, min(start - 60, len(quote) - MAX_QUOTE_SHOWN))
        stop = min(len(quote), begin + MAX_QUOTE_SHOWN)
        head, tail = ("…" if begin else ""), ("…" if stop < len(quote) else "")
        quote, start, end = quote[begin:stop], start - begin, min(end, stop) - begin
    before, inside, after = quote[:start], quote[start:end], quote[end:]
    marked = f"<mark>{html(inside)}</mark>" if inside else ""
    return f"{head}{html(before)}{marked}{html(after)}{tail}"
