"""Calls of tools that a run leaves without a result: answered, so that its thread can go on.

A model refuses a conversation in which one of its calls has no answer (runs contract R61).
"""

from typing import Any
from uuid import UUID, uuid5

from tasks_app.domain.conversation import MESSAGE
from tasks_app.engine import transitions
from tasks_app.models import Event


def answer(tenant_id: UUID, task_id: UUID, outcome: str) -> None:
    """Add a message for each call of a run that ends like this and that nothing has answered.

    Transaction: the caller's, which holds the task and ends it. Locks: the task row.
    """
    messages = Event.objects.for_tenant(tenant_id).filter(task_id=task_id, type=MESSAGE)
    calls: dict[str, dict[str, Any]] = {}
    for data in messages.order_by("seq").values_list("data", flat=True):
        calls |= {str(call["id"]): call for call in data.get("toolCalls", ()) if call.get("id")}
        calls.pop(str(data.get("toolCallId", "")), None)
    for call_id, call in calls.items():
        told: dict[str, Any] = {
            "id": str(uuid5(task_id, f"call:{call_id}")),
            "type": "tool",
            "content": f"The run has {_HOW.get(outcome, 'ended')} before this call had a result.",
            "toolCallId": call_id,
            "additionalKwargs": {"status": outcome},
        }
        named: dict[str, Any] = {"name": str(call["name"])} if call.get("name") else {}
        transitions.append_event(task_id, tenant_id, MESSAGE, told | named)


_HOW = {"cancelled": "been cancelled", "failed": "failed"}
