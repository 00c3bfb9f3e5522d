"""Who is told about tasks, and what is owed to them."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _
from typing_extensions import override

from tasks_app.models.access import Tenant
from tasks_app.models.scoped import scoped_manager
from tasks_app.models.task import Task

STATES = ("pending", "delivered", "failed", "held")


class WebhookEndpoint(models.Model):
    """An address that is told about tasks: about all of its tenant, or those that name it.

    `url` has no query: what stands there belongs to one task. The secret is derived from
    `secret_version`; the version before it counts until `previous_until`.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(
        Tenant, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    url = models.CharField(max_length=2000)
    hears_all = models.BooleanField(default=False)
    secret_version = models.PositiveIntegerField(default=1)
    previous_until = models.DateTimeField(null=True)
    # Failures in a row; while there are any, nothing is sent before `next_try_at`.
    failures = models.PositiveIntegerField(default=0)
    next_try_at = models.DateTimeField(null=True)
    disabled_at = models.DateTimeField(null=True)
    disabled_reason = models.CharField(max_length=500, default="", blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, related_name="+", db_index=False
    )
    created_at = models.DateTimeField(db_default=Now())

    objects = scoped_manager(read_capability="webhooks:manage")

    class Meta:
        verbose_name = _("webhook endpoint")
        verbose_name_plural = _("webhook endpoints")
        constraints = [
            # engine.transitions: the endpoints of a tenant.
            models.UniqueConstraint(fields=["tenant", "url"], name="webhook_tenant_url_uniq"),
            models.UniqueConstraint(fields=["tenant", "id"], name="webhook_tenant_id_uniq"),
        ]

    @override
    def __str__(self) -> str:
        """Return the address: what the admin's boxes call the row."""
        return self.url


class WebhookDelivery(models.Model):
    """One message that an endpoint is owed, written in the commit of what it tells.

    `seq` is the event of the task that it tells. Whoever sends it raises `tries`, and writes only
    while that is still its own number.
    """

    tenant = models.ForeignKey(
        Tenant, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    endpoint = models.ForeignKey(
        WebhookEndpoint, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    task = models.ForeignKey(
        Task, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    seq = models.BigIntegerField()
    status = models.CharField(max_length=16)
    state_version = models.PositiveIntegerField()
    created_at = models.DateTimeField(db_default=Now())
    state = models.CharField(max_length=10, default="pending")
    tries = models.PositiveIntegerField(default=0)
    # When it is sent (again); while a sender has it, when another one may take it.
    next_try_at = models.DateTimeField(db_default=Now())
    last_status = models.PositiveSmallIntegerField(null=True)
    last_error = models.CharField(max_length=100, default="", blank=True)
    settled_at = models.DateTimeField(null=True)

    objects = scoped_manager(read_capability="webhooks:manage")

    class Meta:
        verbose_name = _("webhook delivery")
        verbose_name_plural = _("webhook deliveries")
        constraints = [
            models.CheckConstraint(condition=Q(state__in=STATES), name="delivery_state_known"),
            models.CheckConstraint(
                condition=Q(state__in=("delivered", "failed"), settled_at__isnull=False)
                | Q(state__in=("pending", "held"), settled_at__isnull=True),
                name="delivery_settled_at_set",
            ),
            # An event is told once to each.
            models.UniqueConstraint(fields=["endpoint", "task", "seq"], name="delivery_event_uniq"),
        ]
        indexes = [
            # engine.webhooks: what is to be sent, oldest first.
            models.Index(F("next_try_at"), condition=Q(state="pending"), name="delivery_due_idx"),
            # queries.webhooks: an endpoint's messages, newest first.
            models.Index(F("endpoint"), F("id").desc(), name="delivery_list_idx"),
        ]
