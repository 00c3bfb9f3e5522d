"""What a task is given when it begins, out of what stands above it, and gives back when it ends.

A step touches only its task's rows; what stands above them was granted once (security S68). Nothing
is given back because time passed (S71).
"""

from collections.abc import Mapping
from uuid import UUID

from django.db import connection
from django.db.models.functions import Now

from ledger_app.domain.effects import EffectState
from ledger_app.queries import iterate_effect_summaries
from tasks_app.domain.budgets import COUNTED, BudgetKind, share_of, tighten
from tasks_app.domain.errors import BudgetInsufficientError, BudgetRequiredError
from tasks_app.domain.states import TERMINAL
from tasks_app.engine import budgets
from tasks_app.engine.session import SliceSession
from tasks_app.models import Budget, Reservation, Task

_GRANT = "grant:"

# A row whose period is over starts it anew with the first grant of the next one.
_TAKE = """
UPDATE tasks_app_budget b SET
    spent = CASE WHEN now.starts IS NOT DISTINCT FROM b.period_start THEN b.spent ELSE 0 END,
    period_start = now.starts,
    reserved = b.reserved + %(amount)s,
    updated_at = clock_timestamp()
FROM (
    SELECT date_trunc(nullif(%(period)s, ''), clock_timestamp() AT TIME ZONE 'UTC')::date AS starts
) now
WHERE b.id = %(id)s AND b.tenant_id = %(tenant_id)s AND %(amount)s
    + CASE WHEN now.starts IS NOT DISTINCT FROM b.period_start THEN b.spent ELSE 0 END
    + b.reserved <= b.limit_amount
RETURNING b.id
"""


def take_from_above(
    tenant_id: UUID,
    limits: Mapping[UUID, Mapping[str, int]],
    *,
    agent_id: UUID | str,
    parent_id: UUID | str | None,
) -> None:
    """Take the limits of new tasks out of what stands above: their parent's, or their tenant's.

    Steps and time of a child are its own: only what is reserved before calls is taken from a parent.

    Args:
        limits: of each task by kind.

    Transaction: the caller's, which stores the tasks. Locks: the rows above, in order of id.

    Raises:
        BudgetRequiredError: a limit stands above a task, and it has none of that kind itself.
        BudgetInsufficientError: less is left above than the tasks ask for together (S74).
    """
    for row in _rows_above(tenant_id, agent_id, parent_id):
        amounts = {task_id: kinds.get(row.kind) for task_id, kinds in limits.items()}
        _take(row, amounts)


def child_limits(
    session: SliceSession, own: Mapping[str, int | None], share: float | None
) -> dict[str, int]:
    """Return the limits of a child: a share of its parent's, without one what the parent has left.

    `own` are the limits that its workflow sets; the lower of two counts.
    """
    task = session.task
    if share is not None:
        return tighten(own, share_of(task.budget, share))
    rows = Budget.objects.for_tenant(task.tenant_id).filter(task_id=task.id)
    left = {
        row.kind: max(0, row.limit_amount - row.spent - row.reserved)
        for row in rows
        if row.limit_amount is not None
    }
    return tighten(own, {**task.budget, **left})


def _rows_above(
    tenant_id: UUID, agent_id: UUID | str, parent_id: UUID | str | None
) -> list[Budget]:
    rows = Budget.objects.for_tenant(tenant_id).filter(limit_amount__isnull=False)
    if parent_id is not None:
        return list(rows.filter(task_id=parent_id).exclude(kind__in=COUNTED).order_by("id"))
    levels = rows.filter(task_id=None, agent_id=None) | rows.filter(task_id=None, agent_id=agent_id)
    return list(levels.order_by("id"))


