"""How much of a tenant needs a person."""

from dataclasses import dataclass

from django.db.models.functions import Now

from ledger_app import queries as ledger
from ledger_app.domain.effects import EffectState
from tasks_app.domain.principal import Principal
from tasks_app.domain.states import LEASED, TaskStatus
from tasks_app.models import Approval, Task


@dataclass(frozen=True, slots=True)
class Needs:
    """How many things of a tenant need a person; None where the viewer may not see any."""

    approvals: int | None
    dead_letters: int | None
    effects_in_doubt: int | None
    expired_leases: int | None


def count_needs(principal: Principal) -> Needs:
    """Return how many visible things need a person."""
    tasks = Task.objects.visible_to(principal)
    sees_tasks = principal.can("tasks:read")
    approvals = Approval.objects.visible_to(principal).filter(status="pending")
    expired = {"status__in": LEASED, "lease_expires_at__lt": Now()}
    return Needs(
        approvals=approvals.count() if principal.can("approvals:read") else None,
        dead_letters=tasks.filter(status=TaskStatus.DEAD_LETTERED).count() if sees_tasks else None,
        effects_in_doubt=_count_in_doubt(principal) if principal.can("ledger:read") else None,
        expired_leases=tasks.filter(**expired).count() if sees_tasks else None,
    )


def _count_in_doubt(principal: Principal) -> int:
    doubtful = [
        effect.task_id
        for effect in ledger.list_open_effects(tenant_id=principal.tenant_id)
        if effect.state == EffectState.IN_DOUBT
    ]
    if not principal.sees_only_own("ledger:read"):
        return len(doubtful)
    own = set(
        Task.objects.visible_to(principal).filter(pk__in=doubtful).values_list("pk", flat=True)
    )
    return sum(task_id in own for task_id in doubtful)
