"""Usage: counted once for each source, whatever is replayed, retried or delivered twice."""

import logging
from uuid import UUID

from django.db import connection

from ledger_app.domain.canonical import MAX_INTEGER

logger = logging.getLogger(__name__)

_RECORD = """
INSERT INTO ledger_app_usage
    (tenant_id, task_id, source_id, caller, model, input_tokens, output_tokens, cost_micros,
     currency, attributed)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (task_id, source_id) DO NOTHING
"""


def record(
    *,
    tenant_id: UUID,
    task_id: UUID,
    source_id: str,
    caller: str,
    model: str,
    input_tokens: int,
    output_tokens: int,
    cost_micros: int,
    currency: str,
    attributed: bool = False,
) -> bool:
    """Add what one call used, and tell whether it was new.

    `source_id` is the id of the call; the same one again changes nothing. `caller` says who made
    it: `lead_agent`, `subagent`, `middleware`. `cost_micros` is in millionths of `currency`, three
    capital letters. Nothing is added for no use at all and for malformed numbers, which a provider may report;
    the latter are logged.

    Transaction: the caller's.
    """
    amounts = (input_tokens, output_tokens, cost_micros)
    if not all(is_amount(amount) for amount in amounts):
        logger.warning("usage.malformed", extra={"task_id": str(task_id), "source_id": source_id})
        return False
    if not any(amounts):
        return False
    with connection.cursor() as cursor:
        cursor.execute(
            _RECORD,
            [tenant_id, task_id, source_id, caller, model, *amounts, currency, attributed],
        )
        return bool(cursor.rowcount)


def is_amount(value: object) -> bool:
    """Tell whether a number may be entered: whole, not negative, exact in every reader."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INTEGER
