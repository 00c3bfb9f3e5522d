"""The histories of one task, and the approvals and keys of a tenant, page by page for programs.

Every function finds the task through what the principal may see, then reads its rows in one query.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from ledger_app import queries as ledger
from ledger_app.domain.redaction import redact
from tasks_app.domain.errors import NotFoundError
from tasks_app.domain.principal import Principal
from tasks_app.models import (
    ApiKey,
    Approval,
    ApprovalDecision,
    Artifact,
    Checkpoint,
    Event,
    SteeringCommand,
    Step,
    Task,
)
from tasks_app.queries.paging import PAGE_SIZE, RowPage, keyset, page_of
from tasks_app.queries.snapshot import Person

PENDING = "pending"


@dataclass(frozen=True, slots=True)
class CommandRecord:
    """A steering command and what became of it."""

    command_id: UUID
    task_id: UUID
    seq: int
    type: str
    payload: Mapping[str, Any]
    reason: str
    requested_by: Person
    source: str
    status: str
    rejection: str
    expected_version: int
    old_version: int
    new_version: int | None
    created_at: datetime
    applied_at: datetime | None


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of the plan; `retired_in` names the plan version that replaced it."""

    key: str
    position: int
    kind: str
    method: str
    status: str
    attempts: int
    items_done: int
    items_failed: int
    plan_version: int
    retired_in: int | None
    error: Any
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """One checkpoint without its document."""

    seq: int
    schema_version: int
    plan_version: int
    next_step: str
    reason: str
    fence: int
    sha256: str
    size_bytes: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ArtifactRecord:
    """One stored output; its bytes are fetched by id."""

    id: UUID
    tenant_id: UUID
    task_id: UUID
    name: str
    step_key: str
    media_type: str
    size_bytes: int
    sha256: str
    presented: bool
    created_at: datetime


