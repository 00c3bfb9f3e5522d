"""Text from documents made safe to show: nothing hidden, nothing that acts.

Control, direction and invisible characters are shown by their code, HTML is escaped, and a cell
that a spreadsheet would calculate is made plain text.
"""

from __future__ import annotations

import re
from html import escape

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_FORMULA_START = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", "|", "%")


def plain(text: str) -> str:
    """Return `text` on one line with every hidden character written out, e.g. ``[U+202E]``."""
    return _HIDDEN.sub(_code, text.replace("\n", " ").replace("\t", " "))


def html(text: str) -> str:
    """Return `text` as HTML text; hidden characters stand in a marked box."""
    escaped = escape(text.replace("\n", " ").replace("\t", " "), quote=True)
    return _HIDDEN.sub(lambda match: f'<span class="code">U+{ord(match[0]):04X}</span>', escaped)


def markup_text(text: str) -> str:
    """Return `text` for SVG and for attributes, where no element may stand: codes in brackets."""
    return escape(plain(text), quote=True)


def cell(value: object) -> str:
    """Return a value as a spreadsheet cell that is never read as a formula."""
    text = plain(str(value))
    if isinstance(value, str) and text.lstrip(" ").startswith(_FORMULA_START):
        return f"'{text}"
    return text


def _code(match: re.Match[str]) -> str:
    return f"[U+{ord(match[0]):04X}]"
