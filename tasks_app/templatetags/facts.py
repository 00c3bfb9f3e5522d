"""Stored JSON as people read it: facts by name, lists of alike things as tables.

For overviews only. Where somebody decides on exact values, `pretty` shows them as they are.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from tasks_app.templatetags import words
from tasks_app.templatetags.dashboard import number, pretty, readable, size, visible

register = template.Library()

_DIGEST = re.compile(r"[0-9a-f]{64}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MAX_ROWS = 100
_MAX_COLUMNS = 8
# Facts whose values are a few known codes.
_WORDED = ("level", "kind")


@register.simple_tag
def facts(value: object, label: str = "") -> SafeString:
    """Return a value for reading; `label` names the region of a table."""
    if isinstance(value, Mapping) and value:
        return _named(value)
    if isinstance(value, list) and _is_table(value):
        return _table(value, label)
    return _exact(value)


def _named(value: Mapping[str, Any]) -> SafeString:
    """Return a definition list: single values first, larger parts after them."""
    ordered = sorted(value.items(), key=lambda item: isinstance(item[1], dict | list))
    return format_html(
        '<dl class="kv">{}</dl>',
        format_html_join(
            "",
            '<dt>{}</dt><dd dir="auto">{}</dd>',
            ((visible(words.fact(key)), _part(key, part)) for key, part in ordered),
        ),
    )


def _part(key: str, part: object) -> SafeString:
    if isinstance(part, Mapping) and part and all(_is_single(item) for item in part.values()):
        pairs = ((visible(words.fact(name)), _single(name, item)) for name, item in part.items())
        return format_html_join(", ", "{} {}", pairs)
    if isinstance(part, list) and _is_table(part):
        return _table(part, words.fact(key))
    return _single(key, part) if _is_single(part) else _exact(part)


def _table(rows: Sequence[Mapping[str, Any]], label: str) -> SafeString:
    columns = list(dict.fromkeys(key for row in rows[:_MAX_ROWS] for key in row))
    head = format_html_join(
        "", '<th scope="col">{}</th>', ((visible(words.fact(c)),) for c in columns)
    )
    body = format_html_join(
        "",
        "<tr>{}</tr>",
        (
            (format_html_join("", '<td dir="auto">{}</td>', ((_cell(c, row),) for c in columns)),)
            for row in rows[:_MAX_ROWS]
        ),
    )
    more = len(rows) - _MAX_ROWS
    note = visible(_("and %(n)d more") % {"n": more}) if more > 0 else ""
    return format_html(
        '<div class="scroll" role="region" tabindex="0" aria-label="{}">'
        "<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>{}",
        label or _("Table"), head, body, note,
    )  # fmt: skip


def _cell(column: str, row: Mapping[str, Any]) -> SafeString:
    return _single(column, row.get(column))


def _single(key: str, value: object) -> SafeString:
    """Return one value: sizes in units, ids and digests short with the whole in the tooltip."""
    if isinstance(value, int) and not isinstance(value, bool):
        return visible(size(value) if key.endswith("_bytes") else number(value))
    if isinstance(value, str) and (_DIGEST.fullmatch(value) or _UUID.fullmatch(value)):
        shown = value[:12] if len(value) == 64 else value[:8]
        return format_html('<code title="{}">{}</code>', value, shown)
    worded = isinstance(value, str) and key in _WORDED
    return readable(words.code(key, str(value)) if worded else value)


def _exact(value: object) -> SafeString:
    if isinstance(value, Mapping | list) and value:
        return format_html('<pre tabindex="0">{}</pre>', pretty(value))
    return readable(value)


def _is_single(value: object) -> bool:
    return value is None or isinstance(value, str | int | float)


def _is_table(value: Sequence[Any]) -> bool:
    return (
        len(value) > 0
        and all(isinstance(row, Mapping) for row in value)
        and all(_is_single(cell) for row in value for cell in row.values())
        and len({key for row in value[:_MAX_ROWS] for key in row}) <= _MAX_COLUMNS
    )
