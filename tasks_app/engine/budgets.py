"""What a task uses up: reserved before a call, settled in the commit of its result.

Every reservation is one conditional UPDATE, so two of them never pass a limit together (security
S69). How a task comes to its limits is in `budget_grants`.
"""

from uuid import UUID

from django.db import connection
from django.db.models import Max

from ledger_app.services import usage
from tasks_app.domain.budgets import (
    COUNTED,
    BudgetKind,
    cost_micros,
    notice_of,
)
from tasks_app.domain.errors import (
    BudgetExceededError,
    PriceUnknownError,
)
from tasks_app.engine.session import SliceSession
from tasks_app.engine.usage import UsageReport
from tasks_app.events.catalogue import EventType
from tasks_app.models import Budget, Price, Tenant
from tasks_app.workflows.definition import Estimate

DEFAULT_CURRENCY = "USD"

# A call that is repeated finds its reservation; one that was given back takes it anew (S70).
_RESERVE = """
WITH taken AS (
    INSERT INTO tasks_app_reservation
        (tenant_id, task_id, source, kind, amount, state, fence, created_at)
    VALUES (%(tenant_id)s, %(task_id)s, %(source)s, %(kind)s, %(amount)s, 'reserved', %(fence)s,
        clock_timestamp())
    ON CONFLICT (task_id, source, kind) DO UPDATE SET
        state = 'reserved', amount = EXCLUDED.amount, fence = EXCLUDED.fence, settled_at = NULL
        WHERE tasks_app_reservation.tenant_id = EXCLUDED.tenant_id
          AND tasks_app_reservation.state = 'released'
    RETURNING amount
), fits AS (
    UPDATE tasks_app_budget b
    SET reserved = b.reserved + taken.amount, updated_at = clock_timestamp()
    FROM taken
    WHERE b.tenant_id = %(tenant_id)s AND b.task_id = %(task_id)s AND b.kind = %(kind)s
      AND (b.limit_amount IS NULL OR b.spent + b.reserved + taken.amount <= b.limit_amount)
    RETURNING b.id
)
SELECT (SELECT count(*) FROM taken), (SELECT count(*) FROM fits)
"""

_SETTLE = """
WITH done AS (
    UPDATE tasks_app_reservation SET state = %(state)s, settled_at = clock_timestamp()
    WHERE tenant_id = %(tenant_id)s AND task_id = %(task_id)s AND source = %(source)s
      AND kind = %(kind)s AND state = 'reserved'
    RETURNING amount
)
UPDATE tasks_app_budget b SET
    reserved = b.reserved - done.amount,
    spent = b.spent + %(spent)s,
    updated_at = clock_timestamp()
FROM done WHERE b.tenant_id = %(tenant_id)s AND b.task_id = %(task_id)s AND b.kind = %(kind)s
RETURNING b.spent, b.limit_amount
"""

_SPEND = """
UPDATE tasks_app_budget SET spent = spent + %(spent)s, updated_at = clock_timestamp()
WHERE tenant_id = %(tenant_id)s AND task_id = %(task_id)s AND kind = %(kind)s
RETURNING spent, limit_amount
"""


def check_limits(session: SliceSession) -> None:
    """Refuse the next step of a task that has used up its steps or its active time (S75).

    So too when more of another kind was used than the task may use: an estimate was too low, or
    there was none (S72). What is just used up stops only a call that needs some of it.

    Raises: BudgetExceededError; PriceUnknownError when a call used what nobody has priced (S73).
    """
    if session.spending.unpriced is not None and session.spending.is_limited:
        raise session.spending.unpriced
    _know_spent(session)
    if not session.spending.is_over:
        return
    limits = session.task.budget
    for kind, used in session.spending.counted.items():
        if kind in limits and used >= limits[kind]:
            raise BudgetExceededError(kind, limits[kind], int(used))
    for kind, used in (session.spending.spent or {}).items():
        if used > limits[kind]:
            raise BudgetExceededError(kind, limits[kind], used)


def _know_spent(session: SliceSession) -> None:
    """Read once a slice what was spent before it; from there on every entry tells the new sum."""
    task = session.task
    if session.spending.spent is not None or not session.spending.is_limited:
        return
    kinds = task.budget.keys() - COUNTED
    rows = Budget.objects.for_tenant(task.tenant_id).filter(task_id=task.id, kind__in=kinds)
    # Nothing is there to be read when a task first begins.
    is_new = task.fence == 1 or not kinds
    session.spending.spent = {} if is_new else dict(rows.values_list("kind", "spent"))


def may_be_over(session: SliceSession) -> bool:
    """Tell whether what calls used, and no commit has entered yet, may be more than is allowed."""
    if not session.spending.reports or not session.spending.is_limited:
        return False
    limits, spent = session.task.budget, session.spending.spent or {}
    tokens = sum(report.input_tokens + report.output_tokens for report in session.spending.reports)
    costs = [report.cost_micros for report in session.spending.reports]
    used = {
        BudgetKind.TOKENS: tokens,
        # What has no price yet is priced when it is entered.
        BudgetKind.MONEY_MICROS: sum(cost or 0 for cost in costs),
    }
    return (BudgetKind.MONEY_MICROS in limits and None in costs) or any(
        kind in limits and spent.get(kind, 0) + amount > limits[kind]
        for kind, amount in used.items()
    )


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
    return bool(session.spending.reports) or (estimate is not None and bool(session.task.budget))


def charge(session: SliceSession) -> set[BudgetKind]:
    """Enter reported usage in the ledger, each source once; return the kinds that were reported.

    Transaction: the one that stores the outcome of the try, also of a failed one.
    """
    task, reports = session.task, session.spending.take_reports()
    currency = _currency(task.tenant_id) if reports else ""
    for report in reports:
        try:
            cost = _cost(session, report)
        except PriceUnknownError as error:
            # The call was made and its result counts; no further one starts.
            session.spending.unpriced, cost = error, 0
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
        cursor.execute(
            _SPEND,
            {"tenant_id": task.tenant_id, "task_id": task.id, "kind": kind, "spent": amount},
        )
        row = cursor.fetchone()
    if row is not None:
        _notice(session, kind, amount, *row)


def _close_reservation(
    session: SliceSession, source: str, kind: BudgetKind, state: str, spent: int
) -> None:
    task = session.task
    if kind not in task.budget:
        return
    row = settle_reservation(task.tenant_id, task.id, source, kind, state, spent)
    if row is not None:
        _notice(session, kind, spent, *row)


def settle_reservation(
    tenant_id: UUID, task_id: UUID, source: str, kind: str, state: str, spent: int
) -> tuple[int, int | None] | None:
    """Close one open reservation and count what its call used; return (spent, limit) of the task.

    None says that it was closed before. Transaction: the caller's.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            _SETTLE,
            {
                "tenant_id": tenant_id,
                "task_id": task_id,
                "source": source,
                "kind": kind,
                "state": state,
                "spent": spent,
            },
        )
        row: tuple[int, int | None] | None = cursor.fetchone()
        return row


def _notice(session: SliceSession, kind: str, amount: int, spent: int, limit: int | None) -> None:
    """Note the new sum, and tell people when 80 and 100 % of a limit are used (S74)."""
    session.spending.spent = {**(session.spending.spent or {}), kind: spent}
    notice = notice_of(kind, spent - amount, spent, limit)
    if notice is not None:
        session.hold_event(EventType.BUDGET, notice)


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
