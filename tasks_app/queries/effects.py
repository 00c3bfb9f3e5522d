"""Acts of a task on the outside world. The ledger knows tenants only; sight is decided here."""

from dataclasses import dataclass, replace
from typing import ClassVar
from uuid import UUID

from ledger_app import queries as ledger
from ledger_app.domain.effects import DONE
from tasks_app.domain.principal import Principal
from tasks_app.queries import diagnostics
from tasks_app.queries.filters import Filters
from tasks_app.queries.paging import PAGE_SIZE, Page
from tasks_app.queries.tasks import require_visible


@dataclass(frozen=True, slots=True)
class EffectFilters(Filters):
    """What a list of acts is narrowed to."""

    state: tuple[str, ...] = ()
    tool: str = ""
    step_key: str = ""

    ORDERS: ClassVar = {"created": ("id",), "-created": ("-id",)}


def list_effects(
    principal: Principal,
    task_id: UUID,
    filters: EffectFilters = EffectFilters(),
    cursor: str | None = None,
    limit: int = PAGE_SIZE,
) -> Page[ledger.EffectRow]:
    """Return the acts of a task, oldest first by default; none without ledger:read; raises NotFoundError."""
    if not principal.can("ledger:read"):
        return Page((), None)
    require_visible(principal, task_id)
    keys = filters.keyset(principal, "effects", task_id)
    found = ledger.list_effects(
        tenant_id=principal.tenant_id,
        task_id=task_id,
        states=filters.state,
        tool=filters.tool,
        step_key=filters.step_key,
        newest_first=filters.order == ("-id",),
        after_id=keys.read(cursor)[0] if cursor else 0,
        limit=limit + 1,
    )
    return keys.cut(
        found, limit, lambda row: replace(row, error=diagnostics.shown(principal, row.error))
    )


def list_all_effects(principal: Principal, task_id: UUID) -> tuple[ledger.EffectRow, ...]:
    """Return the acts of a task, as many as one read of the ledger gives."""
    return list_effects(principal, task_id, limit=ledger.PAGE_LIMIT).items


def list_effects_done(principal: Principal, task_id: UUID) -> list[ledger.EffectRow]:
    """Return the acts of its steps that have happened outside."""
    acts = list_all_effects(principal, task_id)
    return [row for row in acts if row.step_key and row.state in DONE]
