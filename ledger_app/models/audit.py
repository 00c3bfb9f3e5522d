"""Audit: hash-linked streams of who decided what and why.

Rows are written by the SQL function `ledger_audit_append` alone (migration 0002); triggers refuse
UPDATE and DELETE for every role, and the roles of the web and worker processes cannot INSERT.
"""

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _


class AuditStream(models.Model):
    """The head of one stream; it moves in the commit of the entry it points at."""

    stream = models.TextField(primary_key=True)
    tenant_id = models.UUIDField()
    head_seq = models.BigIntegerField()
    head_hash = models.BinaryField()

    class Meta:
        """Indexes, each with the query it serves."""

        verbose_name = _("audit stream")
        verbose_name_plural = _("audit streams")
        indexes: ClassVar = [
            # services.audit.verify_all: the streams of one tenant in order.
            models.Index(fields=["tenant_id", "stream"], name="audit_stream_tenant_idx"),
        ]


class AuditEntry(models.Model):
    """One entry; `hash` covers the stream, the number, the entry before, envelope and details.

    `envelope` is RFC 8785 text with ids only and is never erased. `details` is canonical text of
    redacted values; its digest is salted, so that an erased value cannot be guessed from it. The
    stored text is what is hashed; a jsonb column would reorder it.
    """

    id = models.BigAutoField(primary_key=True)
    stream = models.TextField()
    seq = models.BigIntegerField()
    at = models.DateTimeField()
    envelope = models.TextField()
    details = models.TextField(null=True, blank=True)  # noqa: DJ001 - NULL means none or erased
    salt = models.BinaryField(null=True, blank=True)
    details_digest = models.BinaryField()
    prev_hash = models.BinaryField()
    hash = models.BinaryField()

    class Meta:
        """Constraints, each with the query it serves."""

        verbose_name = _("audit entry")
        verbose_name_plural = _("audit entries")
        constraints: ClassVar = [
            # queries.list_audit_entries and services.audit.verify: one stream in order. The
            # admin cannot show a composite primary key (Django 5.2), hence the column id.
            models.UniqueConstraint(fields=["stream", "seq"], name="audit_entry_stream_seq_uniq"),
        ]
