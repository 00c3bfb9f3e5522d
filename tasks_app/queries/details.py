"""One task in full, part by part, for its pages; and one approval as the person reads it.

Every read starts at what the principal may see; the ledger is read with the tenant of a task that
was found that way.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model

from ledger_app import queries as ledger
from ledger_app.domain.effects import DONE
from ledger_app.models import AuditStream
from tasks_app.domain.errors import NotFoundError
from tasks_app.domain.principal import Principal
from tasks_app.models import (
    Approval,
    Artifact,
    Checkpoint,
    Event,
    SteeringCommand,
    Task,
)

EVENTS_A_PAGE = 100
MAX_ROWS = 200


@dataclass(frozen=True, slots=True)
class CommandRow:
    """One steering command as people read it."""

    command_id: UUID
    type: str
    status: str
    by: str
    reason: str
    rejection: str
    old_version: int
    new_version: int | None
    created_at: datetime


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


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """One checkpoint; `verified` compares its text with its stored digest now."""

    seq: int
    schema_version: int
    plan_version: int
    next_step: str
    reason: str
    fence: int
    sha256: str
    verified: bool
    size_bytes: int
    document: Any
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ArtifactRow:
    """One stored output."""

    id: UUID
    name: str
    step_key: str
    media_type: str
    size_bytes: int
    sha256: str
    presented: bool
    created_at: datetime


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event of the journal."""

    seq: int
    type: str
    data: Mapping[str, Any]
    at: datetime


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events, newest first; `older` is the `before` of the next page."""

    events: tuple[EventRow, ...]
    older: int | None


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One audit entry taken apart."""

    seq: int
    at: datetime
    who: str
    via: str
    action: str
    target: str
    outcome: str
    old_version: int | None
    new_version: int | None
    details: Any
    hash: str


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """What one person said to an approval."""

    decision: str
    by: str
    reason: str
    via: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ApprovalPage:
    """Everything a person needs to decide one act."""

    id: UUID
    version: int
    status: str
    tool: str
    arguments: Mapping[str, Any]
    args_sha256: str
    shown: Any
    artifacts: tuple[ArtifactRow, ...]
    plan_version: int
    policy_version: int
    on_timeout: str
    required: int
    created_at: datetime
    expires_at: datetime
    task_id: UUID
    task_title: str
    task_status: str
    workflow: str
    initiator_id: int
    initiator: str
    agent: str
    decisions: tuple[DecisionRow, ...]


# --- one task ---------------------------------------------------------------------------------
def get_facts(principal: Principal, task_id: UUID) -> TaskFacts:
    """Return the facts of a visible task that are not in its snapshot.

    Raises:
        NotFoundError: no such task, or not the caller's to see.
    """
    rows = Task.objects.visible_to(principal).filter(pk=task_id)
    task = rows.select_related("agent").only(*_FACT_COLUMNS).first()
    if task is None:
        raise NotFoundError("There is no such task.")
    return TaskFacts(
        agent=task.agent.name,
        source=task.source,
        fence=task.fence,
        lease_expires_at=task.lease_expires_at,
        next_wake_at=task.next_wake_at,
        recoveries_in_a_row=task.recoveries,
        checkpoint_policy=task.checkpoint_policy,
        approval_policy=task.approval_policy,
        last_command=next(iter(list_commands(principal, task_id, limit=1)), None),
    )


def list_commands(principal: Principal, task_id: UUID, limit: int = 5) -> list[CommandRow]:
    """Return the newest steering commands of a task."""
    rows = (
        SteeringCommand.objects.visible_to(principal)
        .filter(task_id=task_id)
        .select_related("requested_by")
        .order_by("-seq")[:limit]
    )
    return [
        CommandRow(
            command_id=row.command_id,
            type=row.type,
            status=row.status,
            by=row.requested_by.get_username(),
            reason=row.reason,
            rejection=row.rejection,
            old_version=row.old_version,
            new_version=row.new_version,
            created_at=row.created_at,
        )
        for row in rows
    ]


def list_checkpoints(principal: Principal, task_id: UUID, limit: int = 20) -> list[CheckpointRow]:
    """Return the newest checkpoints, each verified against its digest."""
    rows = Checkpoint.objects.visible_to(principal).filter(task_id=task_id).order_by("-seq")
    return [_checkpoint_row(row) for row in rows[:limit]]


def list_checkpoint_times(principal: Principal, task_id: UUID) -> list[datetime]:
    """Return when the newest checkpoints were written."""
    rows = Checkpoint.objects.visible_to(principal).filter(task_id=task_id).order_by("-seq")
    return list(rows.values_list("created_at", flat=True)[:MAX_ROWS])


def list_artifacts(
    principal: Principal, task_id: UUID, *, presented_only: bool = False
) -> list[ArtifactRow]:
    """Return the outputs of a task, delivered ones first."""
    rows = Artifact.objects.visible_to(principal).filter(task_id=task_id)
    if presented_only:
        rows = rows.filter(presented=True)
    return [_artifact_row(row) for row in rows.order_by("-presented", "created_at")[:MAX_ROWS]]


def get_artifact(principal: Principal, artifact_id: UUID) -> ArtifactRow:
    """Return one output.

    Raises:
        NotFoundError: no such artifact, or not the caller's to see.
    """
    row = Artifact.objects.visible_to(principal).filter(pk=artifact_id).first()
    if row is None:
        raise NotFoundError("There is no such artifact.")
    return _artifact_row(row)


