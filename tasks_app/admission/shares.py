"""What the installation grants a tenant: its share of the workers and its limit."""

from uuid import UUID

from django.db import transaction

from ledger_app.services import audit
from tasks_app.domain.errors import FieldProblem, InvalidInputError
from tasks_app.models import Tenant
from tasks_app.models.access import WEIGHT_MAX

# What one row of `integer` holds.
LIMIT_MAX = 2**31 - 1


def set_share(*, tenant_id: UUID, weight: int, max_concurrent_tasks: int | None, by: str) -> bool:
    """Set a tenant's weight and limit; return whether anything changed.

    It counts from the next claim on; tasks that run already go on. `by` names the command that
    the operator of the installation runs: no member of a tenant may do this.

    Transaction: its own. Locks: the tenant, then the audit stream.
    Raises: InvalidInputError; nothing was changed.
    """
    _check(weight, max_concurrent_tasks)
    new = {"weight": weight, "max_concurrent_tasks": max_concurrent_tasks}
    with transaction.atomic(durable=True):
        tenant = Tenant.objects.select_for_update().get(pk=tenant_id)
        old = {name: getattr(tenant, name) for name in new}
        if old == new:
            return False
        Tenant.objects.filter(pk=tenant_id).update(**new)
        audit.append(
            stream=f"tenant:{tenant_id}",
            tenant_id=tenant_id,
            actor=f"system:{by}",
            action="tenant.share",
            target=f"tenant:{tenant_id}",
            via="command",
            details={"old": old, "new": new},
        )
    return True


def _check(weight: int, limit: int | None) -> None:
    problems = []
    if not 1 <= weight <= WEIGHT_MAX:
        problems.append(FieldProblem("/weight", "invalid_value", f"From 1 to {WEIGHT_MAX}."))
    if limit is not None and not 1 <= limit <= LIMIT_MAX:
        detail = "At least 1; a tenant that may do nothing is suspended."
        problems.append(FieldProblem("/maxConcurrentTasks", "invalid_value", detail))
    if problems:
        raise InvalidInputError("The share is not valid.", problems)
