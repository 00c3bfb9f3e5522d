"""The one reader of JSON that people and programs send: what databases and hashes cannot read is refused.

Depth is counted before the text is parsed and everything after it without recursion (security S124).
"""

import json
import math
import re
from collections.abc import Sequence
from typing import Any, NoReturn

MAX_DEPTH = 32
MAX_NODES = 50_000
MAX_STRING_BYTES = 262_144
MAX_INTEGER = 2**53 - 1

# Strings first, so that brackets inside them do not count. A quote that opens no whole string ends
# the scan at once, so that hostile text costs no more than its length.
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*+"|"|[\[\]{}]', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


class JsonTextError(ValueError):
    """Text that is no JSON within the limits; `pointer` leads to what is refused, if one can."""

    def __init__(self, detail: str, pointer: str = "") -> None:
        super().__init__(detail)
        self.detail = detail
        self.pointer = pointer


def loads(text: str) -> Any:
    """Return the value of JSON text that keeps to the limits. Raises: JsonTextError."""
    _check_depth(text)
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_no_constant,
            parse_float=_number,
            parse_int=_integer,
        )
    except json.JSONDecodeError as error:
        _refuse(str(error))
    _check_values(value)
    return value


def escaped(key: str) -> str:
    """Return a key as one token of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def _check_depth(text: str) -> None:
    depth = 0
    for match in _TOKENS.finditer(text):
        mark = match[0]
        if mark == '"':
            _refuse("A string without an end.")
        elif mark in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                _refuse(f"Nested deeper than {MAX_DEPTH}.")
        elif mark in "]}":
            depth -= 1


def _check_values(value: object) -> None:
    pending: list[tuple[object, str]] = [(value, "")]
    nodes = 0
    while pending:
        item, pointer = pending.pop()
        nodes += 1
        if nodes > MAX_NODES:
            _refuse(f"More than {MAX_NODES} values.")
        if isinstance(item, str):
            _check_text(item, pointer)
        elif isinstance(item, dict):
            for key, child in item.items():
                _check_text(key, pointer)
                pending.append((child, f"{pointer}/{escaped(key)}"))
        elif isinstance(item, list):
            pending.extend((child, f"{pointer}/{index}") for index, child in enumerate(item))


def _check_text(text: str, pointer: str) -> None:
    if "\x00" in text:
        _refuse("Text with U+0000.", pointer)
    if not text.isascii() and _SURROGATE.search(text):
        _refuse("Text with a lone surrogate.", pointer)
    if len(text) > MAX_STRING_BYTES or len(text.encode()) > MAX_STRING_BYTES:
        _refuse(f"A string of more than {MAX_STRING_BYTES} bytes.", pointer)


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        _refuse("The same key twice in one object.")
    return value


def _no_constant(name: str) -> NoReturn:
    _refuse(f"{name} is not JSON.")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        _refuse("A number that is too large.")
    return value


def _integer(text: str) -> int:
    if len(text) > 17 or abs(int(text)) > MAX_INTEGER:
        _refuse("An integer beyond ±(2^53-1); send it as text.")
    return int(text)


def _refuse(detail: str, pointer: str = "") -> NoReturn:
    raise JsonTextError(detail, pointer)
