import uuid

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="AuditEntry",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("stream", models.TextField()),
                ("seq", models.BigIntegerField()),
                ("at", models.DateTimeField()),
                ("envelope", models.TextField()),
                ("details", models.TextField(blank=True, null=True)),
                ("salt", models.BinaryField(blank=True, null=True)),
                ("details_digest", models.BinaryField()),
                ("prev_hash", models.BinaryField()),
                ("hash", models.BinaryField()),
            ],
            options={
                "verbose_name": "audit entry",
                "verbose_name_plural": "audit entries",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("stream", "seq"), name="audit_entry_stream_seq_uniq"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="AuditStream",
            fields=[
                ("stream", models.TextField(primary_key=True, serialize=False)),
                ("tenant_id", models.UUIDField()),
                ("head_seq", models.BigIntegerField()),
                ("head_hash", models.BinaryField()),
            ],
            options={
                "verbose_name": "audit stream",
                "verbose_name_plural": "audit streams",
                "indexes": [
                    models.Index(fields=["tenant_id", "stream"], name="audit_stream_tenant_idx")
                ],
            },
        ),
        migrations.CreateModel(
            name="Effect",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("tenant_id", models.UUIDField()),
                ("task_id", models.UUIDField()),
                ("step_key", models.TextField()),
                ("key", models.TextField()),
                ("kind", models.TextField()),
                ("tool", models.TextField()),
                ("target", models.TextField(blank=True, default="")),
                ("args_sha256", models.TextField()),
                ("state", models.TextField()),
                ("attempts", models.PositiveIntegerField()),
                ("fence", models.BigIntegerField()),
                ("approval_id", models.UUIDField(blank=True, null=True)),
                ("request", models.JSONField()),
                ("response", models.JSONField(blank=True, null=True)),
                ("error", models.JSONField(blank=True, null=True)),
                ("begun_at", models.DateTimeField(blank=True, null=True)),
                ("settled_at", models.DateTimeField(blank=True, null=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
            options={
                "verbose_name": "effect",
                "verbose_name_plural": "effects",
                "indexes": [
                    models.Index(fields=["task_id", "id"], name="effect_task_idx"),
                    models.Index(
                        condition=models.Q(("state__in", ["begun", "in_doubt"])),
                        fields=["tenant_id", "id"],
                        name="effect_open_idx",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("tenant_id", "key"), name="effect_tenant_key_uniq"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "state__in",
                                [
                                    "planned",
                                    "begun",
                                    "succeeded",
                                    "failed",
                                    "in_doubt",
                                    "compensated",
                                ],
                            )
                        ),
                        name="effect_state_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("kind__in", ["keyed", "queryable", "opaque"])),
                        name="effect_kind_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("args_sha256__regex", "^[0-9a-f]{64}$")),
                        name="effect_args_sha256_form",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("fence__gte", 0)), name="effect_fence_not_negative"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("state__in", ["planned", "failed"]),
                            ("begun_at__isnull", False),
                            _connector="OR",
                        ),
                        name="effect_begun_at_set",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("settled_at__isnull", True),
                                ("state__in", ["begun", "in_doubt", "planned"]),
                            ),
                            models.Q(
                                ("settled_at__isnull", False),
                                ("state__in", ["compensated", "failed", "succeeded"]),
                            ),
                            _connector="OR",
                        ),
                        name="effect_settled_at_set",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Receipt",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("tenant_id", models.UUIDField()),
                ("task_id", models.UUIDField()),
                ("outcome", models.TextField()),
                ("items", models.JSONField()),
                ("effects", models.JSONField()),
                ("document", models.TextField()),
                ("sha256", models.TextField()),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
            options={
                "verbose_name": "receipt",
                "verbose_name_plural": "receipts",
                "indexes": [
                    models.Index(fields=["tenant_id", "task_id"], name="receipt_tenant_idx")
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("task_id",), name="receipt_task_uniq"),
                    models.CheckConstraint(
                        condition=models.Q(("sha256__regex", "^[0-9a-f]{64}$")),
                        name="receipt_sha256_form",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Usage",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("tenant_id", models.UUIDField()),
                ("task_id", models.UUIDField()),
                ("source_id", models.TextField()),
                ("caller", models.TextField()),
                ("model", models.TextField()),
                ("input_tokens", models.BigIntegerField()),
                ("output_tokens", models.BigIntegerField()),
                ("cost_micros", models.BigIntegerField()),
                ("currency", models.CharField(max_length=3)),
                ("attributed", models.BooleanField()),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "verbose_name": "usage",
                "verbose_name_plural": "usage",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("task_id", "source_id"), name="usage_task_source_uniq"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("cost_micros__gte", 0),
                            ("input_tokens__gte", 0),
                            ("output_tokens__gte", 0),
                        ),
                        name="usage_not_negative",
                    ),
                ],
            },
        ),
    ]
