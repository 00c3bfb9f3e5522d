"""API keys without their secrets."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from tasks_app.domain.principal import Principal
from tasks_app.models import ApiKey
from tasks_app.queries.paging import PAGE_SIZE, Page, keyset
from tasks_app.queries.people import person
from tasks_app.queries.rows import row_of


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
    principal: Principal, cursor: str | None = None, limit: int = PAGE_SIZE
) -> Page[KeyRow]:
    """Return the API keys the principal manages, newest first."""
    rows = ApiKey.objects.visible_to(principal).select_related("owner_user", "owner_agent")
    keys = keyset(principal, "keys", order=["-created_at", "-id"])
    return keys.page(rows, cursor, limit, _row)


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
