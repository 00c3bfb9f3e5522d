"""Taking a request back from MCP clients that have nobody to show it to."""

from uuid import UUID

from django.db import transaction

from ledger_app.services import audit
from tasks_app.domain.errors import NotFoundError
from tasks_app.domain.principal import Principal
from tasks_app.models import Task, WithdrawnRequest
from tasks_app.policy.capabilities import require


def withdraw(principal: Principal, *, task_id: UUID, key: str) -> None:
    """Offer a request over MCP no more; it stays open for pages and REST. Again changes nothing.

    Transaction: its own. Locks: the task row, then the audit stream.
    Raises: NotFoundError, NotAllowedError.
    """
    require(principal, "tasks:read")
    with transaction.atomic(durable=True):
        rows = Task.objects.visible_to(principal).select_for_update(no_key=True, of=("self",))
        task = rows.filter(pk=task_id).first()
        if task is None:
            raise NotFoundError("Not found.")
        offered = WithdrawnRequest.objects.for_tenant(task.tenant_id)
        _, is_new = offered.get_or_create(
            task_id=task.id,
            key=key,
            defaults={"tenant_id": task.tenant_id, "by_id": principal.user_id},
        )
        if not is_new:
            return
        audit.append(
            stream=f"task:{task.id}",
            tenant_id=task.tenant_id,
            actor=principal.actor,
            action="request.withdrawn",
            target=f"task:{task.id}",
            via=principal.via,
            details={"key": key},
        )
