"""Tasks as a thread sees them: who may go next, what was asked, and the states they leave behind."""

import uuid

from django.db import models
from django.db.models import F, Q, Value
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from tasks_app.domain.runs import CancelAction, Slot, Strategy
from tasks_app.models.access import Tenant
from tasks_app.models.scoped import scoped_manager
from tasks_app.models.task import Task, Thread


class ThreadState(models.Model):
    """The values of a thread after something changed them; the newest one is the thread's head.

    `values` is a JSON object with at least `messages`, `result` and `artifacts`. Never changed; so
    the state that a run began with is also the snapshot of its workspace.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(
        Tenant, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    thread = models.ForeignKey(
        Thread, models.PROTECT, related_name="states", db_constraint=False, db_index=False
    )
    seq = models.BigIntegerField()
    # The task that left it; null when a client wrote it.
    task = models.ForeignKey(
        Task, models.PROTECT, null=True, related_name="+", db_constraint=False, db_index=False
    )
    # How it came about: `run`, `update` by a client, or `rollback`.
    source = models.CharField(max_length=10)
    parent = models.ForeignKey(
        "self", models.PROTECT, null=True, related_name="+", db_constraint=False, db_index=False
    )
    values = models.JSONField()
    # The thread's files by path, as `domain.workspace.FileFact`.
    workspace = models.JSONField(default=dict, db_default=Value({}, models.JSONField()))
    metadata = models.JSONField(default=dict)
    created_at = models.DateTimeField(db_default=Now())

    objects = scoped_manager(owner_path="thread__owner_id")

    class Meta:
        verbose_name = _("thread state")
        verbose_name_plural = _("thread states")
        constraints = [
            # queries.threads: head and history of a thread.
            models.UniqueConstraint(fields=["thread", "seq"], name="state_thread_seq_uniq"),
            models.UniqueConstraint(fields=["tenant", "id"], name="state_tenant_id_uniq"),
            models.CheckConstraint(
                condition=Q(source__in=("run", "update", "rollback")), name="state_source_known"
            ),
        ]


class Run(models.Model):
    """A task in its thread: one row beside the task's own for each task that has a thread.

    At most one run of a thread holds its slot; only that one is ever due. `request` is what the
    client asked for, without anything secret; `server_context` is what the server added.
    """

    task = models.OneToOneField(
        Task, models.PROTECT, primary_key=True, related_name="run", db_constraint=False
    )
    tenant = models.ForeignKey(
        Tenant, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    thread = models.ForeignKey(
        Thread, models.PROTECT, related_name="runs", db_constraint=False, db_index=False
    )
    # The order of admission in the thread, from 1.
    number = models.BigIntegerField()
    slot = models.CharField(max_length=8)
    strategy = models.CharField(max_length=10)
    # The first action that was asked for wins; empty while nobody asked.
    cancel_action = models.CharField(max_length=10, default="", blank=True)
    cancel_reason = models.CharField(max_length=24, default="", blank=True)
    cancels_on_disconnect = models.BooleanField(default=False)
    disconnect_deadline = models.DateTimeField(null=True)
    not_before = models.DateTimeField(null=True)
    request = models.JSONField(default=dict)
    metadata = models.JSONField(default=dict)
    server_context = models.JSONField(default=dict)
    # The thread's head when the run got the slot, and the state that it left.
    base_state = models.ForeignKey(
        ThreadState,
        models.PROTECT,
        null=True,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    final_state = models.ForeignKey(
        ThreadState,
        models.PROTECT,
        null=True,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    # Since when clients do not see it any more.
    hidden_at = models.DateTimeField(null=True)

    objects = scoped_manager(owner_path="task__initiator_id")

    class Meta:
        verbose_name = _("run")
        verbose_name_plural = _("runs")
        constraints = [
            models.CheckConstraint(
                condition=Q(slot__in=[slot.value for slot in Slot]), name="run_slot_known"
            ),
            models.CheckConstraint(
                condition=Q(strategy__in=[strategy.value for strategy in Strategy]),
                name="run_strategy_known",
            ),
            models.CheckConstraint(
                condition=Q(cancel_action__in=["", *(action.value for action in CancelAction)]),
                name="run_cancel_action_known",
            ),
            # engine.threads: at most one run of a thread is at work.
            models.UniqueConstraint(
                fields=["thread"], condition=Q(slot=Slot.HOLDING), name="run_thread_slot_uniq"
            ),
            # queries.runs: runs of a thread, newest first.
            models.UniqueConstraint(fields=["thread", "number"], name="run_thread_number_uniq"),
        ]
        indexes = [
            # engine.threads: who is next in a thread.
            models.Index(
                F("thread"), F("number"), condition=Q(slot=Slot.WAITING), name="run_waiting_idx"
            ),
            # engine.threads.pass_due: runs whose time has come while nobody held the slot.
            models.Index(
                F("not_before"),
                condition=Q(slot=Slot.WAITING, not_before__isnull=False),
                name="run_not_before_idx",
            ),
            # engine.threads.cancel_deserted: runs whose creator went away.
            models.Index(
                F("disconnect_deadline"),
                condition=Q(disconnect_deadline__isnull=False),
                name="run_deserted_idx",
            ),
        ]
