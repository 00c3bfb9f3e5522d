"""Approvals inside the engine: ask about one exact act, let it through once, close what is stale.

What people decide is written by `admission.approvals`; this module opens and consumes (S56, S57).
"""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models.functions import Now

from ledger_app.domain.canonical import digest_of
from ledger_app.domain.redaction import redact
from ledger_app.services import audit
from tasks_app.engine.lease import ClaimedTask, database_now
from tasks_app.models import Approval, Step


def digest_of_act(tool: str, arguments: dict[str, Any]) -> str:
    """Return the digest that binds an approval to one exact act (S56)."""
    return digest_of({"tool": tool, "arguments": arguments})


def find_open(task: ClaimedTask, step: Step) -> Approval | None:
    """Return the approval of a step that still counts, the newest one; a used one does not."""
    rows = Approval.objects.for_tenant(task.tenant_id).filter(step_id=step.id)
    rows = rows.exclude(status__in=("superseded", "cancelled", "consumed")).order_by("-created_at")
    found: Approval | None = rows.first()
    return found


def ask(
    task: ClaimedTask, step: Step, *, tool: str, arguments: dict[str, Any], show: Any
) -> Approval:
    """Store the question. Transaction: the caller's, which also stops the task."""
    options = step.options
    return Approval.objects.create(
        tenant_id=task.tenant_id,
        task_id=task.id,
        step_id=step.id,
        tool=tool,
        arguments=redact(arguments),
        args_sha256=digest_of_act(tool, arguments),
        display={"show": redact(show), "name": options["name"]},
        plan_version=task.plan_version,
        policy_version=task.policy_version,
        required=options["quorum"],
        on_timeout=options["on_timeout"],
        expires_at=database_now() + timedelta(seconds=options["deadline_seconds"]),
    )


def consume(task: ClaimedTask, approval_id: UUID, args_sha256: str) -> bool:
    """Use an approval for exactly this act, once; False when it does not let it through.

    One conditional UPDATE: of many workers at most one succeeds (S57).
    Transaction: the one that begins the effect. Locks: the approval.
    """
    used: int = (
        Approval.objects.for_tenant(task.tenant_id)
        .filter(
            pk=approval_id,
            status="approved",
            args_sha256=args_sha256,
            policy_version=task.policy_version,
            expires_at__gt=Now(),
        )
        .update(status="consumed", consumed_at=Now())
    )
    return used == 1


def supersede_open(tenant_id: UUID, task_id: UUID, *, keep_steps: list[int]) -> int:
    """Void every approval that is not consumed and whose step is not kept (S61).

    Transaction: the caller's. Locks: the approvals.
    """
    rows = Approval.objects.for_tenant(tenant_id).filter(
        task_id=task_id, status__in=("pending", "approved")
    )
    voided: int = rows.exclude(step_id__in=keep_steps).update(status="superseded")
    return voided


def audit_asked(task: ClaimedTask, approval: Approval) -> None:
    """Tell the audit that the question was asked; last in the transaction."""
    audit.append(
        stream=f"task:{task.id}",
        tenant_id=task.tenant_id,
        actor="system:engine",
        action="approval.asked",
        target=f"approval:{approval.id}",
        details={
            "tool": approval.tool,
            "args_sha256": approval.args_sha256,
            "required": approval.required,
            "expires_at": approval.expires_at.isoformat(),
        },
    )
