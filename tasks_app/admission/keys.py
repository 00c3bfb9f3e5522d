"""API keys: made, rotated and revoked, each with an audit entry (security S3-S7)."""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from ledger_app.services import audit
from tasks_app.admission import tenant_audit
from tasks_app.admission.replays import own_transaction
from tasks_app.conf import runtime
from tasks_app.domain.errors import FieldProblem, InvalidInputError, NotAllowedError, NotFoundError
from tasks_app.domain.key_text import KeyText, make_key_text
from tasks_app.domain.principal import Principal
from tasks_app.models import AgentIdentity, ApiKey
from tasks_app.policy.capabilities import CAPABILITIES, FORBIDDEN_TO_AGENTS, require

DEFAULT_DAYS = 90
MAX_DAYS = 365
ROTATION_OVERLAP = timedelta(hours=24)
MAX_REASON_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class CreatedKey:
    """A new key; `text` is known only now and never shown again."""

    id: UUID
    key_id: str
    text: str
    expires_at: datetime


def create_key(
    principal: Principal,
    *,
    name: str,
    scopes: Sequence[str],
    days: int = DEFAULT_DAYS,
    allowed_cidrs: Sequence[str] = (),
    agent_id: UUID | None = None,
    request_id: str | None = None,
) -> CreatedKey:
    """Make a key for the caller, or for an agent that then acts for the caller.

    Transaction: its own. The audit entry is its last statement.

    Raises:
        InvalidInputError: a scope that is unknown or that the caller does not hold, a bad network,
            a lifetime outside 1 to 365 days, no name.
        NotAllowedError: the caller may not make keys.
    """
    require(principal, "keys:manage")
    _check(principal, name, scopes, days, allowed_cidrs, for_agent=agent_id is not None)
    key = make_key_text(runtime().key_environment)
    expires_at = timezone.now() + timedelta(days=days)
    with own_transaction():
        owner = _owner(principal, agent_id)
        row = ApiKey.objects.create(
            tenant_id=principal.tenant_id,
            **owner,
            **_stored(key),
            name=name.strip(),
            scopes=sorted(set(scopes)),
            allowed_cidrs=list(allowed_cidrs),
            expires_at=expires_at,
            created_by_id=principal.user_id,
        )
        tenant_audit.record(
            principal,
            "key.create",
            f"api_key:{row.id}",
            request_id,
            {"scopes": sorted(set(scopes))},
        )
    return CreatedKey(row.id, key.key_id, key.text, expires_at)


def rotate_key(
    principal: Principal, *, key_id: UUID, days: int = DEFAULT_DAYS, request_id: str | None = None
) -> CreatedKey:
    """Replace a key by a new one; the old one ends within 24 hours (S4).

    Only its owner sees a person's new key: whoever holds it acts in the owner's name. An agent's
    key acts for whoever rotated it last.

    Transaction: its own. Locks: the key.

    Raises:
        NotFoundError: no such key in sight.
        NotAllowedError: the key of another person; an admin may revoke it.
        InvalidInputError: the key is revoked, or its scopes are more than the caller holds now.
    """
    require(principal, "keys:manage")
    key = make_key_text(runtime().key_environment)
    expires_at = timezone.now() + timedelta(days=days)
    with own_transaction():
        old = _lock(principal, key_id)
        if old.owner_user_id not in (None, principal.user_id):
            raise NotAllowedError("keys:manage", "Only its owner rotates a key.")
        if old.revoked_at is not None:
            raise InvalidInputError("A revoked key cannot be rotated; make a new one.")
        for_agent = old.owner_agent_id is not None
        _check(principal, old.name, old.scopes, days, old.allowed_cidrs, for_agent=for_agent)
        row = ApiKey.objects.create(
            tenant_id=old.tenant_id,
            owner_user_id=old.owner_user_id,
            owner_agent_id=old.owner_agent_id,
            **_stored(key),
            name=old.name,
            scopes=old.scopes,
            allowed_cidrs=old.allowed_cidrs,
            expires_at=expires_at,
            created_by_id=principal.user_id,
            replaces=old,
        )
        _rows(principal).filter(id=old.id).update(
            expires_at=min(old.expires_at, timezone.now() + ROTATION_OVERLAP)
        )
        tenant_audit.record(
            principal, "key.rotate", f"api_key:{row.id}", request_id, {"replaces": str(old.id)}
        )
    return CreatedKey(row.id, key.key_id, key.text, expires_at)


