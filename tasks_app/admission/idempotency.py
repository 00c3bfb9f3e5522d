"""A client's key and what it stood for the first time: replay or conflict (R21-R23, U39)."""

from collections.abc import Mapping

from ledger_app.domain.canonical import digest_of
from ledger_app.domain.errors import NotCanonicalError
from tasks_app.domain.errors import FieldProblem, IdempotencyMismatchError, InvalidInputError

MAX_KEY_CHARACTERS = 255
HEADER = "Idempotency-Key"


def clean_key(text: str | None) -> str | None:
    """Return the key without surrounding blanks, or None when none was sent.

    Raises:
        InvalidInputError: blank, longer than 255 characters, or not printable ASCII.
    """
    if text is None:
        return None
    key = text.strip()
    if not key or len(key) > MAX_KEY_CHARACTERS or not (key.isascii() and key.isprintable()):
        problem = FieldProblem(
            "", "invalid_idempotency_key", f"{HEADER}: 1 to {MAX_KEY_CHARACTERS} printable ASCII."
        )
        raise InvalidInputError(f"The header {HEADER} is not usable.", [problem])
    return key


def fingerprint_of(parts: Mapping[str, object]) -> str:
    """Return the digest of what makes two requests the same: canonical JSON, SHA-256.

    Raises:
        InvalidInputError: a value that has no canonical JSON form, such as an integer beyond 2^53.
    """
    try:
        return digest_of(parts)
    except NotCanonicalError as error:
        pointer = str(error.fields.get("pointer", ""))
        problem = FieldProblem(pointer, "not_canonical", error.message)
        raise InvalidInputError("The request has no canonical JSON form.", [problem]) from error


def require_same(stored: str, given: str) -> None:
    """Refuse a key that comes back with another request.

    Raises:
        IdempotencyMismatchError: the fingerprints differ.
    """
    if stored != given:
        raise IdempotencyMismatchError("This key was used before for another request.")
