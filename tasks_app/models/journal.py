"""Stored, ordered events of a task: for people, never for recovery."""

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from tasks_app.models.execution import TaskRow


class Event(TaskRow):
    """A small fact; `seq` is dense in each task and in commit order."""

    seq = models.BigIntegerField()
    type = models.CharField(max_length=24)
    data = models.JSONField(default=dict)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = _("event")
        verbose_name_plural = _("events")
        constraints = [
            # queries.events: events after a seq; the newest hundred.
            models.UniqueConstraint(fields=["task", "seq"], name="event_task_seq_uniq"),
        ]
