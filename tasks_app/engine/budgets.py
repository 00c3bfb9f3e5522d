"""What tasks may use: granted at admission, reserved before a call, settled with its result.

A step touches only its task's rows; what stands above them was granted once and comes back when the
task ends (security S68). Every reservation is one conditional UPDATE, so two of them never pass a
limit together (S69). Nothing is given back because time passed (S71).
"""

from collections.abc import Mapping
from uuid import UUID

from django.db import connection
from django.db.models import Max
from django.db.models.functions import Now

from ledger_app.domain.effects import EffectState
from ledger_app.queries import iterate_effect_summaries
from ledger_app.services import usage
from tasks_app.domain.budgets import (
    COUNTED,
    BudgetKind,
    cost_micros,
    crossed,
    share_of,
    tighten,
)
from tasks_app.domain.errors import (
    BudgetExceededError,
    BudgetInsufficientError,
    BudgetRequiredError,
    PriceUnknownError,
)
from tasks_app.domain.states import TERMINAL
from tasks_app.engine.session import SliceSession
from tasks_app.engine.usage import UsageReport
from tasks_app.events.catalogue import EventType
from tasks_app.models import Budget, Price, Reservation, Task, Tenant
from tasks_app.workflows.definition import Estimate

DEFAULT_CURRENCY = "USD"
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

# A call that is repeated finds its reservation; one that was given back takes it anew (S70).
_RESERVE = """
WITH taken AS (
    INSERT INTO tasks_app_reservation
        (tenant_id, task_id, source, kind, amount, state, fence, created_at)
    VALUES (%(tenant_id)s, %(task_id)s, %(source)s, %(kind)s, %(amount)s, 'reserved', %(fence)s,
        clock_timestamp())
    ON CONFLICT (task_id, source, kind) DO UPDATE SET
        state = 'reserved', amount = EXCLUDED.amount, fence = EXCLUDED.fence, settled_at = NULL
        WHERE tasks_app_reservation.state = 'released'
    RETURNING amount
), fits AS (
    UPDATE tasks_app_budget b
    SET reserved = b.reserved + taken.amount, updated_at = clock_timestamp()
    FROM taken
    WHERE b.task_id = %(task_id)s AND b.kind = %(kind)s
      AND (b.limit_amount IS NULL OR b.spent + b.reserved + taken.amount <= b.limit_amount)
    RETURNING b.id
)
SELECT (SELECT count(*) FROM taken), (SELECT count(*) FROM fits)
"""

_SETTLE = """
WITH done AS (
    UPDATE tasks_app_reservation SET state = %(state)s, settled_at = clock_timestamp()
    WHERE task_id = %(task_id)s AND source = %(source)s AND kind = %(kind)s AND state = 'reserved'
    RETURNING amount
)
UPDATE tasks_app_budget b SET
    reserved = b.reserved - done.amount,
    spent = b.spent + %(spent)s,
    updated_at = clock_timestamp()
FROM done WHERE b.task_id = %(task_id)s AND b.kind = %(kind)s
RETURNING b.spent, b.limit_amount
"""

_SPEND = """
UPDATE tasks_app_budget SET spent = spent + %(spent)s, updated_at = clock_timestamp()
WHERE task_id = %(task_id)s AND kind = %(kind)s
RETURNING spent, limit_amount
"""


# --- a task begins ---------------------------------------------------------------------------------


def open_task(task: Task) -> None:
    """Give a new task its limits, out of what stands above it: its parent's, or its tenant's.

    Steps and time of a child are its own: only what is reserved before calls is taken from a parent.

    Transaction: the caller's, which stores the task. Locks: the rows above, in order of id.

    Raises:
        BudgetRequiredError: a limit stands above the task, and it has none of that kind itself.
        BudgetInsufficientError: less is left above than the task asks for (S74).
    """
    limits: dict[str, int] = task.budget
    for row in _rows_above(task):
        amount = limits.get(row.kind)
        if amount is None:
            raise BudgetRequiredError(row.kind)
        _take(task, row, amount)
    Budget.objects.for_tenant(task.tenant_id).bulk_create(
        Budget(tenant_id=task.tenant_id, task_id=task.id, kind=kind, limit_amount=limit)
        for kind, limit in sorted(limits.items())
    )


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


