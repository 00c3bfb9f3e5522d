"""Repairs of held tasks: their table, since when a task is held, and what a fork came from."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

from ledger_app.sql import READONLY, WEB, WORKER, grant_sql, revoke_sql
from tasks_app.models import ddl

TABLE = "tasks_app_repair"
GRANTS = (
    (TABLE, ("SELECT", "INSERT"), (WEB,)),
    (TABLE, ("SELECT",), (WORKER, READONLY)),
)


def _run(pair: tuple[str, str]) -> migrations.RunSQL:
    forward, backward = pair
    return migrations.RunSQL(forward, backward)


class Migration(migrations.Migration):
    dependencies = [
        ("tasks_app", "0003_roles"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="task",
            name="forked_from",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tasks_app.task",
            ),
        ),
        migrations.AddField(
            model_name="task",
            name="held_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.CreateModel(
            name="Repair",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("repair_id", models.UUIDField()),
                ("verb", models.CharField(max_length=16)),
                ("payload", models.JSONField(default=dict)),
                ("payload_sha256", models.CharField(max_length=64)),
                ("cause", models.CharField(max_length=64)),
                ("reason", models.CharField(max_length=500)),
                ("source", models.CharField(max_length=16)),
                ("old_version", models.PositiveIntegerField()),
                ("new_version", models.PositiveIntegerField()),
                ("status", models.CharField(max_length=16)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "forked_task",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="tasks_app.task",
                    ),
                ),
                (
                    "requested_by",
                    models.ForeignKey(
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
                "verbose_name": "repair",
                "verbose_name_plural": "repairs",
                "indexes": [
                    models.Index(
                        models.F("task"),
                        models.OrderBy(models.F("id"), descending=True),
                        name="repair_task_idx",
                    ),
                    models.Index(
                        models.F("forked_task"),
                        condition=models.Q(("forked_task__isnull", False)),
                        name="repair_fork_idx",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "verb__in",
                                ["continue_from", "settle_effect", "requeue", "fork", "close"],
                            )
                        ),
                        name="repair_verb_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "status__in",
                                [
                                    "queued",
                                    "working",
                                    "input_required",
                                    "pausing",
                                    "paused",
                                    "recovering",
                                    "completed",
                                    "failed",
                                    "cancelled",
                                    "dead_lettered",
                                ],
                            )
                        ),
                        name="repair_status_known",
                    ),
                    models.UniqueConstraint(fields=("tenant", "repair_id"), name="repair_id_uniq"),
                ],
            },
        ),
        _run(ddl.composite_key_sql(ddl.REPAIR_KEYS)),
        _run(ddl.append_only_sql([TABLE])),
        *(
            migrations.RunSQL(grant_sql(table, verbs, roles), revoke_sql(table, verbs, roles))
            for table, verbs, roles in GRANTS
        ),
        # Tasks that are held already: the last change of their row is the nearest known time.
        migrations.RunSQL(
            "UPDATE tasks_app_task SET held_at = updated_at WHERE status = 'dead_lettered'",
            migrations.RunSQL.noop,
        ),
    ]
