"""What a task's page shows besides the snapshot."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from tasks_app.domain.errors import NotFoundError
from tasks_app.domain.principal import Principal
from tasks_app.models import Task
from tasks_app.queries.commands import CommandRow, list_newest_commands
from tasks_app.queries.rows import row_of

_COLUMNS = (
    "tenant_id", "agent__name", "source", "fence", "lease_expires_at", "next_wake_at",
    "recoveries", "checkpoint_policy", "approval_policy",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """What a task's page shows besides the snapshot."""

    agent: str
    source: str
    fence: int
    lease_expires_at: datetime | None
    next_wake_at: datetime | None
    recoveries_in_a_row: int
    checkpoint_policy: Mapping[str, Any]
    approval_policy: Mapping[str, Any]
    last_command: CommandRow | None


def get_facts(principal: Principal, task_id: UUID) -> TaskFacts:
    """Return the facts of a visible task that are not in its snapshot.

    Raises:
        NotFoundError: no such task, or not the caller's to see.
    """
    rows = Task.objects.visible_to(principal).filter(pk=task_id)
    task = rows.select_related("agent").only(*_COLUMNS).first()
    if task is None:
        raise NotFoundError("Not found.")
    return row_of(
        TaskFacts,
        task,
        agent=task.agent.name,
        recoveries_in_a_row=task.recoveries,
        last_command=next(iter(list_newest_commands(principal, task_id, limit=1)), None),
    )
