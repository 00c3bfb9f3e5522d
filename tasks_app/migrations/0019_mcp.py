"""Requests that MCP clients could not show to anybody."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

from ledger_app.sql import READONLY, RUNTIME_ROLES, grant_sql, revoke_sql
from tasks_app.models import ddl

TABLE = "tasks_app_withdrawnrequest"
GRANTS = (
    (TABLE, ("SELECT", "INSERT"), RUNTIME_ROLES),
    (TABLE, ("SELECT",), (READONLY,)),
)


class Migration(migrations.Migration):
    dependencies = [
        ("tasks_app", "0018_webhooks"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="WithdrawnRequest",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("key", models.CharField(max_length=64)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "by",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "task",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
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
                "verbose_name": "withdrawn request",
                "verbose_name_plural": "withdrawn requests",
                "constraints": [
                    models.UniqueConstraint(fields=("task", "key"), name="withdrawn_task_key_uniq")
                ],
            },
        ),
        migrations.RunSQL(*ddl.composite_key_sql(ddl.MCP_KEYS)),
        *(
            migrations.RunSQL(grant_sql(table, verbs, roles), revoke_sql(table, verbs, roles))
            for table, verbs, roles in GRANTS
        ),
    ]
