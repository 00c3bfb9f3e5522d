"""Tags and filters of the pages: icons, pills, times, sizes, and text nobody can abuse.

Everything that came from a person, a document or a model passes `visible`, which escapes it and
shows characters that would otherwise hide or reorder what is read (U29).
"""

import json
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from django import template
from django.db.models import Model
from django.db.models.options import Options
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from tasks_app.templatetags import words

register = template.Library()

_INVISIBLE = frozenset("\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u3164\ufeff\uffa0")


@register.simple_tag
def icon(name: str, tone: str = "") -> SafeString:
    """Return one icon of the sprite as decoration; the words beside it carry the meaning."""
    return format_html(
        '<svg class="i{}" aria-hidden="true"><use href="{}#{}"/></svg>',
        f" c-{tone}" if tone else "",
        static("rt/icons.svg"),
        name,
    )


@register.simple_tag
def pill(kind: str, value: str, *, cancelling: bool = False) -> SafeString:
    """Return a state as icon, word and colour; `kind` names the vocabulary."""
    look = words.CANCELLING if cancelling else words.look(kind, str(value))
    return format_html('<span class="pill t-{}">{}{}</span>', look.tone, icon(look.icon), look.word)


@register.filter
def rt_changelist(options: "Options[Model]") -> str:
    """Return the route of a model's admin list."""
    return f"admin:{options.app_label}_{options.model_name}_changelist"


@register.filter
def word(value: str, kind: str) -> str:
    """Return the word for a state without its pill."""
    return str(words.look(kind, str(value)).word)


@register.filter
def tone(value: str, kind: str) -> str:
    """Return the colour family of a state."""
    return words.look(kind, str(value)).tone


@register.filter
def code_word(value: str, kind: str) -> str:
    """Return the word for a code of a table."""
    return words.code(kind, str(value))


@register.filter
def translated(value: str) -> str:
    """Return a text that a workflow declares, in the reader's language if that is known."""
    return _(value) if value else ""


@register.filter
def step_kind(value: str) -> str:
    """Return what a kind of step does."""
    return str(words.STEP_KINDS.get(value, value))


@register.filter
def command_word(value: str) -> str:
    """Return the word for a type of steering command."""
    return str(words.COMMANDS.get(value, value))


@register.filter
def budget_word(value: str) -> str:
    """Return the word for a kind of budget."""
    return str(words.BUDGETS.get(value, value))


@register.filter
def budget_amount(value: int, kind: str) -> str:
    """Return an amount of a kind of budget as people read it."""
    if kind == "active_seconds":
        return duration(value)
    return money(value) if kind == "money_micros" else number(value)


@register.simple_tag
def event_icon(event_type: str) -> SafeString:
    """Return the icon of an event's type."""
    look = words.look("event", event_type)
    return icon(look.icon, look.tone)


@register.simple_tag
def event_text(event_type: str, data: Mapping[str, Any]) -> SafeString:
    """Return an event's facts as one line: what matters first, then names and values."""
    facts = dict(data)
    parts = _LEADS.get(event_type, _log_lead)(facts)
    rest = [
        f"{words.fact(key).lower()} {_fact(value)}"
        for key, value in facts.items()
        if value not in (None, "", {})
    ]
    return visible(" · ".join(part for part in [*parts, *rest] if part)[:600])


def _log_lead(facts: dict[str, Any]) -> list[str]:
    extra = facts.pop("facts", None) or {}
    facts.update(extra if isinstance(extra, dict) else {})
    facts.pop("trace", None)
    return [str(facts.pop("message", ""))]


def _status_lead(facts: dict[str, Any]) -> list[str]:
    source = word(facts.pop("source", ""), "task")
    target = word(facts.pop("target", ""), "task")
    return [f"{source} → {target}", str(facts.pop("reason", ""))]


def _progress_lead(facts: dict[str, Any]) -> list[str]:
    share = facts.pop("progress", None)
    phase = translated(str(facts.pop("phase", "")))
    return [percent(share) if isinstance(share, int | float) else "", phase]


