"""Runs of threads, and the states that they leave."""

import uuid

import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

import tasks_app.domain.runs
from ledger_app.sql import READONLY, RUNTIME_ROLES, grant_sql, revoke_sql
from tasks_app.models import ddl

GRANTS = (
    ("tasks_app_run", ("SELECT", "INSERT", "UPDATE"), RUNTIME_ROLES),
    ("tasks_app_threadstate", ("SELECT", "INSERT"), RUNTIME_ROLES),
    *((f"tasks_app_{name}", ("SELECT",), (READONLY,)) for name in ("run", "threadstate")),
)


class Migration(migrations.Migration):
    dependencies = [
        ("tasks_app", "0013_step_outcome"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Run",
            fields=[
                (
                    "task",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="run",
                        serialize=False,
                        to="tasks_app.task",
                    ),
                ),
                ("number", models.BigIntegerField()),
                ("slot", models.CharField(max_length=8)),
                ("strategy", models.CharField(max_length=10)),
                ("cancel_action", models.CharField(blank=True, default="", max_length=10)),
                ("cancel_reason", models.CharField(blank=True, default="", max_length=24)),
                ("cancels_on_disconnect", models.BooleanField(default=False)),
                ("disconnect_deadline", models.DateTimeField(null=True)),
                ("not_before", models.DateTimeField(null=True)),
                ("request", models.JSONField(default=dict)),
                ("metadata", models.JSONField(default=dict)),
                ("server_context", models.JSONField(default=dict)),
                ("hidden_at", models.DateTimeField(null=True)),
            ],
            options={
                "verbose_name": "run",
                "verbose_name_plural": "runs",
            },
        ),
        migrations.CreateModel(
            name="ThreadState",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("seq", models.BigIntegerField()),
                ("source", models.CharField(max_length=10)),
                ("values", models.JSONField()),
                ("metadata", models.JSONField(default=dict)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
            options={
                "verbose_name": "thread state",
                "verbose_name_plural": "thread states",
            },
        ),
        migrations.AddField(
            model_name="task",
            name="awaits_slot",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name="thread",
            name="deleted_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddConstraint(
            model_name="task",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("awaits_slot", False), ("next_wake_at__isnull", True), _connector="OR"
                ),
                name="task_not_due_before_turn",
            ),
        ),
        migrations.AddField(
            model_name="run",
            name="tenant",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tasks_app.tenant",
            ),
        ),
        migrations.AddField(
            model_name="run",
            name="thread",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="runs",
                to="tasks_app.thread",
            ),
        ),
        migrations.AddField(
            model_name="threadstate",
            name="parent",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tasks_app.threadstate",
            ),
        ),
        migrations.AddField(
            model_name="threadstate",
            name="task",
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
            model_name="threadstate",
            name="tenant",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tasks_app.tenant",
            ),
        ),
        migrations.AddField(
            model_name="threadstate",
            name="thread",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="states",
                to="tasks_app.thread",
            ),
        ),
        migrations.AddField(
            model_name="run",
            name="base_state",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tasks_app.threadstate",
            ),
        ),
        migrations.AddField(
            model_name="run",
            name="final_state",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tasks_app.threadstate",
            ),
        ),
        migrations.AddConstraint(
            model_name="threadstate",
            constraint=models.UniqueConstraint(
                fields=("thread", "seq"), name="state_thread_seq_uniq"
            ),
        ),
        migrations.AddConstraint(
            model_name="threadstate",
            constraint=models.UniqueConstraint(
                fields=("tenant", "id"), name="state_tenant_id_uniq"
            ),
        ),
        migrations.AddConstraint(
            model_name="threadstate",
            constraint=models.CheckConstraint(
                condition=models.Q(("source__in", ("run", "update", "rollback"))),
                name="state_source_known",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                models.F("thread"),
                models.F("number"),
                condition=models.Q(("slot", tasks_app.domain.runs.Slot["WAITING"])),
                name="run_waiting_idx",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                models.F("not_before"),
                condition=models.Q(
                    ("not_before__isnull", False), ("slot", tasks_app.domain.runs.Slot["WAITING"])
                ),
                name="run_not_before_idx",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                models.F("disconnect_deadline"),
                condition=models.Q(("disconnect_deadline__isnull", False)),
                name="run_deserted_idx",
            ),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.CheckConstraint(
                condition=models.Q(("slot__in", ["waiting", "holding", "released"])),
                name="run_slot_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("strategy__in", ["reject", "enqueue", "interrupt", "rollback"])
                ),
                name="run_strategy_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.CheckConstraint(
                condition=models.Q(("cancel_action__in", ["", "interrupt", "rollback"])),
                name="run_cancel_action_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.UniqueConstraint(
                condition=models.Q(("slot", tasks_app.domain.runs.Slot["HOLDING"])),
                fields=("thread",),
                name="run_thread_slot_uniq",
            ),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.UniqueConstraint(
                fields=("thread", "number"), name="run_thread_number_uniq"
            ),
        ),
        migrations.RunSQL(*ddl.composite_key_sql(ddl.THREAD_KEYS)),
        migrations.RunSQL(*ddl.append_only_sql(["tasks_app_threadstate"])),
        *(
            migrations.RunSQL(grant_sql(table, verbs, roles), revoke_sql(table, verbs, roles))
            for table, verbs, roles in GRANTS
        ),
    ]
