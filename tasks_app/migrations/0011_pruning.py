"""Old checkpoints without a name may be removed by the processes, and no others."""

from django.db import migrations

from ledger_app.sql import RUNTIME_ROLES, grant_sql, revoke_sql
from tasks_app.models import ddl

TABLE = "tasks_app_checkpoint"


class Migration(migrations.Migration):
    dependencies = [("tasks_app", "0010_budgets")]

    operations = [
        migrations.RunSQL(*ddl.pruning_sql()),
        migrations.RunSQL(
            grant_sql(TABLE, ("DELETE",), RUNTIME_ROLES),
            revoke_sql(TABLE, ("DELETE",), RUNTIME_ROLES),
        ),
    ]
