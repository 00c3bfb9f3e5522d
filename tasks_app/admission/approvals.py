"""The one way to answer an approval, whatever door it came through (S64)."""

from dataclasses import dataclass
from uuid import UUID

from django.db.models import Q
from django.db.models.functions import Now

from ledger_app.services import audit
from tasks_app.admission.replays import own_transaction
from tasks_app.domain.errors import (
    ApprovalChangedError,
    ApprovalDecidedError,
    ApprovalDigestRequiredError,
    FieldProblem,
    InvalidInputError,
    NotAllowedError,
    NotFoundError,
    SelfApprovalError,
    VersionRequiredError,
)
from tasks_app.domain.principal import Principal, PrincipalKind
from tasks_app.domain.repairs import RepairVerb, Settlement
from tasks_app.domain.states import TaskStatus
from tasks_app.domain.steering import REASON_MAX, CommandType
from tasks_app.engine import continuation, transitions
from tasks_app.engine.lease import database_now
from tasks_app.engine.transitions import Moved
from tasks_app.events.catalogue import EventType
from tasks_app.models import Approval, ApprovalDecision, Repair, SteeringCommand, Task
from tasks_app.policy.capabilities import require

DECISIONS = ("approve", "deny")

# Commands by which a person shapes what an act will be.
# Cancelling shapes the acts that undo what was done.
_SHAPING = (CommandType.ADJUST_GOAL, CommandType.PROVIDE_INPUT, CommandType.CANCEL)


@dataclass(frozen=True, slots=True)
class Decided:
    """Where an approval stands after a decision."""

    approval_id: UUID
    status: str
    version: int
    approvals_given: int
    approvals_required: int
    task_id: UUID


def decide_approval(
    principal: Principal,
    *,
    approval_id: UUID,
    decision: str,
    args_sha256: str,
    expected_version: int | None,
    reason: str,
    source: str,
    request_id: str | None = None,
) -> Decided:
    """Approve or deny exactly the act that the person saw.

    Args:
        args_sha256: digest of the arguments that were shown (S58).
        expected_version: the approval's own version that was shown.

    Transaction: its own. Locks: the task row, then the approval; the audit stream last.

    Raises:
        NotFoundError, NotAllowedError, SelfApprovalError, InvalidInputError,
        ApprovalDigestRequiredError, VersionRequiredError, ApprovalChangedError,
        ApprovalDecidedError: nothing was stored.
    """
    _check_form(decision, args_sha256, reason)
    seen = Approval.objects.visible_to(principal).filter(pk=approval_id).first()
    if seen is None:
        require(principal, "approvals:read")
        raise NotFoundError("Not found.")
    require(principal, "approvals:decide", seen)
    with own_transaction():
        tasks = Task.objects.for_tenant(principal.tenant_id).select_for_update(no_key=True)
        task = tasks.get(pk=seen.task_id)
        approvals = Approval.objects.for_tenant(principal.tenant_id).select_for_update()
        approval = approvals.get(pk=approval_id)
        _check_eyes(principal, task, approval)
        _check_current(approval, args_sha256, expected_version)
        given = _store(principal, approval, decision, args_sha256, reason)
        moved = _go_on(principal, task, approval, reason)
        audit.append(
            stream=f"task:{task.id}",
            tenant_id=task.tenant_id,
            actor=principal.actor,
            action=f"approval.{'approve' if decision == 'approve' else 'deny'}",
            target=f"approval:{approval.id}",
            outcome=approval.status,
            via=principal.via,
            old_version=task.state_version,
            new_version=moved.state_version,
            request_id=request_id,
            details={
                "tool": approval.tool,
                "args_sha256": args_sha256,
                "reason": reason.strip(),
                "given": given,
                "required": approval.required,
                "source": source,
            },
        )
    return Decided(
        approval_id=approval.id,
        status=approval.status,
        version=approval.version,
        approvals_given=given,
        approvals_required=approval.required,
        task_id=task.id,
    )


def _check_form(decision: str, args_sha256: str, reason: str) -> None:
    problems = []
    if decision not in DECISIONS:
        problems.append(FieldProblem("/decision", "invalid_value", "approve or deny."))
    if not 1 <= len(reason.strip()) <= REASON_MAX:
        detail = f"Say why, in 1 to {REASON_MAX} characters."
        problems.append(FieldProblem("/reason", "reason_required", detail))
    if problems:
        raise InvalidInputError("The decision is not valid.", problems)
    if not args_sha256:
        raise ApprovalDigestRequiredError("Send the digest of what was shown (argsSha256).")


