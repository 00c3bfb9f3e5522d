"""Rows in the words of the run door: JSON of runs, threads, states, events."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from ledger_app.domain.redaction import redact
from tasks_app.domain.conversation import MESSAGE, message_of
from tasks_app.domain.runs import ThreadStatus
from tasks_app.domain.states import TaskStatus
from tasks_app.queries.conversations import CHILD, RunEvent
from tasks_app.queries.run_usage import ThreadUsage
from tasks_app.queries.runs import RunHead, RunRow
from tasks_app.queries.thread_states import Interrupt, StateRow
from tasks_app.queries.threads import ThreadRow
from tasks_app.queries.workspaces import WorkspaceChanges

Json = dict[str, Any]

# Types and categories of events under the door's names; others keep their own, as `runtime`.
_MESSAGES = {
    "human": "llm.human.input",
    "system": "llm.human.input",
    "ai": "llm.ai.response",
    "tool": "llm.tool.result",
}
_TYPES = {
    "terminal": ("run.end", "outputs"),
    "budget": ("budget", "trace"),
    "delivery": ("run.delivery", "outputs"),
    "model_error": ("llm.error", "trace"),
}
# Names of what happened to a task that the run started, by its status.
_CHILDREN = {"started": "subagent.start", "running": "subagent.step"}
_KEYS = {
    "toolCalls": "tool_calls",
    "toolCallId": "tool_call_id",
    "byTool": "by_tool",
    "producedPaths": "produced_paths",
    "matchedPaths": "matched_paths",
    "additionalKwargs": "additional_kwargs",
    "executionId": "execution_id",
    "resultSha256": "result_sha256",
    "tokenUsage": "token_usage",
}


def run_json(row: RunRow) -> Json:
    """Return a run."""
    head, usage = row.head, row.usage
    return {
        "run_id": str(head.task_id),
        "thread_id": head.thread_key,
        "assistant_id": head.workflow,
        "status": head.status,
        "task_status": head.task_status,
        "metadata": redact(dict(row.metadata)),
        "kwargs": redact(dict(head.request)),
        "multitask_strategy": row.strategy,
        "created_at": time_text(row.created_at),
        "updated_at": time_text(row.updated_at),
        "error": error_of(head),
        "stop_reason": head.stop_reason or None,
        "state_version": row.state_version,
        "attempt": head.attempt,
        "total_input_tokens": usage.input_tokens,
        "total_output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "llm_call_count": usage.calls,
        "lead_agent_tokens": usage.by_caller["lead_agent"],
        "subagent_tokens": usage.by_caller["subagent"],
        "middleware_tokens": usage.by_caller["middleware"],
        "message_count": row.message_count,
        "final_checkpoint_id": None if head.final_state_id is None else str(head.final_state_id),
    }


def error_of(head: RunHead) -> Json | None:
    """Return why a run failed; None unless it did."""
    if head.task_status is not TaskStatus.FAILED:
        return None
    error = head.error or {}
    name = error.get("type") or error.get("code") or "RunError"
    return {"error": str(name), "message": str(error.get("message") or head.stop_reason)}


def thread_json(row: ThreadRow, interrupts: Iterable[Interrupt] = ()) -> Json:
    """Return a thread with the values of its head."""
    listed = [interrupt_json(one) for one in interrupts]
    shown = {str(row.run_id): listed} if listed and row.run_id else {}
    return {
        "thread_id": row.key,
        "created_at": time_text(row.created_at),
        "updated_at": time_text(row.updated_at),
        "metadata": redact(dict(row.metadata)),
        "status": row.status,
        "values": None if row.values is None else values_json(row.values),
        "interrupts": shown,
        "config": {},
    }


def waits_for_a_person(row: ThreadRow) -> bool:
    """Tell whether the thread's interrupts are worth asking for."""
    return row.status is ThreadStatus.INTERRUPTED and row.run_id is not None


def state_json(state: StateRow) -> Json:
    """Return a state of a thread."""
    interrupts = [interrupt_json(one) for one in state.interrupts]
    tasks = [
        {
            "id": str(state.task_id),
            "name": name,
            "error": None,
            "interrupts": interrupts,
            "checkpoint": None,
            "state": None,
        }
        for name in state.next[:1]
        if state.task_id is not None
    ]
    return {
        "values": values_json(state.values),
        "next": list(state.next),
        "tasks": tasks,
        "checkpoint": checkpoint_json(state.thread_key, state.checkpoint_id),
        "metadata": dict(state.metadata),
        "created_at": None if state.created_at is None else time_text(state.created_at),
        "parent_checkpoint": None
        if state.parent_id is None
        else checkpoint_json(state.thread_key, state.parent_id),
        "interrupts": interrupts,
    }


