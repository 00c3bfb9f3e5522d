"""Tasks and their results as the Tasks extension writes them; plain dicts, since nulls must stay.

What is said of each status is in docs/reference/mcp.md.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.urls import reverse

from ledger_app.domain.redaction import redact
from tasks_app.conf import runtime
from tasks_app.domain.states import TERMINAL, TaskStatus
from tasks_app.mcp_server.offers import Offer
from tasks_app.queries.artifacts import ArtifactRow
from tasks_app.queries.snapshot import TaskSnapshot

Json = dict[str, Any]

EXTENSION = "io.modelcontextprotocol/tasks"
MESSAGE_MAX = 200
INTERNAL_ERROR = -32603
_TEXT_MAX = 20_000

_POLL_MS = {
    TaskStatus.WORKING: 1000,
    TaskStatus.QUEUED: 3000,
    TaskStatus.RECOVERING: 3000,
    TaskStatus.PAUSING: 3000,
}
_RESTING_POLL_MS = 10_000

# A task that failed so tells nothing about what was asked of it: the system could not go on.
_SYSTEM_CODES = frozenset(
    {"too_many_recoveries", "checkpoint_damaged", "version_hold", "configuration_error"}
    | {"workflow_failed", "effect_in_doubt", "effect_not_repeatable"}
)


def meta_key(name: str) -> str:
    """Return one of our own keys of `_meta`."""
    return f"{settings.MCP_META_PREFIX}/{name}"


def created(snapshot: TaskSnapshot) -> Json:
    """Return the answer to a call that became a task."""
    return {"resultType": "task", **_task(snapshot, ())}


def detailed(
    snapshot: TaskSnapshot, offers: Sequence[Offer], artifacts: Sequence[ArtifactRow]
) -> Json:
    """Return the answer to `tasks/get`; the same is sent to those who listen."""
    told = _task(snapshot, offers)
    if told["status"] == "input_required":
        told["inputRequests"] = {offer.key: offer.request for offer in offers}
    elif told["status"] == "completed":
        told["result"] = call_result(snapshot, artifacts)
    elif told["status"] == "failed":
        told["error"] = failure(snapshot)
    checkpoint = snapshot.last_checkpoint
    told["_meta"] = {
        meta_key("state"): {
            "progress": snapshot.progress,
            "phase": snapshot.phase,
            "stateVersion": snapshot.state_version,
            "lastCheckpoint": None if checkpoint is None else checkpoint.seq,
        }
    }
    return told


def status_of(snapshot: TaskSnapshot, offers: Sequence[Offer]) -> str:
    """Return the status that this caller sees; one that is terminal never changes again."""
    match snapshot.status:
        case TaskStatus.COMPLETED:
            return "completed"
        case TaskStatus.CANCELLED:
            return "cancelled"
        case TaskStatus.FAILED:
            return "failed" if is_system_failure(snapshot) else "completed"
    return "input_required" if offers else "working"


def is_system_failure(snapshot: TaskSnapshot) -> bool:
    """Tell whether the system failed, and not what the workflow tried to do."""
    code = str((snapshot.error or {}).get("code", ""))
    # What an author's code has raised without a code of its own is told by its class.
    return code in _SYSTEM_CODES or not code.islower()


def call_result(snapshot: TaskSnapshot, artifacts: Sequence[ArtifactRow]) -> Json:
    """Return the result of the tool that a finished task stands for."""
    if snapshot.status is TaskStatus.FAILED:
        facts = redact(dict(snapshot.error or {}))
        content = [text_block(snapshot.status_message)]
        return {
            "resultType": "complete",
            "content": content,
            "structuredContent": {"error": facts, "taskId": str(snapshot.task_id)},
            "isError": True,
        }
    links = [_link(artifact) for artifact in artifacts]
    return {**value_result(snapshot.result, snapshot.status_message, links)}


def value_result(value: Any, empty: str, links: Sequence[Json] = ()) -> Json:
    """Return what a tool gave: as text for models, and as data for programs."""
    if value is None:
        text = empty
    elif isinstance(value, str):
        text = value
    else:
        text = json.dumps(value, ensure_ascii=False, indent=1)
    structured = value if isinstance(value, Mapping) else {"result": value}
    return {
        "resultType": "complete",
        "content": [text_block(text), *links],
        "structuredContent": structured,
        "isError": False,
    }


def failure(snapshot: TaskSnapshot) -> Json:
    """Return the protocol's error of a task that the system could not finish."""
    category = str((snapshot.error or {}).get("code", "internal"))
    return {
        "code": INTERNAL_ERROR,
        "message": snapshot.status_message[:MESSAGE_MAX] or "The task failed.",
        "data": {"category": category, "taskId": str(snapshot.task_id)},
    }


