"""What never enters the ledger (S85, the part by key name and by our own forms)."""

import time
from typing import Any

import pytest

from ledger_app.domain.redaction import MARK, is_telling, redact, redact_text


@pytest.mark.parametrize(
    "key",
    [
        "password",
        "db_password",
        "PASSWD",
        "pwd",
        "api_key",
        "apiKey",
        "X-Api-Key",
        "token",
        "access_token",
        "refreshToken",
        "id-token",
        "client_secret",
        "Authorization",
        "Proxy-Authorization",
        "Cookie",
        "set-cookie",
        "private_key",
        "credential_ref",
        "session",
        "sessionid",
        "passphrase",
        "aws_access_key_id",
    ],
)
def test_telling_keys_hide_their_value(key: str) -> None:
    """The whole value goes, whatever its type and wherever it stands."""
    assert is_telling(key)
    assert redact({"a": [{key: {"deep": ["x"]}}]}) == {"a": [{key: MARK}]}


@pytest.mark.parametrize(
    "key",
    [
        "max_tokens",
        "input_tokens",
        "token_count",
        "totalTokens",
        "author",
        "keyword",
        "key",
        "reason",
    ],
)
def test_harmless_keys_keep_their_value(key: str) -> None:
    """Counters of tokens and ordinary words stay readable."""
    assert not is_telling(key)
    assert redact({key: 12}) == {key: 12}


def test_presence_of_a_secret_stays_visible() -> None:
    """Null and true tell whether one is set, never what it is."""
    assert redact({"password": None, "has_token": True}) == {"password": None, "has_token": True}


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("key rtk_live_0a1b2c3d_" + "A" * 43 + "_abc123", "A" * 43),
        ("Authorization: Bearer abcdefgh12345678", "abcdefgh12345678"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "c2lnbmF0dXJl"),
        ("https://user:hunter2secret@example.org/x", "hunter2secret"),
        ("-----BEGIN PRIVATE KEY-----\nMIIabc\n-----END PRIVATE KEY-----", "MIIabc"),
    ],
)
def test_text_with_the_form_of_a_secret_is_masked(text: str, hidden: str) -> None:
    """A secret is found inside longer text; the rest stays."""
    result = redact_text(text)
    assert hidden not in result
    assert MARK in result


def test_redaction_twice_changes_nothing() -> None:
    """So that every layer may redact without asking whether another did."""
    value: dict[str, Any] = {"token": "x", "note": "Bearer abcdefgh12345678", "list": [1, "ok"]}
    once = redact(value)
    assert redact(once) == once


@pytest.mark.parametrize("text", ["eyJ" * 30_000, "://" + "a:" * 40_000, "Bearer " * 15_000])
def test_redaction_of_hostile_text_takes_bounded_time(text: str) -> None:
    """A hundred kilobytes made against the patterns cost no more than a second."""
    started = time.process_time()
    redact_text(text)
    assert time.process_time() - started < 1
