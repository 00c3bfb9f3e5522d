"""Tasks that are started at times instead of by somebody."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _
from typing_extensions import override

from tasks_app.domain.schedules import Overlap
from tasks_app.models.access import Tenant
from tasks_app.models.scoped import scoped_manager
from tasks_app.models.task import Task, Thread


class Schedule(models.Model):
    """What is started when, for whom, and what happened the last time.

    Its tasks are runs of one thread. `due_at` is the next time of its timing, `fires_at` that time
    with its jitter; both are null while it is paused or has ended.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(
        Tenant, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    name = models.CharField(max_length=100)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, related_name="+", db_index=False
    )
    thread = models.ForeignKey(
        Thread, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    workflow = models.CharField(max_length=100)
    goal = models.JSONField()
    title = models.CharField(max_length=200, default="", blank=True)
    priority = models.PositiveSmallIntegerField(default=5)
    budget = models.JSONField(default=dict)

    cron = models.CharField(max_length=100, default="", blank=True)
    interval_seconds = models.PositiveIntegerField(null=True)
    time_zone = models.CharField(max_length=64, default="UTC")
    overlap = models.CharField(max_length=16, default=Overlap.SKIP)
    catch_up_limit = models.PositiveSmallIntegerField(default=1)
    jitter_seconds = models.PositiveSmallIntegerField(default=0)

    # Intervals are counted from here.
    starts_at = models.DateTimeField()
    due_at = models.DateTimeField(null=True)
    fires_at = models.DateTimeField(null=True)
    paused_at = models.DateTimeField(null=True)
    pause_reason = models.CharField(max_length=500, default="", blank=True)
    deleted_at = models.DateTimeField(null=True)

    fired = models.PositiveIntegerField(default=0)
    # Times at which no task was started: the one before was at work, or nobody was there to do it.
    skipped = models.PositiveIntegerField(default=0)
    last_fired_at = models.DateTimeField(null=True)
    last_task = models.ForeignKey(
        Task, models.PROTECT, null=True, related_name="+", db_constraint=False, db_index=False
    )
    last_error = models.JSONField(null=True)
    version = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    objects = scoped_manager(owner_path="owner_id")

    class Meta:
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        constraints = [
            models.CheckConstraint(
                condition=Q(overlap__in=[overlap.value for overlap in Overlap]),
                name="schedule_overlap_known",
            ),
            models.CheckConstraint(condition=Q(priority__lte=9), name="schedule_priority_range"),
            # A name may be used again once its schedule is deleted.
            models.UniqueConstraint(
                fields=["tenant", "name"],
                condition=Q(deleted_at__isnull=True),
                name="schedule_name_uniq",
            ),
        ]
        indexes = [
            # admission.firing: what is due.
            models.Index(
                F("fires_at"), condition=Q(fires_at__isnull=False), name="schedule_due_idx"
            ),
            # queries.schedules: a tenant's schedules, newest first.
            models.Index(
                F("tenant"), F("created_at").desc(), F("id").desc(), name="schedule_list_idx"
            ),
        ]

    @override
    def __str__(self) -> str:
        """Return the name: what the admin's boxes call the row."""
        return self.name