def _rows_above(task: Task) -> list[Budget]:
    rows = Budget.objects.for_tenant(task.tenant_id).filter(limit_amount__isnull=False)
    if task.parent_id is not None:
        return list(rows.filter(task_id=task.parent_id).exclude(kind__in=COUNTED).order_by("id"))
    levels = rows.filter(task_id=None, agent_id=None) | rows.filter(
        task_id=None, agent_id=task.agent_id
    )
    return list(levels.order_by("id"))


def _take(task: Task, row: Budget, amount: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            _TAKE,
            {
                "id": row.id,
                "tenant_id": task.tenant_id,
                "period": row.period,
                "amount": amount,
            },
        )
        if cursor.fetchone() is None:
            raise BudgetInsufficientError(row.kind)
    Reservation.objects.create(
        tenant_id=task.tenant_id,
        task_id=task.id,
        source=f"{_GRANT}{row.id}",
        kind=row.kind,
        amount=amount,
    )


# --- a task goes on --------------------------------------------------------------------------------


def check_counted(session: SliceSession) -> None:
    """Refuse the next step when the task's steps or active time are used up (S75).

    Nothing is read: the claim brought the limits and what was used before.

    Raises: BudgetExceededError.
    """
    if not session.is_out_of_budget:
        return
    for kind, used in session.counted.items():
        limit = session.task.budget.get(kind)
        if limit is not None and used >= limit:
            raise BudgetExceededError(kind, limit, int(used))


def reserve(session: SliceSession, source: str, estimate: Estimate, *, calls: int = 1) -> None:
    """Take out what a call may use at most, all kinds or none; limits only where there are any.

    Transaction: the caller's, committed before the call. Locks: the task's budget rows by kind.
    Raises: BudgetExceededError, PriceUnknownError; the caller's transaction must not commit.
    """
    task = session.task
    amounts = _priced(session, estimate, calls)
    with connection.cursor() as cursor:
        for kind in sorted(amounts):
            if kind not in task.budget:
                continue
            cursor.execute(
                _RESERVE,
                {
                    "tenant_id": task.tenant_id,
                    "task_id": task.id,
                    "fence": task.fence,
                    "source": source,
                    "kind": kind,
                    "amount": amounts[kind],
                },
            )
            taken, fits = cursor.fetchone()
            if taken and not fits:
                raise BudgetExceededError(kind, task.budget[kind], amounts[kind])


def settle(
    session: SliceSession, source: str, estimate: Estimate | None, *, calls: int = 1
) -> None:
    """Count what a finished call used: what it reported, else what was reserved for it.

    Transaction: the one that stores the call's result.
    """
    reported = charge(session)
    amounts = {} if estimate is None else _priced(session, estimate, calls)
    for kind in sorted(amounts):
        spent = 0 if kind in reported else amounts[kind]
        _close_reservation(session, source, kind, "settled", spent)


def release(session: SliceSession, source: str, estimate: Estimate) -> None:
    """Give back what was reserved for a call that certainly did not happen."""
    for kind in sorted(_priced(session, estimate, 1)):
        _close_reservation(session, source, kind, "released", 0)


def is_concerned(session: SliceSession, estimate: Estimate | None) -> bool:
    """Tell whether the outcome of a call changes a budget or the ledger's usage."""
    return session.has_reports or (estimate is not None and bool(session.task.budget))


