"""Schedules: tasks that are started at times."""

import uuid

import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

import tasks_app.domain.schedules
from ledger_app.sql import READONLY, RUNTIME_ROLES, grant_sql, revoke_sql
from tasks_app.models import ddl

TABLE = "tasks_app_schedule"
GRANTS = (
    (TABLE, ("SELECT", "INSERT", "UPDATE"), RUNTIME_ROLES),
    (TABLE, ("SELECT",), (READONLY,)),
)


class Migration(migrations.Migration):
    dependencies = [
        ("tasks_app", "0014_threads"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Schedule",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("name", models.CharField(max_length=100)),
                ("workflow", models.CharField(max_length=100)),
                ("goal", models.JSONField()),
                ("title", models.CharField(blank=True, default="", max_length=200)),
                ("priority", models.PositiveSmallIntegerField(default=5)),
                ("budget", models.JSONField(default=dict)),
                ("cron", models.CharField(blank=True, default="", max_length=100)),
                ("interval_seconds", models.PositiveIntegerField(null=True)),
                ("time_zone", models.CharField(default="UTC", max_length=64)),
                (
                    "overlap",
                    models.CharField(
                        default=tasks_app.domain.schedules.Overlap["SKIP"], max_length=16
                    ),
                ),
                ("catch_up_limit", models.PositiveSmallIntegerField(default=1)),
                ("jitter_seconds", models.PositiveSmallIntegerField(default=0)),
                ("starts_at", models.DateTimeField()),
                ("due_at", models.DateTimeField(null=True)),
                ("fires_at", models.DateTimeField(null=True)),
                ("paused_at", models.DateTimeField(null=True)),
                ("pause_reason", models.CharField(blank=True, default="", max_length=500)),
                ("deleted_at", models.DateTimeField(null=True)),
                ("fired", models.PositiveIntegerField(default=0)),
                ("skipped", models.PositiveIntegerField(default=0)),
                ("last_fired_at", models.DateTimeField(null=True)),
                ("last_error", models.JSONField(null=True)),
                ("version", models.PositiveIntegerField(default=1)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "updated_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "last_task",
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
                    "owner",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
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
                (
                    "thread",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="tasks_app.thread",
                    ),
                ),
            ],
            options={
                "verbose_name": "schedule",
                "verbose_name_plural": "schedules",
                "indexes": [
                    models.Index(
                        models.F("fires_at"),
                        condition=models.Q(("fires_at__isnull", False)),
                        name="schedule_due_idx",
                    ),
                    models.Index(
                        models.F("tenant"),
                        models.OrderBy(models.F("created_at"), descending=True),
                        models.OrderBy(models.F("id"), descending=True),
                        name="schedule_list_idx",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("overlap__in", ["skip", "queue", "cancel_previous"])),
                        name="schedule_overlap_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("priority__lte", 9)), name="schedule_priority_range"
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("deleted_at__isnull", True)),
                        fields=("tenant", "name"),
                        name="schedule_name_uniq",
                    ),
                ],
            },
        ),
        migrations.RunSQL(*ddl.composite_key_sql(ddl.SCHEDULE_KEYS)),
        *(
            migrations.RunSQL(grant_sql(table, verbs, roles), revoke_sql(table, verbs, roles))
            for table, verbs, roles in GRANTS
        ),
    ]