@dataclass(frozen=True, slots=True)
class EventRecord:
    """One event of the journal."""

    seq: int
    type: str
    data: Mapping[str, Any]
    at: datetime


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One audit entry of a task."""

    seq: int
    at: datetime
    actor: str
    via: str
    action: str
    target: str
    outcome: str
    old_version: int | None
    new_version: int | None
    details: Any
    hash: str


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """What one person said to an approval."""

    decision: str
    by: Person
    reason: str
    via: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ApprovalRecord:
    """An approval; `arguments` are redacted, the digest covers the real ones (S58)."""

    id: UUID
    task_id: UUID
    task_title: str
    tool: str
    status: str
    version: int
    args_sha256: str
    arguments: Any
    display: Any
    plan_version: int
    policy_version: int
    required: int
    on_timeout: str
    requested_by: Person
    created_at: datetime
    expires_at: datetime
    decided_at: datetime | None
    decisions: tuple[DecisionRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """An API key without its secret."""

    id: UUID
    key_id: str
    name: str
    owner: str
    scopes: tuple[str, ...]
    allowed_cidrs: tuple[str, ...]
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None
    replaces: UUID | None


def require_visible(principal: Principal, task_id: UUID) -> None:
    """Refuse unless the task exists for this principal.

    Raises:
        NotFoundError: no such task, or outside what the principal may see.
    """
    if not Task.objects.visible_to(principal).filter(id=task_id).exists():
        raise NotFoundError("Not found.")


def list_commands(
    principal: Principal, task_id: UUID, cursor: str | None = None, limit: int = PAGE_SIZE
) -> RowPage[CommandRecord]:
    """Return the steering commands of a task, newest first."""
    require_visible(principal, task_id)
    keys = keyset(principal, "commands", task_id)
    rows = SteeringCommand.objects.visible_to(principal).filter(task_id=task_id)
    if cursor:
        rows = rows.filter(seq__lt=keys.read(cursor)[0])
    ordered = rows.select_related("requested_by").order_by("-seq")
    return page_of(ordered, keys, limit=limit, key_of=lambda row: [row.seq], shape=_command)


def list_steps(
    principal: Principal, task_id: UUID, cursor: str | None = None, limit: int = PAGE_SIZE
) -> RowPage[StepRecord]:
    """Return the steps of all plans in their order; retired ones say so."""
    require_visible(principal, task_id)
    keys = keyset(principal, "steps", task_id)
    rows = Step.objects.visible_to(principal).filter(task_id=task_id)
    if cursor:
        position, plan, row_id = keys.read(cursor)
        rows = rows.filter(
            Q(position__gt=position)
            | Q(position=position, plan_version__gt=plan)
            | Q(position=position, plan_version=plan, id__gt=row_id)
        )
    ordered = rows.order_by("position", "plan_version", "id").defer("arguments", "result")
    return page_of(
        ordered,
        keys,
        limit=limit,
        key_of=lambda row: [row.position, row.plan_version, row.id],
        shape=_step,
    )


def list_checkpoints(
    principal: Principal, task_id: UUID, cursor: str | None = None, limit: int = PAGE_SIZE
) -> RowPage[CheckpointRecord]:
    """Return the checkpoints of a task, newest first."""
    require_visible(principal, task_id)
    keys = keyset(principal, "checkpoints", task_id)
    rows = Checkpoint.objects.visible_to(principal).filter(task_id=task_id)
    if cursor:
        rows = rows.filter(seq__lt=keys.read(cursor)[0])
    return page_of(
        rows.order_by("-seq"), keys, limit=limit, key_of=lambda row: [row.seq], shape=_checkpoint
    )


def list_artifacts(
    principal: Principal, task_id: UUID, cursor: str | None = None, limit: int = PAGE_SIZE
) -> RowPage[ArtifactRecord]:
    """Return the outputs of a task, oldest first."""
    require_visible(principal, task_id)
    keys = keyset(principal, "artifacts", task_id)
    rows = Artifact.objects.visible_to(principal).filter(task_id=task_id)
    if cursor:
        at, row_id = keys.read(cursor)
        moment = datetime.fromisoformat(at)
        rows = rows.filter(Q(created_at__gt=moment) | Q(created_at=moment, id__gt=row_id))
    return page_of(
        rows.order_by("created_at", "id"),
        keys,
        limit=limit,
        key_of=lambda row: [row.created_at.isoformat(), str(row.id)],
        shape=_artifact,
    )


def get_artifact(principal: Principal, artifact_id: UUID) -> ArtifactRecord:
    """Return one output.

    Raises:
        NotFoundError: no such artifact in sight.
    """
    row = Artifact.objects.visible_to(principal).filter(id=artifact_id).first()
    if row is None:
        raise NotFoundError("Not found.")
    return _artifact(row)


def list_events(
    principal: Principal,
    task_id: UUID,
    cursor: str | None = None,
    limit: int = PAGE_SIZE,
    after: int = 0,
) -> RowPage[EventRecord]:
    """Return the journal of a task in order, from the event after `after` on."""
    require_visible(principal, task_id)
    keys = keyset(principal, "journal", task_id)
    start = max(after, keys.read(cursor)[0]) if cursor else after
    rows = Event.objects.visible_to(principal).filter(task_id=task_id, seq__gt=start)
    return page_of(
        rows.order_by("seq"),
        keys,
        limit=limit,
        key_of=lambda row: [row.seq],
        shape=lambda row: EventRecord(row.seq, row.type, row.data, row.at),
    )


def list_effects(
    principal: Principal, task_id: UUID, cursor: str | None = None, limit: int = PAGE_SIZE
) -> RowPage[ledger.EffectRow]:
    """Return the acts of a task on the outside world, oldest first; for holders of ledger:read."""
    require_visible(principal, task_id)
    keys = keyset(principal, "effects", task_id)
    found = ledger.list_effects(
        tenant_id=principal.tenant_id,
        task_id=task_id,
        after_id=keys.read(cursor)[0] if cursor else 0,
        limit=limit + 1,
    )
    more = len(found) > limit
    return RowPage(
        items=tuple(found[:limit]),
        next_cursor=keys.write([found[limit - 1].id]) if more else None,
    )


def list_audit(
    principal: Principal, task_id: UUID, cursor: str | None = None, limit: int = PAGE_SIZE
) -> RowPage[AuditRecord]:
    """Return the audit stream of one visible task in order (S100)."""
    require_visible(principal, task_id)
    keys = keyset(principal, "audit", task_id)
    found = ledger.list_audit_entries(
        tenant_id=principal.tenant_id,
        stream=f"task:{task_id}",
        after_seq=keys.read(cursor)[0] if cursor else 0,
        limit=limit + 1,
    )
    more = len(found) > limit
    return RowPage(
        items=tuple(_audit(row) for row in found[:limit]),
        next_cursor=keys.write([found[limit - 1].seq]) if more else None,
    )


def list_approvals(
    principal: Principal,
    status: str = PENDING,
    cursor: str | None = None,
    limit: int = PAGE_SIZE,
) -> RowPage[ApprovalRecord]:
    """Return the tenant's approvals of one status, nearest deadline first."""
    keys = keyset(principal, "approvals", status)
    rows = Approval.objects.visible_to(principal).filter(status=status)
    if cursor:
        at, row_id = keys.read(cursor)
        moment = datetime.fromisoformat(at)
        rows = rows.filter(Q(expires_at__gt=moment) | Q(expires_at=moment, id__gt=row_id))
    return page_of(
        rows.select_related("task__initiator").order_by("expires_at", "id"),
        keys,
        limit=limit,
        key_of=lambda row: [row.expires_at.isoformat(), str(row.id)],
        shape=_approval,
    )


