"""Stored outputs, addressed by digest."""

import uuid

from django.db import models
from django.db.models import F
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from tasks_app.models.scoped import scoped_manager


class Artifact(models.Model):
    """A named output of a task; the bytes lie in the artifact store under their digest.

    `presented` outputs are handed to the person; others only carry data between steps.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(
        "tasks_app.Tenant", models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    task = models.ForeignKey(
        "tasks_app.Task",
        models.PROTECT,
        related_name="artifacts",
        db_constraint=False,
        db_index=False,
    )
    step_key = models.CharField(max_length=100)
    name = models.CharField(max_length=255)
    media_type = models.CharField(max_length=100)
    size_bytes = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    presented = models.BooleanField(default=True)
    fence = models.BigIntegerField()
    created_at = models.DateTimeField(db_default=Now())

    objects = scoped_manager(owner_path="task__initiator_id", read_capability="artifacts:read")

    class Meta:
        verbose_name = _("artifact")
        verbose_name_plural = _("artifacts")
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="artifact_tenant_id_uniq"),
            # A step that runs again presents the same output once.
            models.UniqueConstraint(
                fields=["task", "step_key", "name", "sha256"], name="artifact_content_uniq"
            ),
        ]
        indexes = [
            # queries.artifacts: outputs of a task in order.
            models.Index(F("task"), F("created_at"), name="artifact_task_idx"),
        ]
