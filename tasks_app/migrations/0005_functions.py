"""Steps of functions: the turn they belong to, and two more kinds."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tasks_app", "0004_repairs"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="step",
            name="step_kind_known",
        ),
        migrations.AddField(
            model_name="step",
            name="scope",
            field=models.CharField(max_length=100, null=True),
        ),
        migrations.AddIndex(
            model_name="step",
            index=models.Index(
                models.F("task"),
                models.F("scope"),
                condition=models.Q(("retired_in__isnull", True), ("scope__isnull", False)),
                name="step_scope_idx",
            ),
        ),
        migrations.AddConstraint(
            model_name="step",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "kind__in",
                        ("step", "map", "approval", "question", "effect", "sleep", "loop", "child"),
                    )
                ),
                name="step_kind_known",
            ),
        ),
    ]
