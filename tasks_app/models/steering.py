"""What people told a task: steering commands, approvals and the decisions on them."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from tasks_app.models.execution import TaskRow
from tasks_app.models.scoped import scoped_manager

COMMAND_TYPES = ("pause", "resume", "cancel", "adjust_goal", "provide_input", "set_priority")
COMMAND_STATUSES = ("pending", "applied", "rejected", "superseded")
APPROVAL_STATUSES = (
    "pending",
    "approved",
    "denied",
    "expired",
    "cancelled",
    "superseded",
    "consumed",
)


class SteeringCommand(TaskRow):
    """A stored instruction to a live task; applied at a safe point, readable for ever."""

    command_id = models.UUIDField()
    seq = models.BigIntegerField()
    type = models.CharField(max_length=16)
    payload = models.JSONField(default=dict)
    payload_sha256 = models.CharField(max_length=64)
    expected_version = models.PositiveIntegerField()
    reason = models.CharField(max_length=500)
    requested_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    source = models.CharField(max_length=16)
    status = models.CharField(max_length=12, default="pending")
    rejection = models.CharField(max_length=40, default="", blank=True)
    old_version = models.PositiveIntegerField()
    new_version = models.PositiveIntegerField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    applied_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = _("steering command")
        verbose_name_plural = _("steering commands")
        constraints = [
            models.CheckConstraint(condition=Q(type__in=COMMAND_TYPES), name="command_type_known"),
            models.CheckConstraint(
                condition=Q(status__in=COMMAND_STATUSES), name="command_status_known"
            ),
            # admission.commands: replay of a client's command id.
            models.UniqueConstraint(fields=["tenant", "command_id"], name="command_id_uniq"),
            # engine.steering: commands after the cursor, in order.
            models.UniqueConstraint(fields=["task", "seq"], name="command_task_seq_uniq"),
        ]


class Approval(models.Model):
    """A question that stops one exact act until people answer; bound to its arguments' digest."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(
        "tasks_app.Tenant", models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    task = models.ForeignKey(
        "tasks_app.Task",
        models.PROTECT,
        related_name="approvals",
        db_constraint=False,
        db_index=False,
    )
    step = models.ForeignKey(
        "tasks_app.Step",
        models.PROTECT,
        related_name="approvals",
        db_constraint=False,
        db_index=False,
    )
    version = models.PositiveIntegerField(default=1)
    # The act that this approval lets through, and exactly which one.
    tool = models.CharField(max_length=128)
    arguments = models.JSONField()
    args_sha256 = models.CharField(max_length=64)
    display = models.JSONField(default=dict)
    plan_version = models.PositiveIntegerField()
    policy_version = models.PositiveIntegerField()
    required = models.PositiveSmallIntegerField(default=1)
    status = models.CharField(max_length=12, default="pending")
    on_timeout = models.CharField(max_length=8, default="deny")
    expires_at = models.DateTimeField()
    created_at = models.DateTimeField(db_default=Now())
    decided_at = models.DateTimeField(null=True)
    consumed_at = models.DateTimeField(null=True)

    objects = scoped_manager(owner_path="task__initiator_id", read_capability="approvals:read")

    class Meta:
        verbose_name = _("approval")
        verbose_name_plural = _("approvals")
        constraints = [
            models.CheckConstraint(
                condition=Q(status__in=APPROVAL_STATUSES), name="approval_status_known"
            ),
            models.UniqueConstraint(fields=["tenant", "id"], name="approval_tenant_id_uniq"),
            # One open question for a step (E-table: "asked again under the same id").
            models.UniqueConstraint(
                fields=["step"],
                condition=Q(status__in=("pending", "approved")),
                name="approval_open_step_uniq",
            ),
        ]
        indexes = [
            # queries.approvals: the inbox, nearest deadline first; engine.recovery: expired ones.
            models.Index(
                F("expires_at"), condition=Q(status="pending"), name="approval_pending_idx"
            ),
            # queries.approvals: those of a task.
            models.Index(F("task"), F("created_at"), name="approval_task_idx"),
        ]


class ApprovalDecision(models.Model):
    """What one person said to one approval."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(
        "tasks_app.Tenant", models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    approval = models.ForeignKey(
        Approval, models.PROTECT, related_name="decisions", db_constraint=False, db_index=False
    )
    approver = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    decision = models.CharField(max_length=8)
    reason = models.CharField(max_length=500)
    args_sha256 = models.CharField(max_length=64)
    via = models.CharField(max_length=16)
    at = models.DateTimeField(db_default=Now())

    objects = scoped_manager(
        owner_path="approval__task__initiator_id", read_capability="approvals:read"
    )

    class Meta:
        verbose_name = _("approval decision")
        verbose_name_plural = _("approval decisions")
        constraints = [
            models.CheckConstraint(
                condition=Q(decision__in=("approve", "deny")), name="decision_known"
            ),
            models.UniqueConstraint(fields=["approval", "approver"], name="decision_once_a_person"),
        ]
