"""Limits of tenants, agents and tasks, what is taken out of them, and prices (security section 8)."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from tasks_app.domain.budgets import BudgetKind
from tasks_app.models.access import AgentIdentity, Tenant
from tasks_app.models.scoped import scoped_manager
from tasks_app.models.task import Task

BUDGET_KINDS = tuple(kind.value for kind in BudgetKind)
# "" never starts anew.
PERIODS = ("", "day", "month")
RESERVATION_STATES = ("reserved", "settled", "released")
PRICE_UNITS = ("input_token", "output_token", "call")


class Budget(models.Model):
    """How much of one kind a tenant, an agent or a task may use.

    A row with a task is that task's, one with an agent the agent's, any other the tenant's. A null
    limit says that there is none. What tasks were granted stands in `reserved` of the rows above
    them until they end; a step touches only its task's row (S68).
    """

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(
        Tenant, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    agent = models.ForeignKey(
        AgentIdentity,
        models.PROTECT,
        null=True,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    task = models.ForeignKey(
        Task, models.PROTECT, null=True, related_name="+", db_constraint=False, db_index=False
    )
    kind = models.CharField(max_length=16)
    period = models.CharField(max_length=8, default="", blank=True)
    # The day on which the running period began, by the database's clock in UTC.
    period_start = models.DateField(null=True)
    limit_amount = models.BigIntegerField(null=True)
    spent = models.BigIntegerField(default=0)
    reserved = models.BigIntegerField(default=0)
    updated_at = models.DateTimeField(db_default=Now())

    objects = scoped_manager(read_capability="budgets:manage")

    class Meta:
        verbose_name = _("budget")
        verbose_name_plural = _("budgets")
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=BUDGET_KINDS), name="budget_kind_known"),
            models.CheckConstraint(condition=Q(period__in=PERIODS), name="budget_period_known"),
            models.CheckConstraint(
                condition=Q(spent__gte=0, reserved__gte=0), name="budget_not_negative"
            ),
            models.CheckConstraint(
                condition=Q(task__isnull=True) | Q(agent__isnull=True, period=""),
                name="budget_one_level",
            ),
            models.UniqueConstraint(fields=["tenant", "id"], name="budget_tenant_id_uniq"),
            # engine.budgets: the rows above a task; queries.budgets: a tenant's limits.
            models.UniqueConstraint(
                fields=["tenant", "agent", "kind", "period"],
                condition=Q(task__isnull=True),
                nulls_distinct=False,
                name="budget_level_uniq",
            ),
            # engine.budgets: the rows of a task.
            models.UniqueConstraint(
                fields=["task", "kind"],
                condition=Q(task__isnull=False),
                name="budget_task_kind_uniq",
            ),
        ]


class Reservation(models.Model):
    """What a call may use at most, taken out before it is made and settled with its result.

    `source` names the call (a step's or effect's key), so that a call that is repeated after a
    crash reserves once; "grant:<budget>" is what a task itself was given out of a row above it.
    """

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(
        Tenant, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    task = models.ForeignKey(
        Task, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    source = models.CharField(max_length=200)
    kind = models.CharField(max_length=16)
    amount = models.BigIntegerField()
    # Of a grant: what has been counted in the row above, once its task has ended.
    charged = models.BigIntegerField(db_default=0)
    state = models.CharField(max_length=12, default="reserved")
    fence = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now())
    settled_at = models.DateTimeField(null=True)

    objects = scoped_manager(owner_path="task__initiator_id")

    class Meta:
        verbose_name = _("reservation")
        verbose_name_plural = _("reservations")
        constraints = [
            models.CheckConstraint(
                condition=Q(kind__in=BUDGET_KINDS), name="reservation_kind_known"
            ),
            models.CheckConstraint(
                condition=Q(state__in=RESERVATION_STATES), name="reservation_state_known"
            ),
            models.CheckConstraint(condition=Q(amount__gte=0), name="reservation_not_negative"),
            # engine.budgets: once for each call and kind; the open ones of a task that ends.
            models.UniqueConstraint(
                fields=["task", "source", "kind"], name="reservation_source_uniq"
            ),
        ]


class Price(models.Model):
    """What a unit of a model or tool costs a tenant from a time on; older versions stay."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(
        Tenant, models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    subject = models.CharField(max_length=128)
    unit = models.CharField(max_length=16)
    version = models.PositiveIntegerField()
    micros_per_million = models.BigIntegerField()
    created_at = models.DateTimeField(db_default=Now())

    objects = scoped_manager(read_capability="budgets:manage")

    class Meta:
        verbose_name = _("price")
        verbose_name_plural = _("prices")
        constraints = [
            models.CheckConstraint(condition=Q(unit__in=PRICE_UNITS), name="price_unit_known"),
            models.CheckConstraint(
                condition=Q(micros_per_million__gte=0), name="price_not_negative"
            ),
            # engine.budgets: the newest price of a subject.
            models.UniqueConstraint(
                fields=["tenant", "subject", "unit", "version"], name="price_version_uniq"
            ),
        ]
