"""A step's outcome touches no index: the one of steps that wait for a child forgets their status."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tasks_app", "0012_awaiting_child")]

    operations = [
        migrations.AddIndex(
            model_name="step",
            index=models.Index(
                models.F("task"),
                condition=models.Q(("kind", "child"), ("retired_in__isnull", True)),
                name="step_child_idx",
            ),
        ),
        migrations.RemoveIndex(model_name="step", name="step_child_waiting_idx"),
    ]
