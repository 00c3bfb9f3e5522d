"""What execution leaves behind: plan steps, their results, attempts, slices, checkpoints."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from tasks_app.models.access import Tenant
from tasks_app.models.scoped import scoped_manager
from tasks_app.models.task import Task

STEP_KINDS = ("step", "map", "approval", "question", "effect", "sleep", "loop", "child")
STEP_STATUSES = ("planned", "running", "waiting", "succeeded", "failed", "skipped", "superseded")


class TaskRow(models.Model):
    """A row of one task; tenant and task form a composite foreign key in the database (S20)."""

    id = models.BigAutoField(primary_key=True)
    # No single-column indexes: each table has one that begins with what it is read by.
    tenant = models.ForeignKey(
        Tenant, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    task = models.ForeignKey(
        Task, models.PROTECT, related_name="%(class)ss", db_constraint=False, db_index=False
    )

    objects = scoped_manager(owner_path="task__initiator_id")

    class Meta:
        abstract = True


class Slice(TaskRow):
    """What one job delivery executed under one fence."""

    fence = models.BigIntegerField()
    worker = models.CharField(max_length=120)
    recovered = models.BooleanField(default=False)
    started_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=24, default="running")
    steps = models.PositiveIntegerField(default=0)

    class Meta:
        verbose_name = _("slice")
        verbose_name_plural = _("slices")
        constraints = [
            models.UniqueConstraint(fields=["task", "fence"], name="slice_task_fence_uniq"),
        ]
        indexes = [
            # engine.queue_sql: a tenant's newest slices: when it was served last.
            models.Index(F("tenant"), F("id").desc(), name="slice_served_idx"),
        ]


class Step(TaskRow):
    """One step of the stored plan with its result, stored once and never computed again.

    `key` names the step in its plan; a step that a later plan replaced stays as history with
    `retired_in` set. `arguments` holds literals and references to other steps' results.

    Steps of a function are appended when they are first reached. `scope` names the loop turn they
    belong to, empty outside of loops, null for the steps of a plan. A loop's own row counts its
    finished turns in `next_item` and keeps the states as of their end in `result`.
    """

    key = models.CharField(max_length=100)
    scope = models.CharField(max_length=100, null=True)  # noqa: DJ001 - null = a plan's step
    position = models.PositiveIntegerField()
    kind = models.CharField(max_length=12)
    method = models.CharField(max_length=100)
    arguments = models.JSONField(default=dict)
    options = models.JSONField(default=dict)
    signature = models.CharField(max_length=64)
    plan_version = models.PositiveIntegerField()
    retired_in = models.PositiveIntegerField(null=True)
    status = models.CharField(max_length=12, default="planned")
    # {"inline": value} or {"blob": {sha256, size_bytes}}; null until there is a result.
    result = models.JSONField(null=True)
    error = models.JSONField(null=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    next_item = models.PositiveBigIntegerField(default=0)
    items_failed = models.PositiveBigIntegerField(default=0)
    wake_at = models.DateTimeField(null=True)
    fence = models.BigIntegerField(default=0)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = _("step")
        verbose_name_plural = _("steps")
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=STEP_KINDS), name="step_kind_known"),
            models.CheckConstraint(condition=Q(status__in=STEP_STATUSES), name="step_status_known"),
            # engine.plans: the current plan, and a step by its key.
            models.UniqueConstraint(
                fields=["task", "key"],
                condition=Q(retired_in__isnull=True),
                name="step_current_key_uniq",
            ),
            models.UniqueConstraint(fields=["tenant", "id"], name="step_tenant_id_uniq"),
        ]
        indexes = [
            # engine.plans: the remaining plan from a position on; dashboard: steps in order.
            models.Index(F("task"), F("position"), F("plan_version"), name="step_task_order_idx"),
            # engine.function_scope: what is stored of a function, or of one of its turns.
            models.Index(
                F("task"),
                F("scope"),
                condition=Q(scope__isnull=False, retired_in__isnull=True),
                name="step_scope_idx",
            ),
            # engine.children: steps that wait for a child. No index mentions the status: a step's
            # outcome is a heap-only update.
            models.Index(
                F("task"),
                condition=Q(kind="child", retired_in__isnull=True),
                name="step_child_idx",
            ),
        ]


class StepRange(TaskRow):
    """Results of a range of items of a map step: [first_item, end_item), committed at once.

    `item_digests` lets a later plan take over the results of items that did not change.
    """

    step = models.ForeignKey(
        Step, models.PROTECT, related_name="ranges", db_constraint=False, db_index=False
    )
    first_item = models.PositiveBigIntegerField()
    end_item = models.PositiveBigIntegerField()
    item_digests = ArrayField(models.CharField(max_length=32))
    results = models.JSONField()
    failed = models.PositiveIntegerField(default=0)
    fence = models.BigIntegerField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = _("step range")
        verbose_name_plural = _("step ranges")
        constraints = [
            # workflows read results in order of items.
            models.UniqueConstraint(fields=["step", "first_item"], name="step_range_first_uniq"),
        ]


class Attempt(TaskRow):
    """One try of one step that did not succeed at once, with its diagnostics."""

    step = models.ForeignKey(
        Step, models.PROTECT, related_name="tries", db_constraint=False, db_index=False
    )
    number = models.PositiveSmallIntegerField()
    fence = models.BigIntegerField()
    error = models.JSONField()
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(db_default=Now())
    retry_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = _("attempt")
        verbose_name_plural = _("attempts")
        constraints = [
            models.UniqueConstraint(fields=["step", "number"], name="attempt_step_number_uniq"),
        ]


class Checkpoint(TaskRow):
    """Immutable document another worker can continue from.

    `document` is canonical JSON text; `sha256` is its digest, verified at every load (E51).
    """

    seq = models.BigIntegerField()
    schema_version = models.PositiveSmallIntegerField()
    plan_version = models.PositiveIntegerField()
    next_step = models.CharField(max_length=100)
    document = models.TextField()
    sha256 = models.CharField(max_length=64)
    fence = models.BigIntegerField()
    reason = models.CharField(max_length=24)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = _("checkpoint")
        verbose_name_plural = _("checkpoints")
        constraints = [
            # engine.checkpoints: the newest of a task.
            models.UniqueConstraint(fields=["task", "seq"], name="checkpoint_task_seq_uniq"),
        ]


class Outbox(TaskRow):
    """A message owed to the broker; written with the change that owes it, deleted at the claim."""

    kind = models.CharField(max_length=12, default="wake")
    reason = models.CharField(max_length=24)
    created_at = models.DateTimeField(db_default=Now())
    sent_at = models.DateTimeField(null=True)
    tries = models.PositiveSmallIntegerField(default=0)
    next_try_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = _("outbox message")
        verbose_name_plural = _("outbox messages")
        constraints = [
            # One owed wake-up for a task is enough, however many changes owe it.
            models.UniqueConstraint(fields=["task", "kind"], name="outbox_task_kind_uniq"),
        ]
        indexes = [
            # engine.continuation: messages to send (again), oldest first.
            models.Index(F("next_try_at"), name="outbox_next_try_idx"),
        ]
