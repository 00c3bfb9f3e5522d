"""Append to the audit chain: one round trip, last in the transaction."""

import os
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from ledger_app.domain.audit import Envelope
from ledger_app.domain.canonical import MAX_INTEGER, canonical_text, cleaned
from ledger_app.domain.redaction import redact
from ledger_app.services.statements import fetch_row
from ledger_app.services.verification import verify, verify_all

# What psycopg adapts: text, numbers, bytes, UUIDs, lists of them, None.
SqlParameter = Any

__all__ = [
    "CALL",
    "UNKNOWN",
    "SqlParameter",
    "append",
    "append_sql",
    "numbered",
    "texts",
    "verify",
    "verify_all",
]

# Stands for a number that only the statement knows; see `numbered`.
UNKNOWN = MAX_INTEGER

# Takes stream, tenant and what `texts` returns.
CALL = "public.ledger_audit_append({}::text, {}::uuid, {}::text, {}::text, {}::bytea)"
_CALL = CALL.format(*["%s"] * 5)


def append(
    *,
    stream: str,
    tenant_id: UUID,
    actor: str,
    action: str,
    target: str,
    outcome: str = "ok",
    via: str = "",
    on_behalf_of: str | None = None,
    old_version: int | None = None,
    new_version: int | None = None,
    request_id: str | None = None,
    details: Mapping[str, object] | None = None,
) -> int:
    """Append one entry and return its number in the stream.

    `stream` is `task:<uuid>`, `tenant:<uuid>` or `system` (with `SYSTEM_TENANT`); `actor` and
    `on_behalf_of` are `user:<id>`, `agent:<uuid>` or `system:<name>`. Everything but `details`
    holds ids only and stays for ever; `details` is redacted here and may be erased later.

    Transaction: the caller's; the entry exists exactly when the change it tells of exists.
    Locks: the head of the stream, until the transaction ends; so call it last.
    """
    call, parameters = append_sql(
        stream=stream,
        tenant_id=tenant_id,
        actor=actor,
        action=action,
        target=target,
        outcome=outcome,
        via=via,
        on_behalf_of=on_behalf_of,
        old_version=old_version,
        new_version=new_version,
        request_id=request_id,
        details=details,
    )
    row = fetch_row(f"SELECT {call}", parameters)
    assert row is not None  # noqa: S101 - a SELECT without FROM has one row
    return int(row[0])


def append_sql(
    *,
    stream: str,
    tenant_id: UUID,
    actor: str,
    action: str,
    target: str,
    outcome: str = "ok",
    via: str = "",
    on_behalf_of: str | None = None,
    old_version: int | None = None,
    new_version: int | None = None,
    request_id: str | None = None,
    details: Mapping[str, object] | None = None,
    versions: tuple[str, str] | None = None,
) -> tuple[str, list[SqlParameter]]:
    """Return the call as an SQL expression with its parameters, for a larger statement.

    Args:
        versions: SQL of the old and the new version where only the statement knows them.

    Select it from the rows that the change returned, and from nothing when nothing changed:
    `WITH moved AS (UPDATE … RETURNING id) SELECT moved.id, <expression> FROM moved`. It runs once
    for each row of that SELECT, after the row is locked.
    """
    entry = texts(
        stream=stream,
        tenant_id=tenant_id,
        actor=actor,
        action=action,
        target=target,
        outcome=outcome,
        via=via,
        on_behalf_of=on_behalf_of,
        old_version=old_version if versions is None else UNKNOWN,
        new_version=new_version if versions is None else UNKNOWN,
        request_id=request_id,
        details=details,
    )
    call = _CALL
    if versions is not None:
        envelope = numbered("%s", old_version=versions[0], new_version=versions[1])
        call = CALL.format("%s", "%s", envelope, "%s", "%s")
    return call, [stream, tenant_id, *entry]


def numbered(text: str, **numbers: str) -> str:
    """Return SQL of a JSON text with what the statement knows in place of UNKNOWN numbers.

    Args:
        text: SQL of the text.
        numbers: SQL of each number by its name.
    """
    for name, number in numbers.items():
        mark = f'"{name}":'
        text = f"replace({text}::text, '{mark}{UNKNOWN}', '{mark}' || ({number})::text)"
    return text


def texts(
    *,
    stream: str,
    tenant_id: UUID,
    actor: str,
    action: str,
    target: str,
    outcome: str = "ok",
    via: str = "",
    on_behalf_of: str | None = None,
    old_version: int | None = None,
    new_version: int | None = None,
    request_id: str | None = None,
    details: Mapping[str, object] | None = None,
) -> tuple[str, str | None, bytes | None]:
    """Return envelope, details and salt of an entry, for a statement that appends many."""
    envelope = Envelope(
        stream=stream,
        tenant_id=tenant_id,
        actor=actor,
        action=action,
        target=target,
        outcome=outcome,
        via=via,
        on_behalf_of=on_behalf_of,
        old_version=old_version,
        new_version=new_version,
        request_id=request_id,
    )
    text = canonical_text(cleaned(redact(details))) if details else None
    salt = os.urandom(16) if text is not None else None
    return envelope.text(), text, salt
