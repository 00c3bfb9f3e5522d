"""The durable unit of work, and the thread that groups tasks."""

import uuid

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _
from typing_extensions import override

from tasks_app.domain.states import TERMINAL, TaskStatus
from tasks_app.models.access import AgentIdentity, ApiKey, Tenant
from tasks_app.models.scoped import scoped_manager

SOURCES = ("rest", "mcp", "admin", "dashboard", "schedule", "webhook", "code", "child")


class Thread(models.Model):
    """Tasks that share context."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="threads")
    # The name a client uses; unique in its tenant, so nobody learns of another tenant's (S21).
    key = models.CharField(max_length=64)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    metadata = models.JSONField(default=dict)
    # Since when nobody sees it or may use its key again.
    deleted_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    objects = scoped_manager(owner_path="owner_id")

    class Meta:
        verbose_name = _("thread")
        verbose_name_plural = _("threads")
        constraints = [
            models.UniqueConstraint(fields=["tenant", "key"], name="thread_tenant_key_uniq"),
            models.UniqueConstraint(fields=["tenant", "id"], name="thread_tenant_id_uniq"),
        ]


class Task(models.Model):
    """A goal, a stored plan, a cursor, and who may execute it until when.

    Written only through the engine and admission. Rows of a running task are changed under its
    `fence`; people's decisions are checked against `state_version`.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="tasks", db_index=False)
    thread = models.ForeignKey(
        Thread, models.PROTECT, null=True, related_name="tasks", db_constraint=False
    )
    workflow = models.CharField(max_length=100)
    workflow_version = models.PositiveIntegerField()
    title = models.CharField(max_length=200)
    goal = models.JSONField()
    priority = models.PositiveSmallIntegerField(default=5)

    status = models.CharField(max_length=16, default=TaskStatus.QUEUED)
    state_version = models.PositiveIntegerField(default=1)
    plan_version = models.PositiveIntegerField(default=1)
    # Where the plan stands: position of the next step; the result is read from `plan_result`.
    next_position = models.PositiveIntegerField(default=0)
    plan_result = models.JSONField(null=True)

    # Lease. `fence` grows with every claim; `lease_lock` is the advisory lock that the worker
    # process holds while it lives, so that its death is noticed at once (E46).
    fence = models.BigIntegerField(default=0)
    lease_owner = models.CharField(max_length=120, null=True)  # noqa: DJ001 - null = unleased
    lease_lock = models.BigIntegerField(null=True)
    lease_expires_at = models.DateTimeField(null=True)
    # When the task is due; null while it waits for a person or its turn, or has ended.
    next_wake_at = models.DateTimeField(null=True)
    # Another task of its thread is at work; until that ends this one is never due.
    awaits_slot = models.BooleanField(default=False, db_default=False)
    recoveries = models.PositiveSmallIntegerField(default=0)
    recoveries_total = models.PositiveIntegerField(default=0)

    # Cursors of the task's own histories: last given number of each.
    event_seq = models.BigIntegerField(default=0)
    checkpoint_seq = models.BigIntegerField(default=0)
    command_seq = models.BigIntegerField(default=0)
    steering_cursor = models.BigIntegerField(default=0)
    last_checkpoint_at = models.DateTimeField(null=True)

    # For people: never part of a decision.
    progress_done = models.BigIntegerField(default=0)
    progress_total = models.BigIntegerField(null=True)
    phase = models.CharField(max_length=100, default="", blank=True)
    steps_done = models.BigIntegerField(default=0)
    # How long slices have worked on it; counts against the budget of that name.
    active_seconds = models.FloatField(default=0)

    cancel_requested_at = models.DateTimeField(null=True)
    # How the task ends once what it did is undone, and the words for that end; empty: it goes on.
    closing_as = models.CharField(max_length=16, default="", blank=True)
    closing = models.JSONField(null=True)
    stop_reason = models.CharField(max_length=40, default="", blank=True)
    error = models.JSONField(null=True)
    result = models.JSONField(null=True)
    receipt_id = models.UUIDField(null=True)
    # Since when a person is needed; null unless the task is held.
    held_at = models.DateTimeField(null=True)

    # Facts of admission, immutable afterwards (S9).
    initiator = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, related_name="+", db_index=False
    )
    agent = models.ForeignKey(
        AgentIdentity, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    agent_version = models.PositiveIntegerField()
    api_key = models.ForeignKey(
        ApiKey, models.PROTECT, null=True, related_name="+", db_constraint=False, db_index=False
    )
    source = models.CharField(max_length=16)
    policy_version = models.PositiveIntegerField(default=1)
    tool_grants = ArrayField(models.UUIDField(), default=list)
    budget = models.JSONField(default=dict)
    checkpoint_policy = models.JSONField(default=dict)
    approval_policy = models.JSONField(default=dict)
    # Unset keys are null, so that the unique index leaves them out.
    idempotency_key = models.CharField(max_length=255, null=True)  # noqa: DJ001
    idempotency_fingerprint = models.CharField(max_length=64, default="", blank=True)
    deadline_at = models.DateTimeField(null=True)
    # The task and the step of it that started this one: one child for each step.
    parent = models.ForeignKey(
        "self",
        models.PROTECT,
        null=True,
        related_name="children",
        db_constraint=False,
        db_index=False,
    )
    parent_step = models.ForeignKey(
        "tasks_app.Step",
        models.PROTECT,
        null=True,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    # The held task that this one replaces.
    forked_from = models.ForeignKey(
        "self", models.PROTECT, null=True, related_name="+", db_constraint=False, db_index=False
    )

    # Who is told of its end and its questions, and at which address, which may carry a token.
    webhook = models.ForeignKey(
        "tasks_app.WebhookEndpoint",
        models.PROTECT,
        null=True,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    webhook_url = models.CharField(max_length=2000, default="", db_default="", blank=True)

    # The trace that the request belonged to (W3C Trace Context), or one of the task's own.
    traceparent = models.CharField(max_length=55, default="", db_default="", blank=True)
    tracestate = models.CharField(max_length=512, default="", db_default="", blank=True)

    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    objects = scoped_manager(owner_path="initiator_id")

    class Meta:
        verbose_name = _("task")
        verbose_name_plural = _("tasks")
        constraints = [
            models.CheckConstraint(
                condition=Q(status__in=[status.value for status in TaskStatus]),
                name="task_status_known",
            ),
            models.CheckConstraint(condition=Q(source__in=SOURCES), name="task_source_known"),
            models.CheckConstraint(condition=Q(priority__lte=9), name="task_priority_range"),
            models.CheckConstraint(
                condition=Q(closing_as="", closing__isnull=True)
                | Q(
                    closing_as__in=[TaskStatus.CANCELLED, TaskStatus.FAILED], closing__isnull=False
                ),
                name="task_closing_known",
            ),
            models.CheckConstraint(
                condition=Q(awaits_slot=False) | Q(next_wake_at__isnull=True),
                name="task_not_due_before_turn",
            ),
            # Only a task that a worker executes has a lease.
            models.CheckConstraint(
                condition=Q(lease_owner__isnull=True)
                | Q(status__in=[TaskStatus.WORKING, TaskStatus.PAUSING]),
                name="task_lease_only_running",
            ),
            models.CheckConstraint(
                condition=~Q(status=TaskStatus.COMPLETED) | Q(receipt_id__isnull=False),
                name="task_completed_has_receipt",
            ),
            models.UniqueConstraint(fields=["tenant", "id"], name="task_tenant_id_uniq"),
            models.UniqueConstraint(
                fields=["tenant", "initiator", "idempotency_key"],
                condition=Q(idempotency_key__isnull=False),
                name="task_idempotency_uniq",
            ),
            # engine.children: a child by its step, and the children of a task.
            models.UniqueConstraint(
                fields=["parent", "parent_step"],
                condition=Q(parent__isnull=False),
                name="task_parent_step_uniq",
            ),
            models.CheckConstraint(
                condition=Q(parent__isnull=True, parent_step__isnull=True)
                | Q(parent__isnull=False, parent_step__isnull=False, source="child"),
                name="task_child_complete",
            ),
        ]
        # No index and no index predicate may mention lease_expires_at, progress or cursors:
        # that would end heap-only updates of the hottest row (stack 2.2).
        indexes = [
            # engine.queue_sql: the oldest task of each lane; sleepers stand behind it.
            models.Index(
                F("tenant"),
                F("workflow"),
                F("priority"),
                F("next_wake_at"),
                F("id"),
                condition=Q(status__in=[TaskStatus.QUEUED, TaskStatus.RECOVERING]),
                name="task_lane_idx",
            ),
            # engine.recovery.expire_questions: questions past their deadline.
            models.Index(
                F("next_wake_at"),
                condition=Q(status=TaskStatus.INPUT_REQUIRED),
                name="task_question_due_idx",
            ),
            # engine.children.wake_forgotten: parents that wait for a child.
            models.Index(
                F("id"),
                condition=Q(status=TaskStatus.QUEUED, next_wake_at__isnull=True),
                name="task_awaiting_child_idx",
            ),
            # engine.recovery.fail_overdue: tasks past their own deadline that nobody executes.
            models.Index(
                F("deadline_at"),
                condition=Q(
                    status__in=[TaskStatus.QUEUED, TaskStatus.PAUSED, TaskStatus.INPUT_REQUIRED]
                ),
                name="task_overdue_idx",
            ),
            # engine.recovery: leases to look at; engine.queue_sql: who runs how much. Few rows.
            models.Index(
                F("id"),
                condition=Q(status__in=[TaskStatus.WORKING, TaskStatus.PAUSING]),
                name="task_leased_idx",
            ),
            # engine.children: children that still run, to end them with their parent.
            models.Index(
                F("parent"),
                condition=Q(parent__isnull=False) & ~Q(status__in=sorted(TERMINAL)),
                name="task_live_child_idx",
            ),
            # queries.tasks: a tenant's newest tasks, by keyset.
            models.Index(F("tenant"), F("created_at").desc(), F("id").desc(), name="task_list_idx"),
            # queries.tasks: one status of a tenant, newest first; counts by status.
            models.Index(
                F("tenant"), F("status"), F("created_at").desc(), name="task_status_list_idx"
            ),
            # queries.tasks with "own only" visibility.
            models.Index(
                F("tenant"), F("initiator"), F("created_at").desc(), name="task_owner_list_idx"
            ),
        ]

    @override
    def __str__(self) -> str:
        """Return the title: what the admin's boxes and its History call the row."""
        return self.title
