"""The entry that every act of an admin leaves in the tenant's own audit stream."""

from collections.abc import Mapping

from ledger_app.services import audit
from tasks_app.domain.principal import Principal


def record(
    principal: Principal,
    action: str,
    target: str,
    request_id: str | None,
    details: Mapping[str, object],
) -> None:
    """Append what a person did to the tenant's stream; the last statement of its transaction.

    Args:
        target: kind and id, such as "user:7".

    Transaction: the caller's. Locks: the audit stream.
    """
    audit.append(
        stream=f"tenant:{principal.tenant_id}",
        tenant_id=principal.tenant_id,
        actor=principal.actor,
        action=action,
        target=target,
        via=principal.via,
        request_id=request_id,
        details=details,
    )
