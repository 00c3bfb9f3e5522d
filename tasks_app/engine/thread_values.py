"""The values of a thread: what a run's journal says about them, put on top of what was before.

Messages, changed values and outputs are events, committed with the step that made them; so the
values after any event can be told, and nothing but the last ones is stored (as a ThreadState).
"""

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid5

from pydantic_core import to_jsonable_python

from ledger_app.domain.canonical import cleaned
from tasks_app.domain.conversation import CHANGES, apply, begin, complete
from tasks_app.domain.errors import ConfigurationError
from tasks_app.domain.run_bodies import MESSAGE_TYPES
from tasks_app.engine import secret_values
from tasks_app.models import Event, Run, Task

__all__ = ["apply", "checked", "complete", "fold", "messages_of", "seen_by"]

# What one event of a message or of values may hold.
MAX_BYTES = 256 * 1024


def messages_of(given: Any, task_id: UUID) -> list[dict[str, Any]]:
    """Return the messages of a run's input in stored form, each with an id and a type."""
    listed = given.get("messages") if isinstance(given, Mapping) else None
    return [
        {
            "id": str(uuid5(task_id, f"input:{number}")),
            **{key: value for key, value in message.items() if key != "role"},
            "type": MESSAGE_TYPES[message.get("type") or message["role"]],
        }
        for number, message in enumerate(listed or [])
    ]


def checked(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of an event as it may be stored: JSON, bounded, without secrets.

    Raises: ConfigurationError.
    """
    try:
        text = json.dumps(cleaned(to_jsonable_python(data)), ensure_ascii=False)
    except Exception as error:
        raise ConfigurationError(f"messages and values must be JSON data: {error}") from error
    if len(text.encode()) > MAX_BYTES:
        raise ConfigurationError(f"messages and values have at most {MAX_BYTES} bytes")
    found: dict[str, Any] = json.loads(secret_values.scrub(text))
    return found


def seen_by(tenant_id: UUID, task_id: UUID) -> dict[str, Any]:
    """Return the values of a task's thread when it began, with what it has committed since."""
    runs = Run.objects.for_tenant(tenant_id).filter(pk=task_id)
    base = runs.values_list("base_state__values", flat=True).first()
    return fold(tenant_id, task_id, base or {})


def fold(
    tenant_id: UUID, task_id: UUID, before: Mapping[str, Any], *, up_to: int | None = None
) -> dict[str, Any]:
    """Return the values after a run's events, or after those up to a `seq`.

    The result is there once the task has one and every event counts.
    """
    events = Event.objects.for_tenant(tenant_id).filter(task_id=task_id, type__in=CHANGES)
    if up_to is not None:
        events = events.filter(seq__lte=up_to)
    pairs = events.order_by("seq").values_list("type", "data")
    values = apply(begin(before), pairs)
    if up_to is None:
        tasks = Task.objects.for_tenant(tenant_id).filter(pk=task_id)
        values["result"] = tasks.values_list("result", flat=True).get()
    return values