def _artifact_lead(facts: dict[str, Any]) -> list[str]:
    for name in ("uri", "sha256"):
        facts.pop(name, None)
    amount = facts.pop("sizeBytes", None)
    media_type = media(str(facts.pop("mediaType", "")))
    return [str(facts.pop("name", "")), size(amount) if amount is not None else "", media_type]


def _message_lead(facts: dict[str, Any]) -> list[str]:
    facts.pop("id", None)
    content = facts.pop("content", "")
    sender = str(facts.pop("name", "") or facts.pop("type", ""))
    facts.pop("type", None)
    return [sender, content if isinstance(content, str) else _fact(content)]


def _command_lead(facts: dict[str, Any]) -> list[str]:
    facts.pop("commandId", None)
    command = command_word(str(facts.pop("command", "")))
    outcome = word(facts.pop("outcome", ""), "command")
    return [command, outcome]


def _waiting_lead(facts: dict[str, Any]) -> list[str]:
    reason = str(facts.pop("reason", ""))
    if facts.pop("approvalId", None) and reason.startswith("approve "):
        reason = _("approve %(tool)s") % {"tool": reason.removeprefix("approve ")}
    return [reason]


def _budget_lead(facts: dict[str, Any]) -> list[str]:
    kind = str(facts.pop("kind", ""))
    spent, limit = (budget_amount(facts.pop(name, 0), kind) for name in ("spent", "limit"))
    share = f"{facts.pop('percent', '')} %"
    return [
        f"{budget_word(kind)} {share}",
        _("%(spent)s of %(limit)s") % {"spent": spent, "limit": limit},
    ]


def _child_lead(facts: dict[str, Any]) -> list[str]:
    lead = [str(facts.get(name, "")) for name in ("workflow", "status", "message")]
    facts.clear()
    return lead


def _delivery_lead(facts: dict[str, Any]) -> list[str]:
    paths, outcome = facts.get("paths", []), word(facts.get("outcome", ""), "task")
    facts.clear()
    return [outcome, ", ".join(map(str, paths))]


def _end_lead(facts: dict[str, Any]) -> list[str]:
    facts.pop("receiptId", None)
    return [word(facts.pop("status", ""), "task")]


_LEADS: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "status": _status_lead,
    "progress": _progress_lead,
    "log": _log_lead,
    "artifact": _artifact_lead,
    "message": _message_lead,
    "values": lambda facts: [_fact(facts.pop("values", {}))],
    "checkpoint": lambda facts: [f"#{facts.pop('checkpoint', '')}"],
    "steering.applied": _command_lead,
    "budget": _budget_lead,
    "input_required": _waiting_lead,
    "task.snapshot": lambda facts: [str(facts.pop("reason", ""))],
    "child": _child_lead,
    "delivery": _delivery_lead,
    "terminal": _end_lead,
}


