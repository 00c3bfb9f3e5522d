"""One JSON form and one hash: RFC 8785 (JCS) text and SHA-256.

`json.dumps(sort_keys=True)` is not this form: it orders keys by code point and spells numbers its
own way. Everything that is hashed, signed or compared in the ledger goes through here.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping

import rfc8785

from ledger_app.domain.errors import NotCanonicalError

MAX_DEPTH = 64
MAX_INTEGER = 2**53 - 1
# From here on RFC 8785 spells a number with an exponent.
_EXPONENT_FROM = 1e21

_encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode


def canonical_bytes(value: object) -> bytes:
    """Return the RFC 8785 form of a JSON value as UTF-8.

    Mappings with text keys, lists, tuples, text, booleans, None, integers within ±(2^53-1) and
    finite floats have one; larger numbers travel as text. A float between 2^53 and 1e21 is refused
    too: it would be spelled as an integer that no reader could hash again.

    Raises:
        NotCanonicalError: anything else, nested deeper than MAX_DEPTH, or text with a lone
            surrogate; `pointer` names the place.
    """
    try:
        return _dump(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError) as error:
        check(value)
        raise NotCanonicalError(str(error)) from error


def canonical_text(value: object) -> str:
    """Return the RFC 8785 form of a JSON value as text."""
    return canonical_bytes(value).decode()


def digest_of(value: object) -> str:
    """Return the SHA-256 of the canonical form, as 64 lower-case hexadecimal digits."""
    return sha256_hex(canonical_bytes(value))


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 of bytes, as 64 lower-case hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def storable_text(value: object) -> str:
    """Return canonical text that a jsonb column takes: U+0000 is refused, which jsonb cannot hold.

    Raises:
        NotCanonicalError: no canonical form, or a NUL character in a string or key.
    """
    text = canonical_text(value)
    if "\\u0000" in text:
        check(value, allow_nul=False)
    return text


def cleaned(value: object) -> object:
    """Return the nearest value that has a canonical form and that jsonb takes.

    For text that people read and that must never fail to be written: audit details and errors of
    tools. Other types, large integers and numbers that are not finite become text; lone
    surrogates and U+0000 become U+FFFD; what is nested too deep becomes "[too deep]".
    """
    return _cleaned(value, 0)


def clean_text(text: str) -> str:
    """Return text that every column takes: lone surrogates and U+0000 become U+FFFD."""
    text = str(text).replace("\x00", "\ufffd")
    if text.isascii():
        return text
    return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)


def check(value: object, *, allow_nul: bool = True) -> None:
    """Name the first place of a value that has no canonical form.

    Works without recursion, so that a hostile depth cannot exhaust the stack.

    Raises:
        NotCanonicalError: with a JSON pointer to the place.
    """
    pending: list[tuple[object, str, int]] = [(value, "", 0)]
    while pending:
        item, pointer, depth = pending.pop()
        if depth > MAX_DEPTH and isinstance(item, dict | list | tuple):
            raise NotCanonicalError(f"nested deeper than {MAX_DEPTH}", pointer=pointer[:200])
        match item:
            case dict():
                for key, child in reversed(item.items()):
                    _check_key(key, pointer, allow_nul=allow_nul)
                    pending.append((child, f"{pointer}/{_escaped(key)}", depth + 1))
            case list() | tuple():
                pending.extend(
                    (item[index], f"{pointer}/{index}", depth + 1)
                    for index in range(len(item) - 1, -1, -1)
                )
            case _:
                _check_scalar(item, pointer, allow_nul=allow_nul)


def check_kept(value: object) -> None:
    """Name the first place of JSON data that `cleaned` would not keep: not finite, or too deep.

    Raises:
        NotCanonicalError: with a JSON pointer to the place.
    """
    pending: list[tuple[object, str, int]] = [(value, "", 0)]
    while pending:
        item, pointer, depth = pending.pop()
        match item:
            case dict() | list() | tuple() if depth >= MAX_DEPTH:
                raise NotCanonicalError(f"nested deeper than {MAX_DEPTH}", pointer=pointer[:200])
            case dict():
                pending += [(v, f"{pointer}/{_escaped(k)}", depth + 1) for k, v in item.items()]
            case list() | tuple():
                pending += [(v, f"{pointer}/{i}", depth + 1) for i, v in enumerate(item)]
            case float() if not math.isfinite(item):
                raise NotCanonicalError("number that is not finite", pointer=pointer)


def _cleaned(value: object, depth: int) -> object:
    match value:
        case None | bool():
            return value
        case str():
            return clean_text(value)
        case int():
            return int(value) if abs(value) <= MAX_INTEGER else str(value)
        case float():
            return value if _is_fit(value) else str(value)
        case Mapping() | list() | tuple() | set() | frozenset() if depth >= MAX_DEPTH:
            return "[too deep]"
        case Mapping():
            return {clean_text(str(k)): _cleaned(v, depth + 1) for k, v in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_cleaned(child, depth + 1) for child in value]
        case bytes() | bytearray():
            return f"[{len(value)} bytes]"
        case _:
            return clean_text(str(value))


def _dump(value: object) -> bytes:
    plain = dict(value) if isinstance(value, Mapping) and not isinstance(value, dict) else value
    if isinstance(plain, dict | list | tuple):
        if _check_levels(plain):
            # Nothing here is spelled in two ways, so the fast encoder of the standard library does.
            return _encode(plain).encode()
    elif isinstance(plain, float) and not _is_fit(plain):
        check(plain)
    return rfc8785.dumps(plain)  # type: ignore[arg-type]


def _check_levels(value: object) -> bool:
    """Refuse depth and unfit floats in one fast pass, level by level.

    Returns:
        Whether the plain JSON text with sorted keys is the canonical form: keys in ASCII, whose
        order is the same in every encoding, and text, small integers, booleans and None alone.
    """
    level: list[object] = [value]
    is_plain = True
    for _ in range(MAX_DEPTH + 1):
        deeper: list[object] = []
        for item in level:
            if isinstance(item, dict):
                is_plain = is_plain and _are_ascii(item)
                children: Iterable[object] = item.values()
            else:
                children = item  # type: ignore[assignment]
            for child in children:
                kind = type(child)
                if kind is str or child is None or kind is bool:
                    continue
                if isinstance(child, dict | list | tuple):
                    deeper.append(child)
                elif isinstance(child, float) and not _is_fit(child):
                    check(value)
                is_plain = is_plain and _is_plain_kind(child)
        if not deeper:
            return is_plain
        level = deeper
    check(value)
    return False


def _are_ascii(keys: Iterable[object]) -> bool:
    try:
        return "".join(keys).isascii()  # type: ignore[arg-type]
    except TypeError:
        # A key that is no text: refused by whoever encodes it.
        return False


def _is_plain_kind(child: object) -> bool:
    kind = type(child)
    if kind is int:
        return -MAX_INTEGER <= child <= MAX_INTEGER  # type: ignore[operator]
    return kind is dict or kind is list or kind is tuple


def _is_fit(number: float) -> bool:
    size = abs(number)
    return math.isfinite(number) and (size <= MAX_INTEGER or size >= _EXPONENT_FROM)


def _check_key(key: object, pointer: str, *, allow_nul: bool) -> None:
    if not isinstance(key, str):
        raise NotCanonicalError(f"key of type {type(key).__name__}, not text", pointer=pointer)
    _check_text(key, pointer, allow_nul=allow_nul)


def _check_scalar(item: object, pointer: str, *, allow_nul: bool) -> None:
    match item:
        case None | bool():
            return
        case str():
            _check_text(item, pointer, allow_nul=allow_nul)
        case int():
            if abs(item) > MAX_INTEGER:
                raise NotCanonicalError(
                    "integer beyond ±(2^53-1); send it as text", pointer=pointer
                )
        case float():
            if not math.isfinite(item):
                raise NotCanonicalError("number that is not finite", pointer=pointer)
            if not _is_fit(item):
                raise NotCanonicalError("whole number beyond ±(2^53-1)", pointer=pointer)
        case _:
            kind = type(item).__name__
            raise NotCanonicalError(f"value of type {kind} is not JSON", pointer=pointer)


def _check_text(text: str, pointer: str, *, allow_nul: bool) -> None:
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise NotCanonicalError("text with a lone surrogate", pointer=pointer)
    if not allow_nul and "\x00" in text:
        raise NotCanonicalError("text with U+0000", pointer=pointer)


def _escaped(key: object) -> str:
    return str(key).replace("~", "~0").replace("/", "~1")
