"""Budgets, what is taken out of them, prices, and how long slices worked on a task."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

from ledger_app.sql import READONLY, RUNTIME_ROLES, WEB, WORKER, grant_sql, revoke_sql
from tasks_app.models import ddl

CHANGE = ("SELECT", "INSERT", "UPDATE")
GRANTS = (
    ("tasks_app_budget", CHANGE, RUNTIME_ROLES),
    ("tasks_app_reservation", CHANGE, RUNTIME_ROLES),
    ("tasks_app_price", ("SELECT", "INSERT"), (WEB,)),
    ("tasks_app_price", ("SELECT",), (WORKER,)),
    *(
        (f"tasks_app_{name}", ("SELECT",), (READONLY,))
        for name in ("budget", "reservation", "price")
    ),
)


class Migration(migrations.Migration):
    dependencies = [
        ("tasks_app", "0009_closing"),
    ]

    operations = [
        migrations.AddField(
            model_name="task",
            name="active_seconds",
            field=models.FloatField(default=0),
        ),
        migrations.CreateModel(
            name="Budget",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("kind", models.CharField(max_length=16)),
                ("period", models.CharField(blank=True, default="", max_length=8)),
                ("period_start", models.DateField(null=True)),
                ("limit_amount", models.BigIntegerField(null=True)),
                ("spent", models.BigIntegerField(default=0)),
                ("reserved", models.BigIntegerField(default=0)),
                (
                    "updated_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "agent",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="tasks_app.agentidentity",
                    ),
                ),
                (
                    "task",
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
                "verbose_name": "budget",
                "verbose_name_plural": "budgets",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "kind__in",
                                ("steps", "active_seconds", "tool_calls", "tokens", "money_micros"),
                            )
                        ),
                        name="budget_kind_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("period__in", ("", "day", "month"))),
                        name="budget_period_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("reserved__gte", 0), ("spent__gte", 0)),
                        name="budget_not_negative",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("task__isnull", True),
                            models.Q(("agent__isnull", True), ("period", "")),
                            _connector="OR",
                        ),
                        name="budget_one_level",
                    ),
                    models.UniqueConstraint(fields=("tenant", "id"), name="budget_tenant_id_uniq"),
                    models.UniqueConstraint(
                        condition=models.Q(("task__isnull", True)),
                        fields=("tenant", "agent", "kind", "period"),
                        name="budget_level_uniq",
                        nulls_distinct=False,
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("task__isnull", False)),
                        fields=("task", "kind"),
                        name="budget_task_kind_uniq",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Price",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("subject", models.CharField(max_length=128)),
                ("unit", models.CharField(max_length=16)),
                ("version", models.PositiveIntegerField()),
                ("micros_per_million", models.BigIntegerField()),
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
                "verbose_name": "price",
                "verbose_name_plural": "prices",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("unit__in", ("input_token", "output_token", "call"))),
                        name="price_unit_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("micros_per_million__gte", 0)),
                        name="price_not_negative",
                    ),
                    models.UniqueConstraint(
                        fields=("tenant", "subject", "unit", "version"), name="price_version_uniq"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Reservation",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("source", models.CharField(max_length=200)),
                ("kind", models.CharField(max_length=16)),
                ("amount", models.BigIntegerField()),
                ("charged", models.BigIntegerField(db_default=0)),
                ("state", models.CharField(default="reserved", max_length=12)),
                ("fence", models.BigIntegerField(default=0)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
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
            ],
            options={
                "verbose_name": "reservation",
                "verbose_name_plural": "reservations",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "kind__in",
                                ("steps", "active_seconds", "tool_calls", "tokens", "money_micros"),
                            )
                        ),
                        name="reservation_kind_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ("reserved", "settled", "released"))),
                        name="reservation_state_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("amount__gte", 0)), name="reservation_not_negative"
                    ),
                    models.UniqueConstraint(
                        fields=("task", "source", "kind"), name="reservation_source_uniq"
                    ),
                ],
            },
        ),
        migrations.RunSQL(*ddl.composite_key_sql(ddl.BUDGET_KEYS)),
        migrations.RunSQL(*ddl.append_only_sql(["tasks_app_price"])),
        *(
            migrations.RunSQL(grant_sql(table, verbs, roles), revoke_sql(table, verbs, roles))
            for table, verbs, roles in GRANTS
        ),
    ]
