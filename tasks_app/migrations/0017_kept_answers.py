"""Answers that are kept for a repeat of their request."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

from ledger_app.sql import READONLY, RUNTIME_ROLES, grant_sql, revoke_sql

TABLE = "tasks_app_keptanswer"
GRANTS = (
    (TABLE, ("SELECT", "INSERT"), RUNTIME_ROLES),
    (TABLE, ("SELECT",), (READONLY,)),
)


class Migration(migrations.Migration):
    dependencies = [("tasks_app", "0016_workspaces")]

    operations = [
        migrations.CreateModel(
            name="KeptAnswer",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("actor", models.CharField(max_length=200)),
                ("key", models.CharField(max_length=255)),
                ("fingerprint", models.CharField(max_length=64)),
                ("status", models.PositiveSmallIntegerField()),
                ("body", models.JSONField(null=True)),
                ("headers", models.JSONField(default=dict)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
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
                "verbose_name": "kept answer",
                "verbose_name_plural": "kept answers",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("tenant", "actor", "key"), name="kept_answer_key_uniq"
                    )
                ],
            },
        ),
        *(
            migrations.RunSQL(grant_sql(table, verbs, roles), revoke_sql(table, verbs, roles))
            for table, verbs, roles in GRANTS
        ),
    ]
