"""Whoever acts on a task says which version of it was seen; only the present one is acted on (E6)."""

from tasks_app.domain.errors import (
    TaskTerminalError,
    VersionConflictError,
    VersionRequiredError,
)
from tasks_app.domain.states import TERMINAL
from tasks_app.models import Repair, SteeringCommand, Task


def require_version(task: Task, expected_version: int | None) -> None:
    """Refuse an act on a task that has moved on since, or has ended; the caller holds its row.

    Raises:
        VersionRequiredError, TaskTerminalError, VersionConflictError.
    """
    if expected_version is None:
        raise VersionRequiredError(
            "Say which version of the task you act on (expectedVersion).",
            currentVersion=task.state_version,
        )
    if task.status in TERMINAL:
        raise TaskTerminalError(f"The task has ended as {task.status}.", currentStatus=task.status)
    if expected_version != task.state_version:
        raise VersionConflictError(
            f"The task is at version {task.state_version}, not {expected_version}.",
            currentVersion=task.state_version,
            currentStatus=task.status,
            **_last_change(task),
        )


def _last_change(task: Task) -> dict[str, object]:
    """Tell who changed the task last, so that a person can look before trying again."""
    found = []
    for model, what in ((SteeringCommand, "type"), (Repair, "verb")):
        rows = model.objects.for_tenant(task.tenant_id).filter(task_id=task.id)
        last = rows.select_related("requested_by").order_by("-id").first()
        if last is not None:
            found.append((last.created_at, last, str(getattr(last, what))))
    if not found:
        return {"changedBy": None}
    _, last, change = max(found, key=lambda item: item[0])
    return {
        "changedBy": last.requested_by.get_username(),
        "change": change,
        "changeReason": last.reason,
    }
