"""Runtime settings as one frozen dataclass, read at call time and never at import."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """What an operator may tune; units are in the names."""

    lease_seconds: float
    heartbeat_seconds: float
    grace_seconds: float
    outage_grace_seconds: float
    max_recoveries: int
    max_wall_seconds: float
    slice_steps: int
    slice_seconds: float
    busy_slice_seconds: float
    max_concurrent_tasks: int
    workflow_max_concurrent_tasks: Mapping[str, int]
    sweep_seconds: float
    outbox_retry_seconds: float
    poll_claim: bool
    poll_seconds: float
    stream_heartbeat_seconds: float
    max_replayed_events: int
    cancel_wait_seconds: float
    checkpoint_every_steps: int
    checkpoint_max_seconds: float
    artifact_root: Path
    input_roots: tuple[Path, ...]
    publish_roots: tuple[Path, ...]
    publish_hosts: tuple[str, ...]
    test_assistant: bool
    public_schema: bool
    key_environment: str
    step_secrets: tuple[str, ...]
    max_child_depth: int
    default_assistant: str
    models: tuple[str, ...]
    disconnect_grace_seconds: float
    throttle: bool
    requests_per_minute: Mapping[str, int]
    kept_answer_seconds: float
    webhook_hosts: tuple[str, ...]
    webhook_private_hosts: tuple[str, ...]
    webhook_timeout_seconds: float
    webhook_retry_seconds: float
    webhook_give_up_seconds: float
    mcp_sync_wait_seconds: float
    mcp_result_seconds: float


# The newest settings as they were read: asked for at every step, changed only by tests.
_known: tuple[dict[str, Any], RuntimeSettings] | None = None


def runtime() -> RuntimeSettings:
    """Return the settings in force now."""
    global _known
    values: dict[str, Any] = settings.RUNTIME
    if _known is None or _known[0] != values:
        _known = (dict(values), RuntimeSettings(**values))
    return _known[1]
