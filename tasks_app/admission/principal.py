"""Who is acting: the only place that makes a Principal (security S3-S6, S10).

Every refusal is the same UnauthenticatedError; the true reason goes to the logger `security`. What
a principal may do is computed here for each request and never cached.
"""

import hmac
import ipaddress
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import Any, NoReturn
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser, User
from django.db import connection
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce, Now
from django.utils import timezone

from tasks_app.conf import runtime
from tasks_app.domain.errors import UnauthenticatedError
from tasks_app.domain.key_text import KeyText, parse_key_text
from tasks_app.domain.principal import Principal, PrincipalKind
from tasks_app.models import ApiKey, Membership
from tasks_app.policy.capabilities import (
    SYSTEM_CAPABILITIES,
    agent_capabilities,
    capabilities_of,
)
from tasks_app.queries import kept
from tasks_app.queries.kept import KeptQuery

security_log = logging.getLogger("security")

_USED_EVERY = timedelta(minutes=1)
# Compared when no row has the key's id, so that both cases take the same time.
_NO_DIGEST = bytes(32)

# No lock is waited for: of many requests with one key, one writes the time and none is held up.
_TOUCH = """
UPDATE tasks_app_apikey SET last_used_at = clock_timestamp() WHERE id IN (
  SELECT id FROM tasks_app_apikey WHERE id = %s
    AND (last_used_at IS NULL OR last_used_at < clock_timestamp() - interval '1 minute')
  FOR UPDATE SKIP LOCKED)
"""


@dataclass(frozen=True, slots=True)
class TenantChoice:
    """A tenant that a signed-in person may work in."""

    id: UUID
    slug: str
    name: str


def from_user(user: AbstractBaseUser, tenant_id: UUID, *, via: str = "session") -> Principal:
    """Return the person as a member of the tenant.

    Raises:
        UnauthenticatedError: inactive user, no active membership, or a closed tenant.
    """
    membership = _kept_membership().first({"user": user.pk, "tenant": tenant_id})
    return _member(user, membership, via)


def from_scopes(user: AbstractBaseUser, tenant_id: UUID, capabilities: frozenset[str]) -> Principal:
    """Return the person as a member of the tenant, with no more than these capabilities.

    Raises:
        UnauthenticatedError: as `from_user`.
    """
    member = from_user(user, tenant_id, via="oauth")
    held = member.capabilities & capabilities
    return replace(member, capabilities=held, own_only=member.own_only & held)


def from_session(user: AbstractBaseUser, tenant_slug: str | None = None) -> Principal:
    """Return the signed-in person in the session's active tenant.

    Without a slug it is the first tenant of the person by slug. A slug the person is no member of
    is refused, never replaced by another tenant.

    Raises:
        UnauthenticatedError: as `from_user`.
    """
    rows = _memberships(user).order_by("tenant__slug")
    if tenant_slug:
        rows = rows.filter(tenant__slug=tenant_slug)
    return _member(user, rows.first(), "session")


def list_tenants(user: AbstractBaseUser) -> list[TenantChoice]:
    """Return the tenants the person may switch to, by slug."""
    return [
        TenantChoice(row.tenant.id, row.tenant.slug, row.tenant.name)
        for row in _memberships(user).order_by("tenant__slug")
    ]


def from_api_key(text: str, remote_addr: str) -> Principal:
    """Return whom the key stands for: its scopes, as far as its owner holds them now (S6).

    Raises:
        UnauthenticatedError: unknown, wrong, expired or revoked key, wrong environment or network,
            or an owner who is no active member any more: one answer for all (S5).
    """
    key = _find_key(text)
    _check_key(key, remote_addr)
    person = key.owner_user or key.created_by
    if person is None or not person.is_active:
        _refuse("owner_inactive", key_id=key.key_id)
    if key.roles is None:
        _refuse("owner_no_member", key_id=key.key_id)
    _touch(key)
    return _key_principal(key, person, key.roles)


def system_principal(tenant_id: UUID, name: str) -> Principal:
    """Return one of the runtime's own processes. It may look; it acts only for people (S11)."""
    return Principal(
        kind=PrincipalKind.SYSTEM,
        tenant_id=tenant_id,
        user_id=None,
        via="system",
        capabilities=SYSTEM_CAPABILITIES,
        display=name,
    )


def find_genuine_key(key: KeyText) -> Any:
    """Return the stored key that this text really is, valid or not, else None.

    `roles` of the row is what its person may do in its tenant now, None for who is no member.
    """
    row = _kept_key().first({"key_id": key.key_id})
    stored = _NO_DIGEST if row is None else bytes(row.digest)
    return row if hmac.compare_digest(stored, key.digest) else None