def checkpoint_json(thread_key: str, checkpoint_id: str | None) -> Json:
    """Return the name of a state."""
    return {"thread_id": thread_key, "checkpoint_ns": "", "checkpoint_id": checkpoint_id}


def interrupt_json(interrupt: Interrupt) -> Json:
    """Return what a run waits for."""
    return {"id": interrupt.id, "value": interrupt.value}


def values_json(values: Mapping[str, Any]) -> Json:
    """Return values with their messages as clients know them."""
    messages = values.get("messages")
    if not isinstance(messages, list):
        return dict(values)
    return {**values, "messages": [message_json(one) for one in messages]}


def message_json(message: Mapping[str, Any]) -> Json:
    """Return a message as clients know it."""
    return data_json(message_of(message))


def child_json(data: Mapping[str, Any]) -> Json:
    """Return what happened to a task that the run started; `task_id` is its id from outside."""
    rest = {key: value for key, value in data.items() if key not in {"status", "externalId"}}
    task_id = data["externalId"] or data["executionId"]
    return {"type": f"task_{data['status']}", "task_id": task_id, **data_json(rest)}


def data_json(data: Mapping[str, Any]) -> Json:
    """Return an event's data under the names that clients know."""
    return {_KEYS.get(key, key): value for key, value in data.items()}


def event_json(event: RunEvent, thread_key: str) -> Json:
    """Return an event of a run."""
    name, category = event_type_of(event.type, event.data)
    said_by = {"step": event.data["step"]} if "step" in event.data else {}
    content = message_of(event.data) if event.type == MESSAGE else event.data
    shown = child_json(content) if event.type == CHILD else data_json(content)
    return {
        "seq": event.thread_seq,
        "run_seq": event.seq,
        "thread_id": thread_key,
        "run_id": str(event.task_id),
        "event_type": name,
        "category": category,
        "content": shown,
        "metadata": said_by,
        "created_at": time_text(event.at),
    }


def event_type_of(kind: str, data: Mapping[str, Any]) -> tuple[str, str]:
    """Return the door's name of a stored event, and its category."""
    if kind == MESSAGE:
        return _MESSAGES.get(str(data.get("type")), "llm.ai.response"), "message"
    if kind == "status" and (data.get("source"), data.get("target")) == ("queued", "working"):
        return "run.start", "trace"
    if kind == CHILD:
        return _CHILDREN.get(str(data.get("status")), "subagent.end"), "subagent"
    return _TYPES.get(kind, (kind, "runtime"))


def stored_types(names: Iterable[str]) -> tuple[set[str], set[str]]:
    """Return the stored types that have these names, and the types of messages among them."""
    wanted = set(names)
    messages = {kind for kind, name in _MESSAGES.items() if name in wanted}
    renamed = {stored for stored, (name, _) in _TYPES.items() if name in wanted}
    started = {"status"} if "run.start" in wanted else set()
    children = {CHILD} if any(name.startswith("subagent.") for name in wanted) else set()
    return (wanted | renamed | started | children) - {MESSAGE}, messages


def changes_json(found: WorkspaceChanges | None) -> Json:
    """Return what a run changed in its workspace."""
    files = [] if found is None else [asdict(change) for change in found.files]
    kinds = Counter(change["change"] for change in files)
    summary = {kind: kinds[kind] for kind in ("created", "modified", "deleted")}
    return {"available": found is not None, "version": 1, "summary": summary, "files": files}


def usage_json(thread_key: str, usage: ThreadUsage) -> Json:
    """Return what a thread's runs used."""
    total = usage.total
    return {
        "thread_id": thread_key,
        "total_tokens": total.total_tokens,
        "total_input_tokens": total.input_tokens,
        "total_output_tokens": total.output_tokens,
        "total_runs": usage.runs,
        "by_model": {
            model: {"tokens": used.tokens, "runs": used.runs}
            for model, used in sorted(usage.by_model.items())
        },
        "by_caller": dict(total.by_caller),
        "context_usage": None if usage.context is None else asdict(usage.context),
    }


def time_text(at: datetime) -> str:
    """Return a time as clients parse it."""
    return at.isoformat().replace("+00:00", "Z")