def list_events(
    principal: Principal, task_id: UUID, *, before: int | None = None, limit: int = EVENTS_A_PAGE
) -> EventPage:
    """Return events, newest first, older than `before`."""
    rows = Event.objects.visible_to(principal).filter(task_id=task_id)
    if before is not None:
        rows = rows.filter(seq__lt=before)
    found = list(rows.order_by("-seq")[: limit + 1])
    older = found[limit - 1].seq if len(found) > limit else None
    events = tuple(EventRow(row.seq, row.type, row.data, row.at) for row in found[:limit])
    return EventPage(events=events, older=older)


def list_effects(principal: Principal, task_id: UUID) -> list[ledger.EffectRow]:
    """Return the acts of a visible task on the outside world; none without ledger:read."""
    if not principal.can("ledger:read") or not _is_visible(principal, task_id):
        return []
    return ledger.list_effects(tenant_id=principal.tenant_id, task_id=task_id)


def list_effects_done(principal: Principal, task_id: UUID) -> list[ledger.EffectRow]:
    """Return the acts that have happened outside."""
    return [row for row in list_effects(principal, task_id) if row.state in DONE]


def list_audit(principal: Principal, task_id: UUID) -> list[AuditLine]:
    """Return the entries of a visible task's own audit stream, newest first."""
    if not _is_visible(principal, task_id):
        return []
    stream, tenant_id = f"task:{task_id}", principal.tenant_id
    heads = AuditStream.objects.filter(stream=stream, tenant_id=tenant_id)
    newest = heads.values_list("head_seq", flat=True).first() or 0
    rows = ledger.list_audit_entries(
        tenant_id=tenant_id, stream=stream, after_seq=max(newest - MAX_ROWS, 0)
    )
    lines = [_audit_line(row) for row in reversed(rows)]
    names = _names({line.who for line in lines})
    return [replace(line, who=names.get(line.who, line.who)) for line in lines]


# --- one approval ------------------------------------------------------------------------------
def get_approval(principal: Principal, approval_id: UUID) -> ApprovalPage:
    """Return one approval as its page shows it.

    Raises:
        NotFoundError: no such approval, or not the caller's to see.
    """
    row = (
        Approval.objects.visible_to(principal)
        .select_related("task__initiator", "task__agent")
        .filter(pk=approval_id)
        .first()
    )
    if row is None:
        raise NotFoundError("There is no such approval.")
    decisions = row.decisions.visible_to(principal).select_related("approver").order_by("at")
    return _approval_page(
        row,
        decisions=tuple(
            DecisionRow(d.decision, d.approver.get_username(), d.reason, d.via, d.at)
            for d in decisions
        ),
        artifacts=tuple(list_artifacts(principal, row.task_id, presented_only=True)),
    )


# --- rows → dataclasses ------------------------------------------------------------------------
_FACT_COLUMNS = (
    "tenant_id", "agent__name", "source", "fence", "lease_expires_at", "next_wake_at",
    "recoveries", "checkpoint_policy", "approval_policy",
)  # fmt: skip


def is_verified(row: Checkpoint) -> bool:
    """Tell whether a checkpoint's text still has its stored digest."""
    return sha256(row.document.encode()).hexdigest() == row.sha256


def read_document(text: str) -> Any:
    """Return a checkpoint's document for reading; damaged text stays text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _checkpoint_row(row: Checkpoint) -> CheckpointRow:
    return CheckpointRow(
        seq=row.seq,
        schema_version=row.schema_version,
        plan_version=row.plan_version,
        next_step=row.next_step,
        reason=row.reason,
        fence=row.fence,
        sha256=row.sha256,
        verified=is_verified(row),
        size_bytes=len(row.document.encode()),
        document=read_document(row.document),
        created_at=row.created_at,
    )


def _artifact_row(row: Artifact) -> ArtifactRow:
    return ArtifactRow(
        row.pk, row.name, row.step_key, row.media_type, row.size_bytes, row.sha256, row.presented,
        row.created_at,
    )  # fmt: skip


def _names(actors: set[str]) -> dict[str, str]:
    """Return the user names behind audit actors; the audit itself stores ids only."""
    ids = {int(actor[5:]): actor for actor in actors if actor.startswith("user:")}
    users = get_user_model().objects.filter(pk__in=ids)
    return {ids[user.pk]: user.get_username() for user in users}


def _audit_line(row: ledger.AuditRow) -> AuditLine:
    envelope = json.loads(row.envelope)
    return AuditLine(
        seq=row.seq,
        at=row.at,
        who=str(envelope.get("actor", "")),
        via=str(envelope.get("via") or ""),
        action=str(envelope.get("action", "")),
        target=str(envelope.get("target", "")),
        outcome=str(envelope.get("outcome", "ok")),
        old_version=envelope.get("old_version"),
        new_version=envelope.get("new_version"),
        details=json.loads(row.details) if row.details else None,
        hash=row.hash,
    )


def _approval_page(
    row: Approval, *, decisions: tuple[DecisionRow, ...], artifacts: tuple[ArtifactRow, ...]
) -> ApprovalPage:
    return ApprovalPage(
        id=row.pk,
        version=row.version,
        status=row.status,
        tool=row.tool,
        arguments=row.arguments,
        args_sha256=row.args_sha256,
        shown=row.display.get("show"),
        artifacts=artifacts,
        plan_version=row.plan_version,
        policy_version=row.policy_version,
        on_timeout=row.on_timeout,
        required=row.required,
        created_at=row.created_at,
        expires_at=row.expires_at,
        task_id=row.task_id,
        task_title=row.task.title,
        task_status=row.task.status,
        workflow=row.task.workflow,
        initiator_id=row.task.initiator_id,
        initiator=row.task.initiator.get_username(),
        agent=row.task.agent.name,
        decisions=decisions,
    )


def _is_visible(principal: Principal, task_id: UUID) -> bool:
    return bool(Task.objects.visible_to(principal).filter(pk=task_id).exists())
