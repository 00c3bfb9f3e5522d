"""The text form of API keys: made, parsed and hashed here; nothing is looked up.

`rtk_<live|test>_<key_id>_<secret>_<check>`: key_id 8 hexadecimal digits, secret 43 URL-safe
characters (256 bit), check the CRC-32 of all before it in 6 characters. The check finds typing
errors and lets secret scanners tell keys from noise; it protects nothing.
"""

import hashlib
import re
import secrets
import zlib
from dataclasses import dataclass

_FORM = re.compile(
    r"(?P<body>rtk_(?P<environment>live|test)_(?P<key_id>[0-9a-f]{8})_[A-Za-z0-9_-]{43})"
    r"_(?P<check>[0-9A-Za-z]{6})"
)
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class KeyText:
    """A key as its holder has it, with what is stored of it. Never log or store `text`."""

    environment: str
    key_id: str
    digest: bytes
    text: str


def make_key_text(environment: str) -> KeyText:
    """Return a new random key for `live` or `test`."""
    key_id = secrets.token_hex(4)
    body = f"rtk_{environment}_{key_id}_{secrets.token_urlsafe(32)}"
    text = f"{body}_{_check_of(body)}"
    return KeyText(environment, key_id, digest_of_key(text), text)


def is_key_like(text: str) -> bool:
    """Tell whether a credential is meant to be a key of ours, well-formed or not."""
    return text.startswith("rtk_")


def parse_key_text(text: str) -> KeyText | None:
    """Return the parts of a well-formed key, or None."""
    match = _FORM.fullmatch(text)
    if match is None or match["check"] != _check_of(match["body"]):
        return None
    return KeyText(match["environment"], match["key_id"], digest_of_key(text), text)


def find_key_text(text: str) -> KeyText | None:
    """Return the first well-formed key inside a longer text, or None."""
    for match in _FORM.finditer(text):
        found = parse_key_text(match[0])
        if found is not None:
            return found
    return None


def digest_of_key(text: str) -> bytes:
    """Return what is stored of a key: 256 random bits need no slow hash (S3)."""
    return hashlib.sha256(text.encode()).digest()


def _check_of(body: str) -> str:
    number = zlib.crc32(body.encode())
    digits = []
    for _ in range(6):
        number, digit = divmod(number, 62)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
