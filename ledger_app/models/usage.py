"""Usage: what one call of a model or a paid tool used, counted once for each source."""

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class Usage(models.Model):
    """One row for each source of a task; totals are sums of rows and never stored.

    `source_id` is the id of the call, so replay, retry and duplicate callbacks change no total.
    `attributed` says that the use was added to the message that caused it. `cost_micros` is in
    millionths of `currency`.
    """

    id = models.BigAutoField(primary_key=True)
    tenant_id = models.UUIDField()
    task_id = models.UUIDField()
    source_id = models.TextField()
    caller = models.TextField()
    model = models.TextField()
    input_tokens = models.BigIntegerField()
    output_tokens = models.BigIntegerField()
    cost_micros = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    attributed = models.BooleanField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        """Constraints, each with the query it serves."""

        verbose_name = _("usage")
        verbose_name_plural = _("usage")
        constraints: ClassVar = [
            # services.usage.record: once for each source; queries.total_usage of tasks.
            models.UniqueConstraint(fields=["task_id", "source_id"], name="usage_task_source_uniq"),
            models.CheckConstraint(
                condition=models.Q(input_tokens__gte=0, output_tokens__gte=0, cost_micros__gte=0),
                name="usage_not_negative",
            ),
        ]
