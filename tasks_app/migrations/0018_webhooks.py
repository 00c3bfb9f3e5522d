"""Webhooks: who is told about tasks, and what is owed to them."""

import uuid

import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

from ledger_app.sql import READONLY, RUNTIME_ROLES, grant_sql, revoke_sql
from tasks_app.models import ddl

TABLES = ("tasks_app_webhookendpoint", "tasks_app_webhookdelivery")
GRANTS = tuple(
    grant
    for table in TABLES
    for grant in (
        (table, ("SELECT", "INSERT", "UPDATE"), RUNTIME_ROLES),
        (table, ("SELECT",), (READONLY,)),
    )
)


class Migration(migrations.Migration):
    dependencies = [
        ("tasks_app", "0017_kept_answers"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="task",
            name="webhook_url",
            field=models.CharField(blank=True, db_default="", default="", max_length=2000),
        ),
        migrations.CreateModel(
            name="WebhookEndpoint",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("url", models.CharField(max_length=2000)),
                ("hears_all", models.BooleanField(default=False)),
                ("secret_version", models.PositiveIntegerField(default=1)),
                ("previous_until", models.DateTimeField(null=True)),
                ("failures", models.PositiveIntegerField(default=0)),
                ("next_try_at", models.DateTimeField(null=True)),
                ("disabled_at", models.DateTimeField(null=True)),
                ("disabled_reason", models.CharField(blank=True, default="", max_length=500)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "created_by",
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
            ],
            options={
                "verbose_name": "webhook endpoint",
                "verbose_name_plural": "webhook endpoints",
            },
        ),
        migrations.CreateModel(
            name="WebhookDelivery",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("seq", models.BigIntegerField()),
                ("status", models.CharField(max_length=16)),
                ("state_version", models.PositiveIntegerField()),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("state", models.CharField(default="pending", max_length=10)),
                ("tries", models.PositiveIntegerField(default=0)),
                (
                    "next_try_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("last_status", models.PositiveSmallIntegerField(null=True)),
                ("last_error", models.CharField(blank=True, default="", max_length=100)),
                ("settled_at", models.DateTimeField(null=True)),
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
                (
                    "endpoint",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="tasks_app.webhookendpoint",
                    ),
                ),
            ],
            options={
                "verbose_name": "webhook delivery",
                "verbose_name_plural": "webhook deliveries",
            },
        ),
        migrations.AddField(
            model_name="task",
            name="webhook",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tasks_app.webhookendpoint",
            ),
        ),
        migrations.AddConstraint(
            model_name="webhookendpoint",
            constraint=models.UniqueConstraint(
                fields=("tenant", "url"), name="webhook_tenant_url_uniq"
            ),
        ),
        migrations.AddConstraint(
            model_name="webhookendpoint",
            constraint=models.UniqueConstraint(
                fields=("tenant", "id"), name="webhook_tenant_id_uniq"
            ),
        ),
        migrations.AddIndex(
            model_name="webhookdelivery",
            index=models.Index(
                models.F("next_try_at"),
                condition=models.Q(("state", "pending")),
                name="delivery_due_idx",
            ),
        ),
        migrations.AddIndex(
            model_name="webhookdelivery",
            index=models.Index(
                models.F("endpoint"),
                models.OrderBy(models.F("id"), descending=True),
                name="delivery_list_idx",
            ),
        ),
        migrations.AddConstraint(
            model_name="webhookdelivery",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ("pending", "delivered", "failed", "held"))),
                name="delivery_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="webhookdelivery",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("settled_at__isnull", False), ("state__in", ("delivered", "failed"))),
                    models.Q(("settled_at__isnull", True), ("state__in", ("pending", "held"))),
                    _connector="OR",
                ),
                name="delivery_settled_at_set",
            ),
        ),
        migrations.AddConstraint(
            model_name="webhookdelivery",
            constraint=models.UniqueConstraint(
                fields=("endpoint", "task", "seq"), name="delivery_event_uniq"
            ),
        ),
        migrations.RunSQL(*ddl.composite_key_sql(ddl.WEBHOOK_KEYS)),
        *(
            migrations.RunSQL(grant_sql(table, verbs, roles), revoke_sql(table, verbs, roles))
            for table, verbs, roles in GRANTS
        ),
    ]
