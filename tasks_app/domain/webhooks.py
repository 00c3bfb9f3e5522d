"""What a webhook says and how it is signed: Standard Webhooks, version 1 (security S145)."""

import hmac
import json
from base64 import b64encode
from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from tasks_app.domain.budgets import NOTICE_PERCENT
from tasks_app.domain.states import TERMINAL, TaskStatus

# Statuses that others are told of: the task has ended, or a person is needed.
TOLD = TERMINAL | {TaskStatus.INPUT_REQUIRED, TaskStatus.DEAD_LETTERED}
# Shares of a limit that others are told of (S74): in the place of a status, with the percentage.
BUDGET_TOLD = "budget_"
WORDS = frozenset({*TOLD, *(f"{BUDGET_TOLD}{percent}" for percent in NOTICE_PERCENT)})
TOOL = "webhook"
# So many failures in a row switch an endpoint off.
MAX_FAILURES = 20
MAX_PAUSE_SECONDS = 4 * 3600
ROTATION_OVERLAP_HOURS = 24


def secret_of(root: str, endpoint_id: UUID, version: int) -> bytes:
    """Return the secret of an endpoint; it is derived from the installation's and stored nowhere."""
    return hmac.digest(root.encode(), f"perdure.webhook:{endpoint_id}:{version}".encode(), "sha256")


def secret_text(secret: bytes) -> str:
    """Return a secret as receivers are given it."""
    return "whsec_" + b64encode(secret).decode()


def message_id(task_id: UUID, delivery_id: int) -> str:
    """Return the key of one message: the same for every try, in the ledger and on the wire."""
    return f"{task_id}:{TOOL}:{delivery_id}"


def body_of(
    *, task_id: UUID, thread: str | None, status: str, seq: int, state_version: int, at: datetime
) -> bytes:
    """Return what is sent: ids and the status, nothing of what the task is about.

    The same bytes for every try.
    """
    data = {
        "taskId": str(task_id),
        "threadId": thread,
        "status": status,
        "stateVersion": state_version,
        "seq": seq,
    }
    told = {"type": f"task.{status}", "timestamp": at.isoformat(), "data": data}
    return json.dumps(told, separators=(",", ":")).encode()


def headers_of(
    secrets: Collection[bytes], message: str, timestamp: int, body: bytes
) -> dict[str, str]:
    """Return id, time and one signature for each secret that is valid now."""
    signed = f"{message}.{timestamp}.".encode() + body
    signatures = [
        f"v1,{b64encode(hmac.digest(secret, signed, 'sha256')).decode()}" for secret in secrets
    ]
    return {
        "webhook-id": message,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signatures),
    }