def get_approval(principal: Principal, approval_id: UUID) -> ApprovalRecord:
    """Return one approval with its decisions.

    Raises:
        NotFoundError: no such approval in sight.
    """
    rows: QuerySet[Approval] = Approval.objects.visible_to(principal)
    row = rows.filter(id=approval_id).select_related("task__initiator").first()
    if row is None:
        raise NotFoundError("Not found.")
    decisions = (
        ApprovalDecision.objects.for_tenant(principal.tenant_id)
        .filter(approval_id=row.id)
        .select_related("approver")
        .order_by("at")
    )
    return _approval(row, tuple(_decision(decision) for decision in decisions))


def list_keys(
    principal: Principal, cursor: str | None = None, limit: int = PAGE_SIZE
) -> RowPage[KeyRecord]:
    """Return the API keys the principal manages, newest first."""
    keys = keyset(principal, "keys")
    rows = ApiKey.objects.visible_to(principal).select_related("owner_user", "owner_agent")
    if cursor:
        at, row_id = keys.read(cursor)
        moment = datetime.fromisoformat(at)
        rows = rows.filter(Q(created_at__lt=moment) | Q(created_at=moment, id__lt=row_id))
    return page_of(
        rows.order_by("-created_at", "-id"),
        keys,
        limit=limit,
        key_of=lambda row: [row.created_at.isoformat(), str(row.id)],
        shape=_key,
    )


def person(user: Any) -> Person:
    """Return a user as others see one."""
    return Person(user.pk, user.get_full_name() or user.get_username())


def _command(row: SteeringCommand) -> CommandRecord:
    return CommandRecord(
        command_id=row.command_id,
        task_id=row.task_id,
        seq=row.seq,
        type=row.type,
        payload=row.payload,
        reason=row.reason,
        requested_by=person(row.requested_by),
        source=row.source,
        status=row.status,
        rejection=row.rejection,
        expected_version=row.expected_version,
        old_version=row.old_version,
        new_version=row.new_version,
        created_at=row.created_at,
        applied_at=row.applied_at,
    )


def _step(row: Step) -> StepRecord:
    return StepRecord(
        key=row.key,
        position=row.position,
        kind=row.kind,
        method=row.method,
        status=row.status,
        attempts=row.attempts,
        items_done=row.next_item,
        items_failed=row.items_failed,
        plan_version=row.plan_version,
        retired_in=row.retired_in,
        error=row.error,
        started_at=row.started_at,
        finished_at=row.finished_at,
    )


def _checkpoint(row: Checkpoint) -> CheckpointRecord:
    return CheckpointRecord(
        seq=row.seq,
        schema_version=row.schema_version,
        plan_version=row.plan_version,
        next_step=row.next_step,
        reason=row.reason,
        fence=row.fence,
        sha256=row.sha256,
        size_bytes=len(row.document.encode()),
        created_at=row.created_at,
    )


def _artifact(row: Artifact) -> ArtifactRecord:
    return ArtifactRecord(
        id=row.id,
        tenant_id=row.tenant_id,
        task_id=row.task_id,
        name=row.name,
        step_key=row.step_key,
        media_type=row.media_type,
        size_bytes=row.size_bytes,
        sha256=row.sha256,
        presented=row.presented,
        created_at=row.created_at,
    )


def _audit(row: ledger.AuditRow) -> AuditRecord:
    envelope = json.loads(row.envelope)
    return AuditRecord(
        seq=row.seq,
        at=row.at,
        actor=envelope["actor"],
        via=envelope.get("via") or "",
        action=envelope["action"],
        target=envelope["target"],
        outcome=envelope.get("outcome") or "ok",
        old_version=envelope.get("old_version"),
        new_version=envelope.get("new_version"),
        details=json.loads(row.details) if row.details else None,
        hash=row.hash,
    )


def _decision(row: ApprovalDecision) -> DecisionRecord:
    return DecisionRecord(row.decision, person(row.approver), row.reason, row.via, row.at)


def _approval(row: Approval, decisions: tuple[DecisionRecord, ...] = ()) -> ApprovalRecord:
    return ApprovalRecord(
        id=row.id,
        task_id=row.task_id,
        task_title=row.task.title,
        tool=row.tool,
        status=row.status,
        version=row.version,
        args_sha256=row.args_sha256,
        arguments=redact(row.arguments),
        display=redact(row.display),
        plan_version=row.plan_version,
        policy_version=row.policy_version,
        required=row.required,
        on_timeout=row.on_timeout,
        requested_by=person(row.task.initiator),
        created_at=row.created_at,
        expires_at=row.expires_at,
        decided_at=row.decided_at,
        decisions=decisions,
    )


def _key(row: ApiKey) -> KeyRecord:
    holder = row.owner_agent
    owner = holder.name if holder is not None else person(row.owner_user).name
    return KeyRecord(
        id=row.id,
        key_id=row.key_id,
        name=row.name,
        owner=owner,
        scopes=tuple(row.scopes),
        allowed_cidrs=tuple(row.allowed_cidrs),
        created_at=row.created_at,
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
        revoked_at=row.revoked_at,
        replaces=row.replaces_id,
    )
