"""What never enters the ledger: values behind tell-tale key names, and keys of our own form.

The minimal barrier in front of audit details and effect requests. It works on structures, before
anything is stored; applying it twice changes nothing.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

MARK = "[redacted]"
MAX_DEPTH = 64

# Compared with the key in lower case, without anything but letters and digits.
_TELLING = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "apikey",
    "authorization",
    "cookie",
    "privatekey",
    "credential",
    "sessionid",
    "sessionkey",
    "accesskey",
    "clientassertion",
)
_TOKEN = re.compile(r"token(?!s$|count|usage|limit|budget)")
_WORDS = frozenset({"pwd", "auth", "bearer", "jwt", "csrf", "session", "otp", "pin"})
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_LOOKS_SECRET = re.compile(
    r"\brtk_(?:live|test)_[0-9a-f]{8}_[A-Za-z0-9_-]{20,64}"
    r"|\b(?:Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{8,4096}"
    r"|\beyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{8,8192}\.[A-Za-z0-9_-]{0,2048}"
    r"|-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[^-]{0,16384}(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?"
    r"|(?<=://)[^\s/@:]{1,200}:[^\s/@]{1,200}(?=@)"
)


def redact(value: object) -> object:
    """Return the same structure with telling values replaced by a mark.

    A value under a telling key goes as a whole, whatever its type; numbers and booleans under a
    key such as `max_tokens` stay. Text is searched for API keys, bearer headers, JSON web tokens,
    private keys and passwords in addresses.
    """
    return _redact(value, 0)


@lru_cache(maxsize=4096)
def is_telling(key: str) -> bool:
    """Tell whether a key's name says that its value is a secret; case, `-` and `_` do not matter."""
    plain = re.sub(r"[^a-z0-9]", "", key.lower())
    if any(name in plain for name in _TELLING) or _TOKEN.search(plain):
        return True
    return not _WORDS.isdisjoint(word.lower() for word in _WORD.findall(key))


def redact_text(text: str) -> str:
    """Return text with everything that has the form of a secret replaced by the mark."""
    return _LOOKS_SECRET.sub(MARK, text)


def _redact(value: object, depth: int) -> object:
    if depth > MAX_DEPTH:
        return MARK
    match value:
        case str():
            return redact_text(value)
        case Mapping():
            return {
                _key(key): MARK if _hides(key, child) else _redact(child, depth + 1)
                for key, child in value.items()
            }
        case list() | tuple():
            return [_redact(child, depth + 1) for child in value]
        case _:
            return value


def _key(key: object) -> object:
    return redact_text(key) if isinstance(key, str) else key


def _hides(key: object, child: object) -> bool:
    # None and booleans tell whether something is set, never what it is.
    return (
        isinstance(key, str)
        and child is not None
        and not isinstance(child, bool)
        and is_telling(key)
    )
