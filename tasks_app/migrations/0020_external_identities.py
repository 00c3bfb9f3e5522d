"""Whom subjects of another issuer of tokens stand for."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

from ledger_app.sql import WEB, grant_sql, revoke_sql

TABLE = "tasks_app_externalidentity"


class Migration(migrations.Migration):
    dependencies = [
        ("tasks_app", "0019_mcp"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="ExternalIdentity",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("issuer", models.CharField(max_length=300)),
                ("subject", models.CharField(max_length=255)),
                (
                    "linked_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="tasks_app.tenant",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "verbose_name": "external identity",
                "verbose_name_plural": "external identities",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("issuer", "subject"), name="identity_subject_uniq"
                    )
                ],
            },
        ),
        migrations.RunSQL(
            grant_sql(TABLE, ("SELECT",), (WEB,)), revoke_sql(TABLE, ("SELECT",), (WEB,))
        ),
    ]
