"""Rows of the ledger, their constraints and indexes; no behaviour."""

from ledger_app.models.audit import AuditEntry, AuditStream
from ledger_app.models.effect import Effect
from ledger_app.models.receipt import Receipt
from ledger_app.models.usage import Usage

__all__ = ["AuditEntry", "AuditStream", "Effect", "Receipt", "Usage"]
