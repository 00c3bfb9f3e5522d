"""The files of a thread as a part of each of its states."""

from django.db import migrations, models
from django.db.models import Value


class Migration(migrations.Migration):
    dependencies = [("tasks_app", "0015_schedules")]

    operations = [
        migrations.AddField(
            model_name="threadstate",
            name="workspace",
            field=models.JSONField(db_default=Value({}, models.JSONField()), default=dict),
        ),
    ]