def charge(session: SliceSession) -> set[BudgetKind]:
    """Enter reported usage in the ledger, each source once; return the kinds that were reported.

    Transaction: the one that stores the outcome of the try, also of a failed one.
    """
    task, reports = session.task, session.take_reports()
    currency = _currency(task.tenant_id) if reports else ""
    for report in reports:
        cost = _cost(session, report)
        is_new = usage.record(
            tenant_id=task.tenant_id,
            task_id=task.id,
            source_id=report.source_id,
            caller=report.caller,
            model=report.model,
            input_tokens=report.input_tokens,
            output_tokens=report.output_tokens,
            cost_micros=cost,
            currency=currency,
        )
        if is_new:
            _spend(session, BudgetKind.TOKENS, report.input_tokens + report.output_tokens)
            _spend(session, BudgetKind.MONEY_MICROS, cost)
    return {BudgetKind.TOKENS, BudgetKind.MONEY_MICROS} if reports else set()


def _spend(session: SliceSession, kind: BudgetKind, amount: int) -> None:
    task = session.task
    if kind not in task.budget or amount == 0:
        return
    with connection.cursor() as cursor:
        cursor.execute(_SPEND, {"task_id": task.id, "kind": kind, "spent": amount})
        row = cursor.fetchone()
    if row is not None:
        _notice(session, kind, amount, *row)


def _close_reservation(
    session: SliceSession, source: str, kind: BudgetKind, state: str, spent: int
) -> None:
    task = session.task
    if kind not in task.budget:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            _SETTLE,
            {"task_id": task.id, "source": source, "kind": kind, "state": state, "spent": spent},
        )
        row = cursor.fetchone()
    if row is not None:
        _notice(session, kind, spent, *row)


def _notice(session: SliceSession, kind: str, amount: int, spent: int, limit: int | None) -> None:
    """Tell people when 80 and 100 % of a limit are used (S74)."""
    percent = crossed(spent - amount, spent, limit)
    if percent:
        session.hold_event(
            EventType.BUDGET, {"kind": kind, "percent": percent, "spent": spent, "limit": limit}
        )


def _priced(session: SliceSession, estimate: Estimate, calls: int) -> dict[BudgetKind, int]:
    """Return the estimate with the price of its tokens, where money is limited (S73)."""
    amounts = {BudgetKind(kind): amount for kind, amount in estimate.amounts(calls).items()}
    tokens = amounts.get(BudgetKind.TOKENS, 0)
    if (
        estimate.model
        and BudgetKind.MONEY_MICROS in session.task.budget
        and BudgetKind.MONEY_MICROS not in amounts
    ):
        prices = _prices(session.task.tenant_id, estimate.model)
        highest = max(prices.get("input_token", 0), prices.get("output_token", 0))
        amounts[BudgetKind.MONEY_MICROS] = cost_micros(tokens, highest)
    return amounts


def _cost(session: SliceSession, report: UsageReport) -> int:
    if report.cost_micros is not None:
        return report.cost_micros
    if BudgetKind.MONEY_MICROS not in session.task.budget:
        return 0
    prices = _prices(session.task.tenant_id, report.model)
    return cost_micros(report.input_tokens, prices.get("input_token", 0)) + cost_micros(
        report.output_tokens, prices.get("output_token", 0)
    )


def _currency(tenant_id: UUID) -> str:
    settings = Tenant.objects.values_list("settings", flat=True).get(pk=tenant_id)
    return str(settings.get("currency", DEFAULT_CURRENCY))


def _prices(tenant_id: UUID, subject: str) -> dict[str, int]:
    """Return the newest price of each unit. Raises: PriceUnknownError when there is none."""
    rows = Price.objects.for_tenant(tenant_id).filter(subject=subject)
    newest = rows.values("unit").annotate(newest=Max("version"))
    versions = {row["unit"]: row["newest"] for row in newest}
    found = {row.unit: row.micros_per_million for row in rows if versions[row.unit] == row.version}
    if not found:
        raise PriceUnknownError(subject)
    return found


# --- a task ends -----------------------------------------------------------------------------------


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
        with connection.cursor() as cursor:
            cursor.execute(
                _SETTLE,
                {
                    "task_id": task_id,
                    "source": row.source,
                    "kind": row.kind,
                    "state": "settled",
                    "spent": row.amount,
                },
            )


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
