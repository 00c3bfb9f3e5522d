"""How a task ends once what it did is undone."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tasks_app", "0008_children")]

    operations = [
        migrations.AddField(
            model_name="task",
            name="closing_as",
            field=models.CharField(blank=True, default="", max_length=16),
        ),
        migrations.AddField(
            model_name="task",
            name="closing",
            field=models.JSONField(null=True),
        ),
        migrations.AddConstraint(
            model_name="task",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("closing__isnull", True), ("closing_as", "")),
                    models.Q(
                        ("closing__isnull", False),
                        ("closing_as__in", ["cancelled", "failed"]),
                    ),
                    _connector="OR",
                ),
                name="task_closing_known",
            ),
        ),
    ]