def _take(row: Budget, amounts: Mapping[UUID, int | None]) -> None:
    """Take what each task asks for out of one row, all of it or nothing."""
    asked = {task_id: amount for task_id, amount in amounts.items() if amount is not None}
    if len(asked) < len(amounts):
        raise BudgetRequiredError(row.kind)
    with connection.cursor() as cursor:
        cursor.execute(
            _TAKE,
            {
                "id": row.id,
                "tenant_id": row.tenant_id,
                "period": row.period,
                "amount": sum(asked.values()),
            },
        )
        if cursor.fetchone() is None:
            raise BudgetInsufficientError(row.kind)
    Reservation.objects.for_tenant(row.tenant_id).bulk_create(
        Reservation(
            tenant_id=row.tenant_id,
            task_id=task_id,
            source=f"{_GRANT}{row.id}",
            kind=row.kind,
            amount=amount,
        )
        for task_id, amount in asked.items()
    )


def close_task(task_id: UUID, tenant_id: UUID) -> None:
    """Settle what a task that ends left open, and give back what it did not use (S68, S71).

    What may have happened outside and is in doubt stays reserved, here and above. A step that was
    broken off may have used all that was reserved for it, and counts so.

    Transaction: the one that ends the task. Locks: its budget rows, then those above, by id.
    """
    own = {row.kind: row for row in Budget.objects.for_tenant(tenant_id).filter(task_id=task_id)}
    if not own:
        return
    _settle_open(tenant_id, task_id)
    counted = Task.objects.for_tenant(tenant_id).values("steps_done", "active_seconds")
    facts = counted.get(pk=task_id)
    used = {
        BudgetKind.STEPS.value: facts["steps_done"],
        BudgetKind.ACTIVE_SECONDS.value: round(facts["active_seconds"]),
    }
    for kind in used.keys() & own.keys():
        Budget.objects.for_tenant(tenant_id).filter(pk=own[kind].pk).update(spent=used[kind])
    _return_grants(tenant_id, task_id)


def _return_grants(tenant_id: UUID, task_id: UUID) -> None:
    """Replace what an ended task was granted by what it used and what is still reserved in it.

    Reserved are acts in doubt and children that still run; when such a child ends, this is done
    again for its parent.
    """
    rows = Budget.objects.for_tenant(tenant_id).select_for_update().filter(task_id=task_id)
    own = {row.kind: row for row in rows.order_by("id")}
    grants = Reservation.objects.for_tenant(tenant_id).filter(
        task_id=task_id, source__startswith=_GRANT, state="reserved"
    )
    for grant in sorted(grants, key=lambda row: int(row.source.removeprefix(_GRANT))):
        _give_back(grant, own[grant.kind])
    parents = Task.objects.for_tenant(tenant_id).filter(children=task_id)
    parent = parents.filter(status__in=TERMINAL).values_list("id", flat=True).first()
    if parent is not None:
        _return_grants(tenant_id, parent)


def _settle_open(tenant_id: UUID, task_id: UUID) -> None:
    """Settle the task's open reservations, but for acts in doubt."""
    doubted = {
        row.key
        for row in iterate_effect_summaries(
            tenant_id=tenant_id, task_id=task_id, states=[EffectState.IN_DOUBT]
        )
    }
    rows = Reservation.objects.for_tenant(tenant_id).filter(task_id=task_id, state="reserved")
    for row in rows.exclude(source__startswith=_GRANT).order_by("id"):
        if row.source in doubted:
            continue
        budgets.settle_reservation(tenant_id, task_id, row.source, row.kind, "settled", row.amount)


def _give_back(grant: Reservation, own: Budget) -> None:
    kept = own.reserved
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE tasks_app_budget SET reserved = reserved - %s + %s, spent = spent + %s,"
            " updated_at = clock_timestamp() WHERE id = %s AND tenant_id = %s",
            [
                grant.amount,
                kept,
                own.spent - grant.charged,
                int(grant.source.removeprefix(_GRANT)),
                grant.tenant_id,
            ],
        )
    Reservation.objects.for_tenant(grant.tenant_id).filter(pk=grant.pk).update(
        amount=kept,
        charged=own.spent,
        state="reserved" if kept else "settled",
        settled_at=None if kept else Now(),
    )
