"""What people did with held tasks: one row for each repair, never changed."""

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from tasks_app.domain.repairs import RepairVerb
from tasks_app.domain.states import TaskStatus
from tasks_app.models.execution import TaskRow
from tasks_app.models.task import Task


class Repair(TaskRow):
    """One person's act on a task that was held for `cause`, and the status it led to."""

    repair_id = models.UUIDField()
    verb = models.CharField(max_length=16)
    payload = models.JSONField(default=dict)
    payload_sha256 = models.CharField(max_length=64)
    cause = models.CharField(max_length=64)
    reason = models.CharField(max_length=500)
    requested_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    source = models.CharField(max_length=16)
    old_version = models.PositiveIntegerField()
    new_version = models.PositiveIntegerField()
    status = models.CharField(max_length=16)
    forked_task = models.ForeignKey(
        Task, models.PROTECT, null=True, related_name="+", db_constraint=False, db_index=False
    )
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = _("repair")
        verbose_name_plural = _("repairs")
        constraints = [
            models.CheckConstraint(
                condition=Q(verb__in=[verb.value for verb in RepairVerb]), name="repair_verb_known"
            ),
            models.CheckConstraint(
                condition=Q(status__in=[status.value for status in TaskStatus]),
                name="repair_status_known",
            ),
            # admission.repairs: replay of a client's repair id.
            models.UniqueConstraint(fields=["tenant", "repair_id"], name="repair_id_uniq"),
        ]
        indexes = [
            # queries.repairs: those of a task, newest first.
            models.Index(F("task"), F("id").desc(), name="repair_task_idx"),
            # admission.approvals: who made a fork, and with which goal.
            models.Index(
                F("forked_task"), condition=Q(forked_task__isnull=False), name="repair_fork_idx"
            ),
        ]
