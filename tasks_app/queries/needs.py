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
    """How many things of a tenant need a person."""

    approvals: int
    dead_letters: int
    effects_in_doubt: int
    expired_leases: int


def count_needs(principal: Principal) -> Needs:
    """Return how many visible things need a person."""
    tasks = Task.objects.visible_to(principal)
    approvals = Approval.objects.visible_to(principal).filter(status="pending")
    doubtful = ledger.list_open_effects(tenant_id=principal.tenant_id)
    seen = principal.can("ledger:read") and not principal.sees_only_own("ledger:read")
    return Needs(
        approvals=approvals.count(),
        dead_letters=tasks.filter(status=TaskStatus.DEAD_LETTERED).count(),
        effects_in_doubt=sum(e.state == EffectState.IN_DOUBT for e in doubtful) if seen else 0,
        expired_leases=tasks.filter(status__in=LEASED, lease_expires_at__lt=Now()).count(),
    )
