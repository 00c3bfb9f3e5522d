"""The audit stream of one task (S100)."""

import json
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from django.contrib.auth import get_user_model

from ledger_app import queries as ledger
from ledger_app.models import AuditStream
from tasks_app.domain.principal import Principal
from tasks_app.queries.filters import Filters
from tasks_app.queries.paging import MAX_PAGE_SIZE, PAGE_SIZE, Page
from tasks_app.queries.rows import row_of
from tasks_app.queries.tasks import require_visible


@dataclass(frozen=True, slots=True)
class AuditFilters(Filters):
    """What a list of audit entries is narrowed to."""

    action: tuple[str, ...] = ()
    actor: str = ""

    ORDERS: ClassVar = {"seq": ("seq",), "-seq": ("-seq",)}


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One audit entry taken apart; `actor` is an id, `who` its name where it was looked up."""

    seq: int
    at: datetime
    actor: str
    who: str
    via: str
    action: str
    target: str
    outcome: str
    old_version: int | None
    new_version: int | None
    details: Any
    hash: str


def list_audit(
    principal: Principal,
    task_id: UUID,
    filters: AuditFilters = AuditFilters(),
    cursor: str | None = None,
    limit: int = PAGE_SIZE,
) -> Page[AuditRow]:
    """Return the entries of a task, in order by default; raises NotFoundError."""
    require_visible(principal, task_id)
    keys = filters.keyset(principal, "audit", task_id)
    after = keys.read(cursor)[0] if cursor else 0
    return keys.cut(_entries(principal, task_id, after, limit + 1, filters), limit, _row)


def list_newest_audit(principal: Principal, task_id: UUID) -> list[AuditRow]:
    """Return the newest entries of a task, newest first, with names; raises NotFoundError."""
    require_visible(principal, task_id)
    heads = AuditStream.objects.filter(stream=f"task:{task_id}", tenant_id=principal.tenant_id)
    newest = heads.values_list("head_seq", flat=True).first() or 0
    found = _entries(principal, task_id, max(newest - MAX_PAGE_SIZE, 0), ledger.PAGE_LIMIT)
    rows = [_row(row) for row in reversed(found)]
    names = _names({row.actor for row in rows})
    return [replace(row, who=names.get(row.actor, row.actor)) for row in rows]


def _entries(
    principal: Principal,
    task_id: UUID,
    after_seq: int,
    limit: int,
    filters: AuditFilters = AuditFilters(),
) -> list[ledger.AuditRow]:
    return ledger.list_audit_entries(
        tenant_id=principal.tenant_id,
        stream=f"task:{task_id}",
        after_seq=after_seq,
        limit=limit,
        actions=filters.action,
        actor=filters.actor,
        newest_first=filters.order == ("-seq",),
    )


def _names(actors: set[str]) -> dict[str, str]:
    """Return the user names behind audit actors; the audit itself stores ids only."""
    ids = {int(actor[5:]): actor for actor in actors if actor.startswith("user:")}
    users = get_user_model().objects.filter(pk__in=ids)
    return {ids[user.pk]: user.get_username() for user in users}


def _row(row: ledger.AuditRow) -> AuditRow:
    envelope = json.loads(row.envelope)
    return row_of(
        AuditRow,
        row,
        actor=envelope["actor"],
        who=envelope["actor"],
        via=envelope.get("via") or "",
        action=envelope["action"],
        target=envelope["target"],
        outcome=envelope.get("outcome") or "ok",
        old_version=envelope.get("old_version"),
        new_version=envelope.get("new_version"),
        details=json.loads(row.details) if row.details else None,
    )
