"""The sweeper deletes answers that are kept long enough."""

from django.db import migrations

from ledger_app.sql import WORKER, grant_sql, revoke_sql

TABLE = "tasks_app_keptanswer"


class Migration(migrations.Migration):
    dependencies = [("tasks_app", "0020_external_identities")]

    operations = [
        migrations.RunSQL(
            grant_sql(TABLE, ("DELETE",), (WORKER,)), revoke_sql(TABLE, ("DELETE",), (WORKER,))
        ),
    ]
