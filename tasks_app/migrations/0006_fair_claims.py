"""Lanes of waiting tasks, shares and limits of tenants, indexes for what the sweeper looks for."""

from django.db import migrations, models

import tasks_app.domain.states


class Migration(migrations.Migration):
    dependencies = [
        ("tasks_app", "0005_functions"),
    ]

    operations = [
        migrations.RemoveIndex(
            model_name="task",
            name="task_due_idx",
        ),
        migrations.AddField(
            model_name="tenant",
            name="max_concurrent_tasks",
            field=models.PositiveIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="tenant",
            name="weight",
            field=models.PositiveSmallIntegerField(db_default=1, default=1),
        ),
        migrations.AddIndex(
            model_name="slice",
            index=models.Index(
                models.F("tenant"),
                models.OrderBy(models.F("id"), descending=True),
                name="slice_served_idx",
            ),
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                models.F("tenant"),
                models.F("workflow"),
                models.F("priority"),
                models.F("next_wake_at"),
                models.F("id"),
                condition=models.Q(
                    (
                        "status__in",
                        [
                            tasks_app.domain.states.TaskStatus["QUEUED"],
                            tasks_app.domain.states.TaskStatus["RECOVERING"],
                        ],
                    )
                ),
                name="task_lane_idx",
            ),
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                models.F("next_wake_at"),
                condition=models.Q(
                    ("status", tasks_app.domain.states.TaskStatus["INPUT_REQUIRED"])
                ),
                name="task_question_due_idx",
            ),
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                models.F("deadline_at"),
                condition=models.Q(
                    (
                        "status__in",
                        [
                            tasks_app.domain.states.TaskStatus["QUEUED"],
                            tasks_app.domain.states.TaskStatus["PAUSED"],
                            tasks_app.domain.states.TaskStatus["INPUT_REQUIRED"],
                        ],
                    )
                ),
                name="task_overdue_idx",
            ),
        ),
        migrations.AddIndex(
            model_name="tenant",
            index=models.Index(
                models.F("id"),
                condition=models.Q(("max_concurrent_tasks__isnull", False)),
                name="tenant_limited_idx",
            ),
        ),
        migrations.AddConstraint(
            model_name="tenant",
            constraint=models.CheckConstraint(
                condition=models.Q(("weight__gte", 1), ("weight__lte", 100)),
                name="tenant_weight_range",
            ),
        ),
        migrations.AddConstraint(
            model_name="tenant",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("max_concurrent_tasks__isnull", True),
                    ("max_concurrent_tasks__gte", 1),
                    _connector="OR",
                ),
                name="tenant_concurrency_positive",
            ),
        ),
    ]
