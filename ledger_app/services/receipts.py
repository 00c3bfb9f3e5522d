"""Receipts: written once for each task, before it becomes terminal."""

import json
import uuid
from collections.abc import Sequence
from typing import TypedDict
from uuid import UUID

from ledger_app.domain.audit import task_stream
from ledger_app.domain.canonical import canonical_text, sha256_hex, storable_text
from ledger_app.queries import ReceiptRow, find_receipt
from ledger_app.services.audit import append_sql
from ledger_app.services.statements import fetch_row

VERSION = 1

_PUT = """
WITH put AS (
    INSERT INTO ledger_app_receipt
        (id, tenant_id, task_id, outcome, items, effects, document, sha256)
    VALUES (%s, %s, %s, %s, %s::jsonb, %s::jsonb, %s, %s)
    ON CONFLICT (task_id) DO NOTHING
    RETURNING id, created_at
)
SELECT id, created_at, {audit} FROM put
"""


class DeliveredItem(TypedDict):
    """One artifact that the task handed over."""

    name: str
    sha256: str
    size_bytes: int
    media_type: str


class EffectFact(TypedDict):
    """One act on the outside world, as the receipt states it."""

    key: str
    tool: str
    target: str
    state: str


def put(
    *,
    tenant_id: UUID,
    task_id: UUID,
    outcome: str,
    items: Sequence[DeliveredItem],
    effects: Sequence[EffectFact],
    actor: str = "system:engine",
) -> ReceiptRow:
    """Return the task's receipt, stored now if there was none: the first one stands.

    The document is canonical JSON of all facts without a time, so that the same facts have the
    same digest. A receipt that already stands is returned as it is; compare `sha256` with
    `document_of` when it matters.

    Transaction: the terminal one. Locks: the receipt, then the audit stream of the task.
    Raises: NotCanonicalError when a fact is not a JSON value.
    """
    document = document_of(
        tenant_id=tenant_id, task_id=task_id, outcome=outcome, items=items, effects=effects
    )
    digest = sha256_hex(document.encode())
    receipt_id = uuid.uuid4()
    audit, audit_parameters = append_sql(
        stream=task_stream(task_id),
        tenant_id=tenant_id,
        actor=actor,
        action="receipt.stored",
        target=f"receipt:{receipt_id}",
        details={"sha256": digest, "outcome": outcome, "items": len(items)},
    )
    item_text, effect_text = canonical_text(list(items)), canonical_text(list(effects))
    facts = [receipt_id, tenant_id, task_id, outcome, item_text, effect_text, document, digest]
    put_now = fetch_row(_PUT.format(audit=audit), [*facts, *audit_parameters])
    if put_now is not None:
        return ReceiptRow(
            id=receipt_id,
            tenant_id=tenant_id,
            task_id=task_id,
            outcome=outcome,
            items=json.loads(item_text),
            effects=json.loads(effect_text),
            document=document,
            sha256=digest,
            created_at=put_now[1],
        )
    stored = find_receipt(tenant_id=tenant_id, task_id=task_id)
    if stored is None:
        raise LookupError(f"the receipt of task {task_id} belongs to another tenant")
    return stored


def document_of(
    *,
    tenant_id: UUID,
    task_id: UUID,
    outcome: str,
    items: Sequence[DeliveredItem],
    effects: Sequence[EffectFact],
) -> str:
    """Return the canonical text whose SHA-256 is the receipt's digest."""
    return storable_text(
        {
            "v": VERSION,
            "tenant": str(tenant_id),
            "task": str(task_id),
            "outcome": outcome,
            "items": list(items),
            "effects": list(effects),
        }
    )