def handle(snapshot: TaskSnapshot) -> Json:
    """Return what a client that knows no tasks gets in the place of a result."""
    seconds = _poll_ms(snapshot) // 1000
    text = (
        f"The task {snapshot.task_id} goes on in the background. Call task_status with this"
        f" taskId in {seconds} seconds to see how far it is and to get its result."
    )
    return {
        "resultType": "complete",
        "content": [text_block(text)],
        "structuredContent": {
            "taskId": str(snapshot.task_id),
            "status": snapshot.outside_status,
            "pollAfterSeconds": seconds,
            "statusTool": "task_status",
        },
        "isError": False,
    }


def refused(code: str, message: str, **facts: Any) -> Json:
    """Return that a tool refused what it was asked, in words that a model can act on."""
    return {
        "resultType": "complete",
        "content": [text_block(message)],
        "structuredContent": {"error": code, "detail": message, **facts},
        "isError": True,
    }


def text_block(text: str) -> Json:
    """Return text for people and models, cut where it would be too long for them."""
    if len(text) > _TEXT_MAX:
        text = text[:_TEXT_MAX] + "\n…"
    return {"type": "text", "text": text}


def expires_at(snapshot: TaskSnapshot) -> datetime | None:
    """Return until when a finished task is answered over MCP."""
    if snapshot.finished_at is None:
        return None
    return snapshot.finished_at + timedelta(seconds=runtime().mcp_result_seconds)


def _task(snapshot: TaskSnapshot, offers: Sequence[Offer]) -> Json:
    until = expires_at(snapshot) if snapshot.status in TERMINAL else None
    return {
        "taskId": str(snapshot.task_id),
        "status": status_of(snapshot, offers),
        "statusMessage": _message(snapshot)[:MESSAGE_MAX],
        "createdAt": _time(snapshot.created_at),
        "lastUpdatedAt": _time(snapshot.updated_at),
        "ttlMs": None if until is None else _milliseconds(until - snapshot.created_at),
        "pollIntervalMs": _poll_ms(snapshot),
    }


def _message(snapshot: TaskSnapshot) -> str:
    if snapshot.status is TaskStatus.WORKING and snapshot.progress is not None:
        return f"{snapshot.progress:.0%} {snapshot.phase}".strip()
    return snapshot.status_message


def _poll_ms(snapshot: TaskSnapshot) -> int:
    return _POLL_MS.get(snapshot.status, _RESTING_POLL_MS)


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _milliseconds(span: timedelta) -> int:
    return round(span.total_seconds() * 1000)


def _link(artifact: ArtifactRow) -> Json:
    return {
        "type": "resource_link",
        "uri": artifact_uri(artifact),
        "name": artifact.name,
        "mimeType": artifact.media_type,
        "size": artifact.size_bytes,
    }


def artifact_uri(artifact: ArtifactRow) -> str:
    """Return the address of an output among the resources."""
    return f"artifact://{artifact.task_id}/{artifact.id}"


def download_path(artifact: ArtifactRow) -> str:
    """Return where REST serves an output of any size."""
    return reverse("runtime:artifact-content", args=[artifact.id])