@cache
def _kept_key() -> KeptQuery[ApiKey]:
    rows = ApiKey.objects.all_tenants("a key names its tenant, not the other way round")
    members = _active_memberships().filter(
        user=Coalesce(OuterRef("owner_user"), OuterRef("created_by")), tenant=OuterRef("tenant")
    )
    people = rows.select_related("tenant", "owner_user", "owner_agent", "created_by").annotate(
        roles=Subquery(members.values("roles"))
    )
    return KeptQuery(people.filter(key_id=kept.SOME_TEXT), key_id=kept.SOME_TEXT)


def _find_key(text: str) -> Any:
    parsed = parse_key_text(text)
    if parsed is None:
        _refuse("key_malformed")
    if parsed.environment != runtime().key_environment:
        _refuse("key_environment", key_id=parsed.key_id)
    row = find_genuine_key(parsed)
    if row is None:
        _refuse("key_unknown", key_id=parsed.key_id)
    return row


def _check_key(key: ApiKey, remote_addr: str) -> None:
    if key.revoked_at is not None:
        _refuse("key_revoked", key_id=key.key_id)
    if key.expires_at <= timezone.now():
        _refuse("key_expired", key_id=key.key_id)
    if key.allowed_cidrs and not _inside(remote_addr, key.allowed_cidrs):
        _refuse("key_network", key_id=key.key_id)
    if key.owner_agent is not None and key.owner_agent.status != "active":
        _refuse("agent_inactive", key_id=key.key_id)


def _key_principal(key: ApiKey, person: User, roles: Iterable[str]) -> Principal:
    held, own_only = capabilities_of(roles)
    scopes = held & frozenset(key.scopes)
    # An agent's key acts for the person who made it, with less.
    agent = key.owner_agent
    capabilities = scopes if agent is None else agent_capabilities(scopes)
    return Principal(
        kind=PrincipalKind.USER if agent is None else PrincipalKind.AGENT,
        tenant_id=key.tenant_id,
        user_id=person.pk,
        via="api_key",
        capabilities=capabilities,
        own_only=own_only & capabilities,
        agent_id=key.owner_agent_id,
        api_key_id=key.id,
        display=display_name(person) if agent is None else agent.name,
        suspended=key.tenant.status == "suspended",
    )


def _member(user: AbstractBaseUser, membership: Membership | None, via: str) -> Principal:
    if not user.is_active:
        _refuse("user_inactive", user_id=user.pk)
    if membership is None:
        _refuse("no_membership", user_id=user.pk)
    capabilities, own_only = capabilities_of(membership.roles)
    return Principal(
        kind=PrincipalKind.USER,
        tenant_id=membership.tenant_id,
        user_id=user.pk,
        via=via,
        capabilities=capabilities,
        own_only=own_only,
        display=display_name(user),
        suspended=membership.tenant.status == "suspended",
    )


@cache
def _kept_membership() -> KeptQuery[Membership]:
    rows = _memberships(User(pk=kept.SOME_USER)).filter(tenant_id=kept.SOME_TENANT)
    return KeptQuery(rows, user=kept.SOME_USER, tenant=kept.SOME_TENANT)


def _memberships(user: AbstractBaseUser) -> QuerySet[Membership]:
    return _active_memberships().filter(user_id=user.pk).select_related("tenant")


def _active_memberships() -> QuerySet[Membership]:
    rows: QuerySet[Membership] = Membership.objects.all_tenants("which tenants is this person in?")
    return (
        rows.filter(Q(expires_at__isnull=True) | Q(expires_at__gt=Now()))
        .filter(status="active")
        .exclude(tenant__status="closed")
    )


def display_name(user: AbstractBaseUser) -> str:
    """Return the name that people know the user by."""
    full = user.get_full_name() if isinstance(user, User) else ""
    return full or user.get_username()


def _inside(remote_addr: str, cidrs: Iterable[str]) -> bool:
    try:
        address = ipaddress.ip_address(remote_addr)
    except ValueError:
        return False
    return any(address in ipaddress.ip_network(cidr, strict=False) for cidr in cidrs)


def _touch(key: ApiKey) -> None:
    if key.last_used_at is None or key.last_used_at < timezone.now() - _USED_EVERY:
        with connection.cursor() as cursor:
            cursor.execute(_TOUCH, [key.id])


def _refuse(reason: str, **facts: object) -> NoReturn:
    security_log.warning("authentication.refused", extra={"reason": reason, **facts})
    raise UnauthenticatedError("No valid credential.")
