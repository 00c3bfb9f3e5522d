"""What a task's journal tells of its children (runs contract R72).

A child is known by its own id, the execution id; the id from outside that its parent was given for
it is only told. Start and joined end are told in the parent's commits. That it runs, and the end of
one that nobody waits for, are told by the child's worker: a crash just then leaves them out.
"""

import json
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid5

from django.db import transaction

from ledger_app.domain.canonical import digest_of
from ledger_app.queries import total_usage
from tasks_app.domain.states import TERMINAL, TaskStatus
from tasks_app.engine import transitions
from tasks_app.events.catalogue import ChildData, EventType
from tasks_app.models import Event, Step, Task

# A tool's message shows a result up to this many characters; the child has all of it.
MAX_SHOWN = 64 * 1024
# How often, and how far apart, a child that begins looks whether its parent's row is free.
TRIES, PAUSE_SECONDS = 5, 0.02
_TOKENS = ("input_tokens", "output_tokens")


def facts_of(step: Step, child_id: UUID, status: str) -> ChildData:
    """Return an event of the child that a step has started."""
    return {
        "status": status,
        "executionId": str(child_id),
        "externalId": str(step.options.get("external_id", "")),
        "workflow": step.options["workflow"],
        "step": step.key,
    }


def end_of(step: Step, child: Task) -> ChildData:
    """Return the event of a child's end, with what it used."""
    used = total_usage(tenant_id=child.tenant_id, task_ids=[child.id])
    spent, made = (sum(getattr(row, name) for row in used) for name in _TOKENS)
    told = facts_of(step, child.id, _end_word(child))
    told["tokenUsage"] = {"input": spent, "output": made, "total": spent + made}
    if child.status == TaskStatus.COMPLETED:
        told["resultSha256"] = digest_of({"result": child.result})
    else:
        told["message"] = str((child.error or {}).get("message") or child.stop_reason)
    return told


def answer_of(step: Step, child: Task, end: ChildData) -> dict[str, Any]:
    """Return the message by which a child answers the call of a tool that started it."""
    result = child.result if child.status == TaskStatus.COMPLETED else end["message"]
    text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
    return {
        "id": str(uuid5(child.id, "answer")),
        "type": "tool",
        "content": text if len(text) <= MAX_SHOWN else "The result is too large to be shown.",
        "name": end["workflow"],
        "toolCallId": end["externalId"],
        "additionalKwargs": {
            "subagent_status": end["status"],
            "subagent_result_sha256": end.get("resultSha256"),
            "subagent_token_usage": end["tokenUsage"],
            # R74: only with the message that made the call; without the mark it is nobody's yet.
            **({"subagent_token_usage_attributed": True} if _is_called(step, end) else {}),
            "execution_id": end["executionId"],
        },
        "step": step.key,
    }


def _is_called(step: Step, end: ChildData) -> bool:
    """Tell whether a message of the task made the call that started a child."""
    messages = Event.objects.for_tenant(step.tenant_id).filter(
        task_id=step.task_id, type=EventType.MESSAGE
    )
    made: bool = messages.filter(data__toolCalls__contains=[{"id": end["externalId"]}]).exists()
    return made


def tell_running(child_id: UUID, tenant_id: UUID, fence: int) -> None:
    """Tell a parent that its child has begun, unless somebody else works on the child by now.

    A child is not held up for this: a parent whose row is locked all the time is not told.

    Transaction: its own. Locks: the parent's row, without waiting; the child is read after that.
    """

    def event(child: Task) -> ChildData | None:
        is_mine = child.fence == fence and child.status not in TERMINAL
        return facts_of(child.parent_step, child_id, "running") if is_mine else None  # type: ignore[arg-type]

    for _ in range(TRIES):
        if _tell(child_id, tenant_id, event, waits=False):
            return
        time.sleep(PAUSE_SECONDS)


def tell_end(child_id: UUID, tenant_id: UUID) -> None:
    """Tell a parent of the end of a child that it does not wait for, or not any more.

    Transaction: its own. Locks: the parent's row.
    """
    rows = Task.objects.for_tenant(tenant_id).filter(pk=child_id)
    facts = rows.values_list("parent_step__options__wait", "parent_step__retired_in")
    waits, retired_in = facts.get()
    if not waits or retired_in is not None:
        _tell(child_id, tenant_id, lambda child: end_of(child.parent_step, child), waits=True)  # type: ignore[arg-type]


def _tell(
    child_id: UUID, tenant_id: UUID, event: Callable[[Task], ChildData | None], *, waits: bool
) -> bool:
    """Add what an event says of a child as it is now; False when the parent's row is locked."""
    tasks = Task.objects.for_tenant(tenant_id)
    parent_id = tasks.values_list("parent_id", flat=True).get(pk=child_id)
    with transaction.atomic(durable=True):
        locked = tasks.select_for_update(no_key=True, skip_locked=not waits)
        parent = locked.filter(pk=parent_id).first()
        if parent is None:
            return False
        told = event(tasks.select_related("parent_step").get(pk=child_id))
        if told is not None and parent.status not in TERMINAL:
            transitions.append_event(parent.id, tenant_id, EventType.CHILD, told)
    return True


def _end_word(child: Task) -> str:
    if child.status == TaskStatus.FAILED and child.stop_reason == "max_duration":
        return "timed_out"
    return str(child.status)
