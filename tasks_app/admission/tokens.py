"""OAuth tokens of MCP clients: whose they are, what they carry, how people give and end them.

A token can do its scopes, as far as its owner holds them now, in one tenant: the one in which the
person agreed, or to which an identity of another issuer belongs.
"""

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn, TypeVar
from uuid import UUID

from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import User
from django.utils import timezone

from ledger_app.services import audit
from tasks_app.admission import issuer, tenant_audit
from tasks_app.admission import principal as principals
from tasks_app.admission.replays import own_transaction
from tasks_app.domain.errors import UnauthenticatedError
from tasks_app.domain.principal import Principal
from tasks_app.models import ExternalIdentity
from tasks_app.queries import kept
from tasks_app.queries.kept import KeptQuery

T = TypeVar("T")

# Scopes are named as the capability that they are about; two carry what goes with it.
CARRIED = {
    "tasks:read": frozenset({"tasks:read", "artifacts:read"}),
    "tasks:create": frozenset({"tasks:create"}),
    "tasks:steer": frozenset({"tasks:steer"}),
    "tasks:cancel": frozenset({"tasks:cancel"}),
    "approvals:decide": frozenset({"approvals:decide", "approvals:read"}),
}
SCOPES = tuple(CARRIED)
# What a client needs that has not said yet what it wants to do.
STARTING_SCOPES = ("tasks:create", "tasks:read")
# Where programs may be answered without TLS: on the person's own machine (RFC 8252).
OWN_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})

security_log = logging.getLogger("security")


@dataclass(frozen=True, slots=True)
class Bearer:
    """Who sent a token, and its scopes: also those that reach further than the person's rights."""

    principal: Principal
    scopes: frozenset[str]


def is_built_in() -> bool:
    """Tell whether the built-in authorization server is on."""
    return apps.is_installed("oauth2_provider")


def from_token(text: str) -> Bearer:
    """Return whom a token stands for.

    Raises:
        UnauthenticatedError: unknown, expired, revoked, for another address, of nobody we know, or
            of somebody who is no active member any more: one answer for all (S5).
        IssuerUnavailableError: the keys of the other issuer cannot be read now.
    """
    if issuer.is_configured() and text.count(".") == 2:
        return _from_issuer(text)
    if not is_built_in():
        _refuse("token_unknown")
    return _from_ours(text)


def resources_of(tenant_id: UUID | None) -> list[str]:
    """Return what a token of ours is for: the address of the door, and the tenant behind it."""
    marks = [] if tenant_id is None else [f"{settings.MCP_RESOURCE_URL}/tenants/{tenant_id}"]
    return [settings.MCP_RESOURCE_URL, *marks]


def tenant_of(resources: Sequence[str]) -> UUID | None:
    """Return the tenant that `resources_of` has written down."""
    begin = f"{settings.MCP_RESOURCE_URL}/tenants/"
    for resource in resources:
        if resource.startswith(begin):
            return UUID(resource.removeprefix(begin))
    return None


def grant_access(
    principal: Principal, *, client_id: str, scopes: Sequence[str], issue: Callable[[], T]
) -> T:
    """Issue a code by which a client gets tokens in a person's name, and write that down.

    Transaction: its own. The audit entry is its last statement.
    Raises: what `issue` raises; then nothing was granted.
    """
    with own_transaction():
        issued = issue()
        tenant_audit.record(
            principal, "oauth.grant", f"oauth_client:{client_id}", None, {"scopes": sorted(scopes)}
        )
    return issued


def end_access(person: User, *, client_id: str = "", reason: str) -> list[str]:
    """End a person's tokens, of one client or of all; return the clients that had some.

    A stream that is open ends at its next look, within seconds.

    Transaction: its own. The audit entries, one for each tenant and client, are its last statements.
    """
    clients = apps.get_model("oauth2_provider", "Application").objects
    named = clients.filter(client_id=client_id) if client_id else clients.all()
    with own_transaction():
        return [client.client_id for client in named if _forget(person, client, reason)]


def revoke_exposed(text: str) -> None:
    """End what a genuine token of ours gave that travelled in an address, whoever sent it (S5)."""
    if not is_built_in():
        return
    tokens = apps.get_model("oauth2_provider", "AccessToken").objects
    found = tokens.filter(token_checksum=_checksum(text)).select_related("user", "application")
    token = found.first()
    if token is not None:
        with own_transaction():
            _forget(token.user, token.application, "credential_in_url")


def _forget(person: User | None, client: Any, reason: str) -> bool:
    tenants: set[UUID | None] = set()
    for name in ("Grant", "RefreshToken", "AccessToken"):
        rows = apps.get_model("oauth2_provider", name).objects.filter(user=person)
        mine = rows.filter(application=client)
        tenants |= {tenant_of(resource) for resource in mine.values_list("resource", flat=True)}
        mine.delete()
    for tenant_id in sorted(filter(None, tenants)):
        audit.append(
            stream=f"tenant:{tenant_id}",
            tenant_id=tenant_id,
            actor="system:oauth",
            action="oauth.end",
            target=f"oauth_client:{client.client_id}",
            details={"user_id": person.pk if person else None, "reason": reason},
        )
    return bool(tenants)


def _from_ours(text: str) -> Bearer:
    token = _kept_token().first({"checksum": _checksum(text)})
    if token is None:
        _refuse("token_unknown")
    if token.expires <= timezone.now():
        _refuse("token_expired", token=token.pk)
    tenant_id = tenant_of(token.resource)
    if settings.MCP_RESOURCE_URL not in token.resource or tenant_id is None:
        _refuse("token_audience", token=token.pk)
    if token.user is None:
        _refuse("token_of_nobody", token=token.pk)
    return _bearer(token.user, tenant_id, token.scope.split())


def _from_issuer(text: str) -> Bearer:
    claims = issuer.read(text)
    rows = ExternalIdentity.objects.all_tenants("an identity names its tenant")
    known = rows.filter(issuer=settings.MCP_JWT_ISSUER, subject=claims.subject)
    identity = known.select_related("user").first()
    if identity is None:
        _refuse("subject_unknown", subject=claims.subject)
    return _bearer(identity.user, identity.tenant_id, claims.scopes)


def _bearer(person: User, tenant_id: UUID, scopes: Sequence[str]) -> Bearer:
    given = frozenset(scopes) & CARRIED.keys()
    carried = frozenset[str]().union(*(CARRIED[scope] for scope in given))
    return Bearer(principals.from_scopes(person, tenant_id, carried), given)


@cache
def _kept_token() -> KeptQuery[Any]:
    tokens = apps.get_model("oauth2_provider", "AccessToken").objects
    rows = tokens.select_related("user").filter(token_checksum=kept.SOME_TEXT)
    return KeptQuery(rows, checksum=kept.SOME_TEXT)


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _refuse(reason: str, **facts: object) -> NoReturn:
    security_log.warning("authentication.refused", extra={"reason": reason, **facts})
    raise UnauthenticatedError("No valid credential.")
