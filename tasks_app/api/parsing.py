"""The one JSON parser of REST: what PostgreSQL, hashes and people cannot read never gets in (S124).

Depth is counted before the text is parsed and everything after it without recursion.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import IO, Any, NoReturn

from rest_framework.exceptions import UnsupportedMediaType
from rest_framework.parsers import BaseParser
from typing_extensions import override

from tasks_app.api.errors import HttpFaultError
from tasks_app.domain.errors import FieldProblem
from tasks_app.policy.reserved import escaped

MAX_BYTES = 1_048_576
MAX_DEPTH = 32
MAX_NODES = 50_000
MAX_STRING_BYTES = 262_144
MAX_INTEGER = 2**53 - 1

# Strings first, so that brackets inside them do not count. A quote that opens no whole string ends
# the scan at once, so that hostile text costs no more than its length.
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*+"|"|[\[\]{}]', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


class StrictJSONParser(BaseParser):
    """Parses `application/json` and keeps the raw text out of everything else."""

    media_type = "application/json"

    @override
    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the value of the body.

        Raises:
            HttpFaultError: `payload_too_large`, `invalid_json`, or what the view's `inspect` says.
        """
        request = (parser_context or {}).get("request")
        encoding = request.META.get("HTTP_CONTENT_ENCODING", "") if request else ""
        if encoding.lower() not in {"", "identity"}:
            raise UnsupportedMediaType(encoding, "Bodies are taken without Content-Encoding.")
        data = read_limited(stream, request.META.get("CONTENT_LENGTH") if request else None)
        charset = re.search(r"charset\s*=\s*\"?([^\s;\"]+)", media_type or "", re.IGNORECASE)
        if charset and charset[1].lower() not in {"utf-8", "utf8"}:
            refuse("JSON is UTF-8.")
        view = (parser_context or {}).get("view")
        if view is not None and hasattr(view, "inspect_body"):
            view.inspect_body(data)
        return loads(data)


def read_limited(stream: IO[bytes], length: str | None) -> bytes:
    """Return the whole body, or refuse as soon as it is too large."""
    announced = int(length) if length and length.isdigit() else 0
    data = b"" if announced > MAX_BYTES else stream.read(MAX_BYTES + 1)
    if announced > MAX_BYTES or len(data) > MAX_BYTES:
        raise HttpFaultError("payload_too_large", f"At most {MAX_BYTES} bytes.")
    return data


def loads(data: bytes) -> Any:
    """Return the value of UTF-8 JSON text that keeps to the limits.

    Raises:
        HttpFaultError: `invalid_json`, with a pointer where one can be named.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        refuse("The body is not UTF-8.")
    _check_depth(text)
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_no_constant,
            parse_float=_number,
            parse_int=_integer,
        )
    except (ValueError, RecursionError):
        refuse("The body is not JSON.")
    _check_values(value)
    return value


def _check_depth(text: str) -> None:
    depth = 0
    for match in _TOKENS.finditer(text):
        mark = match[0]
        if mark == '"':
            refuse("The body is not JSON.")
        elif mark in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                refuse(f"Nested deeper than {MAX_DEPTH}.")
        elif mark in "]}":
            depth -= 1


def _check_values(value: object) -> None:
    pending: list[tuple[object, str]] = [(value, "")]
    nodes = 0
    while pending:
        item, pointer = pending.pop()
        nodes += 1
        if nodes > MAX_NODES:
            refuse(f"More than {MAX_NODES} values.")
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
        refuse("Text with U+0000.", pointer)
    if not text.isascii() and _SURROGATE.search(text):
        refuse("Text with a lone surrogate.", pointer)
    if len(text) > MAX_STRING_BYTES or len(text.encode()) > MAX_STRING_BYTES:
        refuse(f"A string of more than {MAX_STRING_BYTES} bytes.", pointer)


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        refuse("The same key twice in one object.")
    return value


def _no_constant(name: str) -> NoReturn:
    refuse(f"{name} is not JSON.")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        refuse("A number that is too large.")
    return value


def _integer(text: str) -> int:
    if len(text) > 17 or abs(int(text)) > MAX_INTEGER:
        refuse("An integer beyond ±(2^53-1); send it as text.")
    return int(text)


def refuse(detail: str, pointer: str = "") -> NoReturn:
    """Refuse the body."""
    errors = (FieldProblem(pointer, "invalid_json", detail),) if pointer else ()
    raise HttpFaultError("invalid_json", detail, errors)