def revoke_key(
    principal: Principal, *, key_id: UUID, reason: str, request_id: str | None = None
) -> None:
    """End a key for ever; a key that is revoked already stays as it was.

    Transaction: its own. Locks: the key.

    Raises:
        NotFoundError: no such key in sight.
        InvalidInputError: no reason.
    """
    require(principal, "keys:manage")
    text = clean_reason(reason)
    with own_transaction():
        key = _lock(principal, key_id)
        if key.revoked_at is not None:
            return
        _rows(principal).filter(id=key.id).update(
            revoked_at=Now(), revoked_by_id=principal.user_id, revoked_reason=text
        )
        tenant_audit.record(
            principal, "key.revoke", f"api_key:{key.id}", request_id, {"reason": text}
        )


def revoke_exposed(key: ApiKey, *, request_id: str | None = None) -> None:
    """End a genuine key that travelled in an address or body, whoever sent it (S5)."""
    rows = ApiKey.objects.for_tenant(key.tenant_id)
    with transaction.atomic(durable=True):
        ended = rows.filter(id=key.id, revoked_at__isnull=True).update(
            revoked_at=Now(), revoked_reason="credential_in_url"
        )
        if ended:
            audit.append(
                stream=f"tenant:{key.tenant_id}",
                tenant_id=key.tenant_id,
                actor="system:api",
                action="key.revoke",
                target=f"api_key:{key.id}",
                request_id=request_id,
                details={"reason": "credential_in_url"},
            )


def clean_reason(text: str) -> str:
    """Return the reason without surrounding blanks.

    Raises:
        InvalidInputError: empty, or longer than 500 characters.
    """
    reason = text.strip()
    if not 1 <= len(reason) <= MAX_REASON_CHARACTERS:
        raise InvalidInputError(
            "A reason is needed.",
            [FieldProblem("/reason", "reason_required", "1 to 500 characters.")],
        )
    return reason


def _check(
    principal: Principal,
    name: str,
    scopes: Sequence[str],
    days: int,
    cidrs: Sequence[str],
    *,
    for_agent: bool,
) -> None:
    problems = [*_scope_problems(principal, scopes, for_agent=for_agent), *_cidr_problems(cidrs)]
    if not 1 <= len(name.strip()) <= 100:
        problems.append(FieldProblem("/name", "invalid_length", "1 to 100 characters."))
    if not 1 <= days <= MAX_DAYS:
        problems.append(FieldProblem("/days", "out_of_range", f"1 to {MAX_DAYS} days."))
    if problems:
        raise InvalidInputError("The key cannot be made.", problems)


def _scope_problems(
    principal: Principal, scopes: Sequence[str], *, for_agent: bool
) -> Iterable[FieldProblem]:
    if not scopes:
        yield FieldProblem("/scopes", "scope_required", "At least one scope.")
    for index, scope in enumerate(scopes):
        pointer = f"/scopes/{index}"
        if scope not in CAPABILITIES:
            yield FieldProblem(pointer, "unknown_scope", "No such capability.")
        elif not principal.can(scope):
            yield FieldProblem(pointer, "scope_not_held", "More than you may do yourself.")
        elif for_agent and scope in FORBIDDEN_TO_AGENTS:
            yield FieldProblem(pointer, "scope_forbidden_to_agents", "No agent may hold this.")


def _cidr_problems(cidrs: Sequence[str]) -> Iterable[FieldProblem]:
    for index, cidr in enumerate(cidrs):
        try:
            ipaddress.ip_network(cidr, strict=False)
        except ValueError:
            yield FieldProblem(f"/allowedCidrs/{index}", "invalid_network", "Not a network.")


def _owner(principal: Principal, agent_id: UUID | None) -> dict[str, object]:
    if agent_id is None:
        if principal.user_id is None:
            raise NotAllowedError("keys:manage")
        return {"owner_user_id": principal.user_id}
    agents = AgentIdentity.objects.for_tenant(principal.tenant_id)
    if not agents.filter(id=agent_id, status="active").exists():
        raise NotFoundError("Not found.")
    return {"owner_agent_id": agent_id}


def _stored(key: KeyText) -> dict[str, object]:
    return {"key_id": key.key_id, "digest": key.digest}


def _rows(principal: Principal) -> QuerySet[ApiKey]:
    rows: QuerySet[ApiKey] = ApiKey.objects.visible_to(principal)
    return rows


def _lock(principal: Principal, key_id: UUID) -> ApiKey:
    row = _rows(principal).filter(id=key_id).select_for_update(of=("self",)).first()
    if row is None:
        raise NotFoundError("Not found.")
    return row
