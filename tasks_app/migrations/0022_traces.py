"""Which trace a task belongs to."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tasks_app", "0021_forgetting_answers"),
    ]

    operations = [
        migrations.AddField(
            model_name="task",
            name="traceparent",
            field=models.CharField(blank=True, db_default="", default="", max_length=55),
        ),
        migrations.AddField(
            model_name="task",
            name="tracestate",
            field=models.CharField(blank=True, db_default="", default="", max_length=512),
        ),
    ]
