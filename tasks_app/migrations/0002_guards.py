"""Composite foreign keys, the edge trigger, append-only histories, fill factors."""

from django.db import migrations

from tasks_app.models import ddl


def _run(pair: tuple[str, str]) -> migrations.RunSQL:
    forward, backward = pair
    return migrations.RunSQL(forward, backward)


class Migration(migrations.Migration):
    dependencies = [("tasks_app", "0001_initial")]

    operations = [
        _run(ddl.composite_key_sql()),
        _run(ddl.edge_trigger_sql()),
        _run(ddl.append_only_sql()),
        _run(ddl.storage_sql()),
    ]
