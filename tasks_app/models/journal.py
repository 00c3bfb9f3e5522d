"""Stored, ordered events of a task: for people, never for recovery."""

from django.db import models
from django.db.models.functions import Now

from tasks_app.models.execution import TaskRow


class Event(TaskRow):
    """A small fact; `seq` is dense in each task and in commit order."""

    seq = models.BigIntegerField()
    type = models.CharField(max_length=24)
    data = models.JSONField(default=dict)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            # queries.events: events after a seq; the newest hundred.
            models.UniqueConstraint(fields=["task", "seq"], name="event_task_seq_uniq"),
        ]
