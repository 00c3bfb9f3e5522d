"""Limits of a tenant or an agent, and prices: set by an admin, each with an audit entry (S67, S73)."""

from uuid import UUID

from django.db.models import Max, Q
from django.db.models.functions import Now

from tasks_app.admission import tenant_audit
from tasks_app.admission.admitting import DEFAULT_AGENT
from tasks_app.admission.keys import clean_reason
from tasks_app.admission.replays import own_transaction
from tasks_app.domain.budgets import check_amounts
from tasks_app.domain.errors import FieldProblem, InvalidInputError, NotFoundError
from tasks_app.domain.principal import Principal
from tasks_app.models import AgentIdentity, Budget, Price, Tenant
from tasks_app.models.budget import BUDGET_KINDS, PERIODS, PRICE_UNITS
from tasks_app.policy.capabilities import require


def set_limit(
    principal: Principal,
    *,
    kind: str,
    limit: int | None,
    reason: str,
    period: str = "",
    agent_id: UUID | None = None,
    request_id: str | None = None,
) -> Budget:
    """Set how much of a kind the tenant, or one of its agents, may use; None lifts the limit.

    What tasks were granted before stays granted: a limit below it only refuses new ones.

    Args:
        period: "day" or "month" in UTC, or "" for a limit that never starts anew.

    Transaction: its own. Locks: the tenant, so that two admins make one row.

    Raises:
        NotAllowedError, NotFoundError (agent), InvalidInputError: nothing was stored.
    """
    require(principal, "budgets:manage")
    text = clean_reason(reason)
    _check_limit(kind, limit, period)
    tenant_id = principal.tenant_id
    with own_transaction():
        Tenant.objects.select_for_update(no_key=True).get(id=tenant_id)
        agents = AgentIdentity.objects.for_tenant(tenant_id)
        if agent_id is not None and not agents.filter(pk=agent_id).exists():
            raise NotFoundError("Not found.")
        place = {"task_id": None, "agent_id": agent_id, "kind": kind, "period": period}
        rows = Budget.objects.for_tenant(tenant_id)
        row: Budget | None = rows.filter(**place).first()
        old = None if row is None else row.limit_amount
        if row is None:
            row = Budget.objects.create(tenant_id=tenant_id, limit_amount=limit, **place)
        else:
            rows.filter(pk=row.pk).update(limit_amount=limit, updated_at=Now())
            row.limit_amount = limit
        details = {**place, "agent_id": agent_id and str(agent_id), "old": old, "new": limit}
        tenant_audit.record(
            principal, "budget.set", f"budget:{row.pk}", request_id, {**details, "reason": text}
        )
    return row


def kinds_to_grant(principal: Principal) -> frozenset[str]:
    """Return the kinds of which a task that the caller starts must say how much it may use."""
    rows = Budget.objects.for_tenant(principal.tenant_id).filter(limit_amount__isnull=False)
    agents = AgentIdentity.objects.for_tenant(principal.tenant_id).filter(name=DEFAULT_AGENT)
    above = Q(agent_id=None) | Q(agent_id__in=agents.values("id"))
    return frozenset(rows.filter(above, task_id=None).values_list("kind", flat=True))


def set_price(
    principal: Principal,
    *,
    subject: str,
    unit: str,
    micros_per_million: int,
    reason: str,
    request_id: str | None = None,
) -> Price:
    """Say what a million units of a model or tool cost from now on; older prices stay on record.

    Transaction: its own. Locks: the tenant. Raises: NotAllowedError, InvalidInputError.
    """
    require(principal, "budgets:manage")
    text = clean_reason(reason)
    problems = check_amounts({"money_micros": micros_per_million}, "")
    if problems:
        found = FieldProblem("/microsPerMillion", problems[0].code, problems[0].detail)
        raise InvalidInputError(found.detail, [found])
    if unit not in PRICE_UNITS:
        raise _unknown("/unit", PRICE_UNITS)
    tenant_id = principal.tenant_id
    with own_transaction():
        Tenant.objects.select_for_update(no_key=True).get(id=tenant_id)
        rows = Price.objects.for_tenant(tenant_id).filter(subject=subject, unit=unit)
        newest = rows.aggregate(version=Max("version"))["version"] or 0
        price = Price.objects.create(
            tenant_id=tenant_id,
            subject=subject,
            unit=unit,
            version=newest + 1,
            micros_per_million=micros_per_million,
        )
        details = {
            "subject": subject,
            "unit": unit,
            "version": price.version,
            "micros_per_million": micros_per_million,
            "reason": text,
        }
        tenant_audit.record(principal, "price.set", f"price:{price.pk}", request_id, details)
    return price


def _check_limit(kind: str, limit: int | None, period: str) -> None:
    if kind not in BUDGET_KINDS:
        raise _unknown("/kind", BUDGET_KINDS)
    if period not in PERIODS:
        raise _unknown("/period", PERIODS)
    problems = check_amounts({kind: limit}, "")
    if problems:
        found = FieldProblem("/limit", problems[0].code, problems[0].detail)
        raise InvalidInputError(found.detail, [found])


def _unknown(pointer: str, known: tuple[str, ...]) -> InvalidInputError:
    detail = f"One of: {', '.join(word or 'none' for word in known)}."
    return InvalidInputError(detail, [FieldProblem(pointer, "invalid_value", detail)])
