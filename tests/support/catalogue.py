"""Reads a .po file without GNU gettext: enough for the catalogues of this project."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FIELD = re.compile(
    r'^(msgctxt|msgid_plural|msgid|msgstr(?:\[\d\])?) ((?:"(?:[^"\\]|\\.)*"\n?)+)', re.MULTILINE
)
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')


@dataclass(frozen=True)
class Entry:
    """One message with its translations; a message without plural has one."""

    context: str
    text: str
    plural: str
    translations: tuple[str, ...]
    fuzzy: bool

    @property
    def key(self) -> str:
        """Return the key under which a compiled catalogue holds the message."""
        return f"{self.context}\x04{self.text}" if self.context else self.text


def read_po(path: Path) -> list[Entry]:
    """Return the entries of a catalogue, its header left out."""
    return [entry for entry in _entries(path.read_text(encoding="utf-8")) if entry.text]


def _entries(text: str) -> Iterator[Entry]:
    for block in text.split("\n\n"):
        fields = {name: _joined(quoted) for name, quoted in _FIELD.findall(block)}
        if "msgid" not in fields:
            continue
        yield Entry(
            context=fields.get("msgctxt", ""),
            text=fields["msgid"],
            plural=fields.get("msgid_plural", ""),
            translations=tuple(v for k, v in fields.items() if k.startswith("msgstr")),
            fuzzy=bool(re.search(r"^#,.*\bfuzzy\b", block, re.MULTILINE)),
        )


def _joined(quoted: str) -> str:
    return "".join(ast.literal_eval(part) for part in _QUOTED.findall(quoted))