def _fact(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


@register.simple_tag
def ago(moment: datetime | None) -> SafeString:
    """Return a time that the browser keeps relative; without scripts it stays absolute."""
    if moment is None:
        return mark_safe("–")
    utc = moment.astimezone(UTC)
    return format_html(
        '<time datetime="{}" data-ago title="{} UTC">{}</time>',
        utc.isoformat(timespec="seconds").replace("+00:00", "Z"),
        utc.strftime("%Y-%m-%d %H:%M:%S"),
        timezone.localtime(moment).strftime("%Y-%m-%d %H:%M"),
    )


@register.filter
def duration(value: float | None) -> str:
    """Return seconds as people say them: `1 h 04 m`, `12 s`, `0.8 s`."""
    if value is None:
        return "–"
    seconds = float(value)
    if seconds < 10:
        return _("%(seconds)s s") % {"seconds": f"{seconds:.1f}"}
    if seconds < 60:
        return _("%(seconds)s s") % {"seconds": f"{seconds:.0f}"}
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return _("%(minutes)d m %(seconds)02d s") % {"minutes": minutes, "seconds": rest}
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return _("%(hours)d h %(minutes)02d m") % {"hours": hours, "minutes": minutes}
    return ngettext("%(days)d day", "%(days)d days", hours // 24) % {"days": hours // 24}


@register.filter
def size(value: int | None) -> str:
    """Return bytes as a person reads them."""
    if value is None:
        return "–"
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


@register.filter
def percent(value: float | None) -> str:
    """Return a share from 0 to 1 as a whole percentage; 100 only when it is complete."""
    if value is None:
        return ""
    return f"{min(int(value * 100 + 1e-9), 100)} %"


@register.filter
def money(micros: int | None, currency: str = "USD") -> str:
    """Return millionths of a currency unit as an amount."""
    return "–" if micros is None else f"{micros / 1_000_000:,.2f} {currency}"


@register.filter
def media(value: str) -> str:
    """Return a media type without its parameters."""
    return value.partition(";")[0]


@register.filter
def short(value: object) -> str:
    """Return the first eight characters of an id or digest."""
    return str(value)[:8]


@register.filter
def first(value: object, count: int) -> str:
    """Return the first characters of a digest."""
    return str(value)[:count]


@register.filter
def number(value: float | None) -> str:
    """Return a number with separators."""
    return "–" if value is None else f"{value:,}"


@register.filter
def visible(value: object) -> SafeString:
    """Return untrusted text as text: escaped, with hidden and reordering characters shown."""
    parts = (
        format_html('<span class="odd" title="{}">U+{}</span>', _("invisible"), f"{ord(char):04X}")
        if odd
        else conditional_escape(char)
        for char, odd in _runs(str(value))
    )
    return mark_safe("".join(parts))  # noqa: S308 - every part is escaped above


@register.filter
def plain(value: object) -> str:
    """Return untrusted text for places that hold no markup, hidden characters replaced."""
    return "".join("\ufffd" if is_odd(char) else char for char in str(value))


@register.filter
def pretty(value: object) -> SafeString:
    """Return JSON for reading, with the rules of `visible`."""
    if isinstance(value, str):
        return visible(value)
    return visible(json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True, default=str))


@register.filter
def readable(value: object) -> SafeString:
    """Return a value of a goal for reading: short lists in one line, empty ones as a word."""
    if value in (None, "", [], {}):
        return format_html('<span class="mut">{}</span>', _("none"))
    if isinstance(value, bool):
        return visible(_("yes") if value else _("no"))
    if isinstance(value, list) and all(isinstance(item, str | int | float) for item in value):
        return visible(", ".join(str(item) for item in value))
    return pretty(value)


@register.filter
def has_odd(value: object) -> bool:
    """Tell whether text holds hidden characters or mixes look-alike scripts (S65)."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return any(odd for _char, odd in _runs(text)) or _mixes_scripts(text)


def is_odd(char: str) -> bool:
    """Tell whether a character hides, reorders or draws nothing."""
    if char in "\n\t\r":
        return False
    return char in _INVISIBLE or unicodedata.category(char) in {"Cc", "Cf", "Co", "Cs"}


def _runs(text: str) -> Iterator[tuple[str, bool]]:
    """Yield runs of ordinary text and single odd characters."""
    start = 0
    for index, char in enumerate(text):
        if not is_odd(char):
            continue
        if start < index:
            yield text[start:index], False
        yield char, True
        start = index + 1
    if start < len(text):
        yield text[start:], False


def _mixes_scripts(text: str) -> bool:
    """Tell whether one word mixes Latin with Cyrillic or Greek letters."""
    return any(
        "LATIN" in (scripts := {unicodedata.name(c, "").split(" ")[0] for c in part if c.isalpha()})
        and scripts & {"CYRILLIC", "GREEK"}
        for part in text.split()
        if not part.isascii()
    )
