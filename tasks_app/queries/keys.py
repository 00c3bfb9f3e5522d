"""API keys without their secrets."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar
from uuid import UUID

from django.db.models import Q
from django.db.models.functions import Now

from tasks_app.domain.principal import Principal
from tasks_app.models import ApiKey
from tasks_app.queries.filters import Filters
from tasks_app.queries.paging import PAGE_SIZE, Page
from tasks_app.queries.people import person
from tasks_app.queries.rows import row_of

STATES = {
    "active": Q(revoked_at=None, expires_at__gt=Now()),
    "expired": Q(revoked_at=None, expires_at__lte=Now()),
    "revoked": Q(revoked_at__isnull=False),
}


@dataclass(frozen=True, slots=True)
class KeyFilters(Filters):
    """What a list of keys is narrowed to; `state` is active, expired or revoked."""

    q: str = ""
    owner: str = ""
    state: str = ""

    LOOKUPS: ClassVar = {
        "q": "name__icontains",
        "owner": "owner_user__username",
    }
    ORDERS: ClassVar = {
        "-created": ("-created_at", "-id"),
        "created": ("created_at", "id"),
        "expires": ("expires_at", "id"),
        "name": ("name", "id"),
    }


@dataclass(frozen=True, slots=True)
class KeyRow:
    """An API key without its secret."""

    id: UUID
    key_id: str
    name: str
    owner: str
    scopes: tuple[str, ...]
    allowed_cidrs: tuple[str, ...]
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None
    replaces: UUID | None


def list_keys(
    principal: Principal,
    filters: KeyFilters = KeyFilters(),
    cursor: str | None = None,
    limit: int = PAGE_SIZE,
) -> Page[KeyRow]:
    """Return the API keys the principal manages, newest first by default."""
    rows = filters.narrow(ApiKey.objects.visible_to(principal))
    if filters.state:
        rows = rows.filter(STATES[filters.state])
    rows = rows.select_related("owner_user", "owner_agent")
    return filters.keyset(principal, "keys").page(rows, cursor, limit, _row)


def _row(row: ApiKey) -> KeyRow:
    agent = row.owner_agent
    return row_of(
        KeyRow,
        row,
        owner=agent.name if agent is not None else person(row.owner_user).name,
        scopes=tuple(row.scopes),
        allowed_cidrs=tuple(row.allowed_cidrs),
        replaces=row.replaces_id,
    )
