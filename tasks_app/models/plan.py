"""How the plan of a task changed: one row for each plan from the first replacement on."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from tasks_app.models.execution import TaskRow

PLAN_CAUSES = ("admission", "adjust_goal", "migration", "compensation", "repair")


class PlanVersion(TaskRow):
    """Why a plan was made and what it changed; written with it, never changed.

    `difference` is {"kept" | "added" | "retired": {"count": exact, "keys": the first ones}}.
    `command_id` is the `commandId` of the steering command that asked for it.
    """

    version = models.PositiveIntegerField()
    cause = models.CharField(max_length=16)
    workflow_version = models.PositiveIntegerField()
    command_id = models.UUIDField(null=True)
    difference = models.JSONField()
    actor = models.CharField(max_length=200)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = _("plan version")
        verbose_name_plural = _("plan versions")
        constraints = [
            models.CheckConstraint(condition=Q(cause__in=PLAN_CAUSES), name="plan_cause_known"),
            # queries.plans: the plans of a task, newest first.
            models.UniqueConstraint(fields=["task", "version"], name="plan_task_version_uniq"),
        ]
