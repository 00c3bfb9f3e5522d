"""What the MCP door must remember of a task's requests."""

from django.conf import settings
from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from tasks_app.models.access import Tenant
from tasks_app.models.scoped import scoped_manager
from tasks_app.models.task import Task


class WithdrawnRequest(models.Model):
    """A request that an MCP client could not show to anybody: it is open, and not offered there again."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(
        Tenant, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    task = models.ForeignKey(
        Task, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    key = models.CharField(max_length=64)
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, related_name="+", db_index=False
    )
    at = models.DateTimeField(db_default=Now())

    objects = scoped_manager(owner_path="task__initiator_id")

    class Meta:
        verbose_name = _("withdrawn request")
        verbose_name_plural = _("withdrawn requests")
        constraints = [
            # queries.requests: what is not offered any more.
            models.UniqueConstraint(fields=["task", "key"], name="withdrawn_task_key_uniq"),
        ]
