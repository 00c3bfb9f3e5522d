"""An index for the sweeper: parents that wait for a child, among any number of sleepers."""

from django.conf import settings
from django.db import migrations, models

import tasks_app.domain.states


class Migration(migrations.Migration):
    dependencies = [
        ("tasks_app", "0011_pruning"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                models.F("id"),
                condition=models.Q(
                    ("next_wake_at__isnull", True),
                    ("status", tasks_app.domain.states.TaskStatus["QUEUED"]),
                ),
                name="task_awaiting_child_idx",
            ),
        ),
    ]
