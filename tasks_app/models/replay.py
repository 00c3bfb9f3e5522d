"""Answers that are kept for who asks the same again."""

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from tasks_app.models.access import Tenant
from tasks_app.models.scoped import scoped_manager


class KeptAnswer(models.Model):
    """What a request with an Idempotency-Key was answered; written in the commit of its act.

    `body` holds no secret: what is shown once is null here.
    """

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(
        Tenant, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    actor = models.CharField(max_length=200)
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField()
    body = models.JSONField(null=True)
    headers = models.JSONField(default=dict)
    created_at = models.DateTimeField(db_default=Now())

    objects = scoped_manager()

    class Meta:
        verbose_name = _("kept answer")
        verbose_name_plural = _("kept answers")
        constraints = [
            # admission.replays: the answer to a key of somebody.
            models.UniqueConstraint(fields=["tenant", "actor", "key"], name="kept_answer_key_uniq"),
        ]
