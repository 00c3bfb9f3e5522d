"""Receipt: proof of what a task delivered, stored before the task becomes terminal."""

import uuid
from typing import ClassVar

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class Receipt(models.Model):
    """One receipt for each terminal task; triggers refuse every change.

    `document` is the canonical text that `sha256` is the digest of; `items` and `effects` repeat
    its parts for reading.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant_id = models.UUIDField()
    task_id = models.UUIDField()
    outcome = models.TextField()
    items = models.JSONField()
    effects = models.JSONField()
    document = models.TextField()
    sha256 = models.TextField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        """Constraints, and indexes each with the query it serves."""

        verbose_name = _("receipt")
        verbose_name_plural = _("receipts")
        constraints: ClassVar = [
            # services.receipts.put and queries.find_receipt: the one receipt of a task.
            models.UniqueConstraint(fields=["task_id"], name="receipt_task_uniq"),
            models.CheckConstraint(
                condition=models.Q(sha256__regex="^[0-9a-f]{64}$"), name="receipt_sha256_form"
            ),
        ]
        indexes: ClassVar = [
            # services.verification: the tasks of one tenant that have a receipt, in order.
            models.Index(fields=["tenant_id", "task_id"], name="receipt_tenant_idx"),
        ]
