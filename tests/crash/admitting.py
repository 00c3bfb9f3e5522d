"""A program that admits one task and prints its id: the admitting process of a crash test.

Arguments: id of the tenant, id of the user, the goal as JSON.
"""

import json
import sys
from uuid import UUID


def main() -> None:
    """Admit the task as a web process would."""
    import django

    django.setup()
    from django.contrib.auth.models import User

    from tasks_app.admission import principal, tasks

    tenant_id, user_id, goal = sys.argv[1:]
    by = principal.from_user(User.objects.get(pk=user_id), UUID(tenant_id))
    admitted = tasks.admit_task(
        by, workflow="scripted", goal=json.loads(goal), source="rest", idempotency_key="once"
    )
    sys.stdout.write(f"{admitted.task_id}\n")


if __name__ == "__main__":
    main()