def _check_eyes(principal: Principal, task: Task, approval: Approval) -> None:
    """Four eyes: a person who asked for the act or shaped it does not decide it (S59)."""
    if principal.kind is not PrincipalKind.USER or principal.user_id is None:
        raise NotAllowedError("approvals:decide", "Only people decide.")
    if principal.user_id == task.initiator_id:
        raise SelfApprovalError("You asked for this; someone else must decide.")
    if task.api_key is not None and task.api_key.owner_user_id == principal.user_id:
        raise SelfApprovalError("Your API key asked for this; someone else must decide.")
    shaped = (
        SteeringCommand.objects.for_tenant(task.tenant_id)
        .filter(task_id=task.id, requested_by_id=principal.user_id, type__in=_SHAPING)
        .filter(status__in=("applied", "pending"))
        .exists()
    )
    if shaped or _shaped_by_repair(principal, task):
        raise SelfApprovalError("You changed what will be done; someone else must decide.")
    decided = ApprovalDecision.objects.for_tenant(task.tenant_id).filter(
        approval_id=approval.id, approver_id=principal.user_id
    )
    if decided.exists():
        raise ApprovalDecidedError("You have decided this already.", status=approval.status)


def _shaped_by_repair(principal: Principal, task: Task) -> bool:
    """Tell whether the person gave an act's result, or a changed goal when the task was forked."""
    repairs = Repair.objects.for_tenant(task.tenant_id).filter(requested_by_id=principal.user_id)
    settled = Q(task_id=task.id, verb=RepairVerb.SETTLE_EFFECT, payload__outcome=Settlement.DONE)
    forked = Q(forked_task_id=task.id, payload__has_key="goal")
    return bool(repairs.filter(settled | forked).exists())


def _check_current(approval: Approval, args_sha256: str, expected_version: int | None) -> None:
    if expected_version is None:
        raise VersionRequiredError(
            "Say which version of the approval you saw (expectedVersion).",
            currentVersion=approval.version,
        )
    if approval.status != "pending" or approval.expires_at <= database_now():
        status = "expired" if approval.status == "pending" else approval.status
        raise ApprovalDecidedError(f"This approval is {status}.", status=status)
    if args_sha256 != approval.args_sha256 or expected_version != approval.version:
        raise ApprovalChangedError(
            "What waits now is not what you saw.",
            argsSha256=approval.args_sha256,
            currentVersion=approval.version,
        )


def _store(
    principal: Principal, approval: Approval, decision: str, args_sha256: str, reason: str
) -> int:
    """Write the decision and what it makes of the approval; return how many approve it now."""
    assert principal.user_id is not None  # noqa: S101 - _check_eyes lets only people through
    decisions = ApprovalDecision.objects.for_tenant(approval.tenant_id)
    ApprovalDecision.objects.create(
        tenant_id=approval.tenant_id,
        approval_id=approval.id,
        approver_id=principal.user_id,
        decision=decision,
        reason=reason.strip(),
        args_sha256=args_sha256,
        via=principal.via,
    )
    given: int = decisions.filter(approval_id=approval.id, decision="approve").count()
    if decision == "deny":
        approval.status = "denied"
    elif given >= approval.required:
        approval.status = "approved"
    approval.version += 1
    closed = approval.status != "pending"
    Approval.objects.for_tenant(approval.tenant_id).filter(pk=approval.pk).update(
        status=approval.status,
        version=approval.version,
        **({"decided_at": Now()} if closed else {}),
    )
    return given


def _go_on(principal: Principal, task: Task, approval: Approval, reason: str) -> Moved:
    """Wake the task if it waited for this answer; a paused one stays paused."""
    if approval.status != "pending" and task.status == TaskStatus.INPUT_REQUIRED:
        moved = transitions.move(
            task.id,
            task.tenant_id,
            TaskStatus.INPUT_REQUIRED,
            TaskStatus.QUEUED,
            actor=principal.actor,
            reason=f"{approval.tool} {approval.status}: {reason.strip()}"[:200],
            due="now",
        )
        continuation.owe(task.id, task.tenant_id, "decision")
        return moved
    return transitions.append_event(
        task.id,
        task.tenant_id,
        EventType.LOG,
        {"message": f"{approval.tool}: a decision was given; now {approval.status}"},
        bump=1,
    )
