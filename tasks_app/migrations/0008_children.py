"""Tasks that a step of another task has started."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import tasks_app.domain.states
from tasks_app.models import ddl


class Migration(migrations.Migration):
    dependencies = [
        ("tasks_app", "0007_plan_versions"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="task",
            name="parent",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="children",
                to="tasks_app.task",
            ),
        ),
        migrations.AddField(
            model_name="task",
            name="parent_step",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tasks_app.step",
            ),
        ),
        migrations.AddIndex(
            model_name="step",
            index=models.Index(
                models.F("task"),
                condition=models.Q(
                    ("kind", "child"), ("retired_in__isnull", True), ("status", "waiting")
                ),
                name="step_child_waiting_idx",
            ),
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                models.F("parent"),
                condition=models.Q(
                    ("parent__isnull", False),
                    models.Q(
                        (
                            "status__in",
                            [
                                tasks_app.domain.states.TaskStatus["CANCELLED"],
                                tasks_app.domain.states.TaskStatus["COMPLETED"],
                                tasks_app.domain.states.TaskStatus["FAILED"],
                            ],
                        ),
                        _negated=True,
                    ),
                ),
                name="task_live_child_idx",
            ),
        ),
        migrations.AddConstraint(
            model_name="task",
            constraint=models.UniqueConstraint(
                condition=models.Q(("parent__isnull", False)),
                fields=("parent", "parent_step"),
                name="task_parent_step_uniq",
            ),
        ),
        migrations.AddConstraint(
            model_name="task",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("parent__isnull", True), ("parent_step__isnull", True)),
                    models.Q(
                        ("parent__isnull", False),
                        ("parent_step__isnull", False),
                        ("source", "child"),
                    ),
                    _connector="OR",
                ),
                name="task_child_complete",
            ),
        ),
        migrations.RunSQL(*ddl.composite_key_sql(ddl.CHILD_KEYS)),
        migrations.RunSQL(
            ddl.admission_trigger_sql(ddl.ADMISSION_FACTS),
            ddl.admission_trigger_sql(ddl.FIRST_ADMISSION_FACTS),
        ),
    ]
