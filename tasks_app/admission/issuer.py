"""JSON Web Tokens of another issuer: read only when signature, issuer and audience are right (S140).

Keys come from the configured address only; what a token says of keys is not looked at.
"""

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NoReturn

import jwt
from django.conf import settings
from jwt import PyJWKClient
from jwt.api_jwk import PyJWK
from jwt.exceptions import PyJWKClientError, PyJWTError

from tasks_app.domain.errors import IssuerUnavailableError, UnauthenticatedError

ALGORITHMS = ("RS256", "ES256")
_REQUIRED = ("exp", "iss", "aud", "sub")
_LEEWAY_SECONDS = 30
_FETCH_SECONDS = 5.0
_FRESH_SECONDS = 300.0
_KEPT_SECONDS = 3600.0
# Between two looks for a key that is not there, and after a look that failed.
_PAUSE_SECONDS = 10.0

security_log = logging.getLogger("security")


@dataclass(frozen=True, slots=True)
class Claims:
    """What a token says of its owner."""

    subject: str
    scopes: tuple[str, ...]


class Keys:
    """The issuer's keys by their id, kept for five minutes, and for an hour while it is silent.

    A token with an unknown key makes them be read again, at most every ten seconds: nobody can make
    this process send many requests, nor make those wait whose keys are known.
    """

    def __init__(self, address: str, *, pause_seconds: float = _PAUSE_SECONDS) -> None:
        self._client = PyJWKClient(address, cache_jwk_set=False, timeout=_FETCH_SECONDS)
        self._pause_seconds = pause_seconds
        self._reading = threading.Lock()
        self._keys: dict[str, PyJWK] = {}
        self._read_at = -_KEPT_SECONDS
        self._next_look_at = 0.0

    def find(self, key_id: object) -> PyJWK | None:
        """Return the key, None when the issuer has none of this id.

        Raises: IssuerUnavailableError when no keys are known and they cannot be read.
        """
        known = self._keys.get(str(key_id))
        if known is not None and self._age_seconds() < _FRESH_SECONDS:
            return known
        if self._reading.acquire(blocking=known is None):
            try:
                self._look()
            finally:
                self._reading.release()
        if self._age_seconds() >= _KEPT_SECONDS:
            raise IssuerUnavailableError("The issuer's keys cannot be read now.")
        return self._keys.get(str(key_id))

    def _age_seconds(self) -> float:
        return time.monotonic() - self._read_at

    def _look(self) -> None:
        if time.monotonic() < self._next_look_at:
            return
        try:
            found = {str(key.key_id): key for key in self._client.get_signing_keys()}
        except (PyJWKClientError, PyJWTError, ValueError) as error:
            security_log.warning("issuer.unavailable", extra={"error": type(error).__name__})
        else:
            self._keys = found
            self._read_at = time.monotonic()
        self._next_look_at = time.monotonic() + self._pause_seconds


def is_configured() -> bool:
    """Tell whether tokens of another issuer are taken."""
    return bool(settings.MCP_JWT_ISSUER)


def read(text: str) -> Claims:
    """Return what a token says, if it is one of ours to take. May fetch keys over the network.

    Raises:
        UnauthenticatedError: not signed by the issuer, not for this door, expired, no access token.
        IssuerUnavailableError: the keys cannot be read now.
    """
    try:
        header = jwt.get_unverified_header(text)
    except PyJWTError:
        _refuse("token_malformed")
    kind = str(header.get("typ", "")).lower().removeprefix("application/")
    if header.get("alg") not in ALGORITHMS or kind not in settings.MCP_JWT_TYPES:
        _refuse("token_kind")
    key = _keys(settings.MCP_JWKS_URL).find(header.get("kid"))
    if key is None:
        _refuse("token_key_unknown")
    try:
        claims = jwt.decode(
            text,
            key,
            algorithms=ALGORITHMS,
            audience=settings.MCP_RESOURCE_URL,
            issuer=settings.MCP_JWT_ISSUER,
            leeway=_LEEWAY_SECONDS,
            options={"require": list(_REQUIRED)},
        )
    except PyJWTError as error:
        _refuse("token_not_valid", error=type(error).__name__)
    return Claims(claims["sub"], _scopes(claims.get("scope", claims.get("scp", ""))))


def _scopes(claim: object) -> tuple[str, ...]:
    """Return scopes from one text with blanks, or from a list, as some issuers write it."""
    if isinstance(claim, str):
        return tuple(claim.split())
    listed: Sequence[object] = claim if isinstance(claim, list) else ()
    return tuple(scope for scope in listed if isinstance(scope, str))


@cache
def _keys(address: str) -> Keys:
    return Keys(address)


def _refuse(reason: str, **facts: object) -> NoReturn:
    security_log.warning("authentication.refused", extra={"reason": reason, **facts})
    raise UnauthenticatedError("No valid credential.")
