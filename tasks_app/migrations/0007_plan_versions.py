"""Why each plan of a task was made and what it changed."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

from ledger_app.sql import READONLY, RUNTIME_ROLES, grant_sql, revoke_sql
from tasks_app.models import ddl

TABLE = "tasks_app_planversion"
GRANTS = (
    (TABLE, ("SELECT", "INSERT"), RUNTIME_ROLES),
    (TABLE, ("SELECT",), (READONLY,)),
)


def _run(pair: tuple[str, str]) -> migrations.RunSQL:
    forward, backward = pair
    return migrations.RunSQL(forward, backward)


class Migration(migrations.Migration):
    dependencies = [("tasks_app", "0006_fair_claims")]

    operations = [
        migrations.CreateModel(
            name="PlanVersion",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("version", models.PositiveIntegerField()),
                ("cause", models.CharField(max_length=16)),
                ("workflow_version", models.PositiveIntegerField()),
                ("command_id", models.UUIDField(null=True)),
                ("difference", models.JSONField()),
                ("actor", models.CharField(max_length=200)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "task",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="%(class)ss",
                        to="tasks_app.task",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="tasks_app.tenant",
                    ),
                ),
            ],
            options={
                "verbose_name": "plan version",
                "verbose_name_plural": "plan versions",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "cause__in",
                                ("admission", "adjust_goal", "migration", "compensation", "repair"),
                            )
                        ),
                        name="plan_cause_known",
                    ),
                    models.UniqueConstraint(
                        fields=("task", "version"), name="plan_task_version_uniq"
                    ),
                ],
            },
        ),
        _run(ddl.composite_key_sql(ddl.PLAN_KEYS)),
        _run(ddl.append_only_sql([TABLE])),
        *(
            migrations.RunSQL(grant_sql(table, verbs, roles), revoke_sql(table, verbs, roles))
            for table, verbs, roles in GRANTS
        ),
    ]
