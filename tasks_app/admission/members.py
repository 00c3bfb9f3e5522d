"""Who belongs to a tenant with which roles: granted and ended, audited (security S2)."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from ledger_app.services import audit
from tasks_app.admission import tenant_audit
from tasks_app.admission.keys import clean_reason
from tasks_app.domain.errors import (
    FieldProblem,
    InvalidInputError,
    LastAdminError,
    NotFoundError,
    SelfGrantError,
)
from tasks_app.domain.principal import Principal
from tasks_app.models import Membership, Tenant
from tasks_app.models.access import ROLES
from tasks_app.policy.capabilities import require


def grant_roles(
    principal: Principal,
    *,
    user_id: int,
    roles: Sequence[str],
    reason: str,
    expires_at: datetime | None = None,
    request_id: str | None = None,
) -> None:
    """Give a person exactly these roles; makes the membership, or a disabled one active again.

    Transaction: its own. Locks: the tenant, so that two admins cannot remove each other at once.

    Raises:
        SelfGrantError: a role for oneself.
        LastAdminError: nobody would be left who manages members.
        InvalidInputError: an unknown role, no role, no reason.
        NotFoundError: no such user.
    """
    require(principal, "members:manage")
    text = clean_reason(reason)
    wanted = _known(roles)
    with transaction.atomic(durable=True):
        _lock_tenant(principal.tenant_id)
        row = _rows(principal).filter(user_id=user_id).first()
        old = list(row.roles) if row and row.status == "active" else []
        if user_id == principal.user_id and set(wanted) - set(old):
            raise SelfGrantError("Nobody grants a role to themselves.")
        if "admin" not in wanted or expires_at is not None:
            _keep_an_admin(principal, user_id)
        _write(principal, user_id, wanted, expires_at, exists=row is not None)
        details = {"old": old, "new": wanted, "reason": text}
        tenant_audit.record(principal, "member.grant", f"user:{user_id}", request_id, details)


def found_member(*, tenant_id: UUID, user_id: int, roles: Sequence[str], by: str) -> bool:
    """Make the first memberships of an installation, before there is an admin to grant them.

    A membership that exists stays as it is; the answer tells whether one was made. `by` names the
    command that the operator of the installation runs.

    Transaction: its own. Locks: the tenant.
    """
    wanted = _known(roles)
    with transaction.atomic(durable=True):
        _lock_tenant(tenant_id)
        rows = Membership.objects.for_tenant(tenant_id)
        if rows.filter(user_id=user_id).exists():
            return False
        Membership.objects.create(tenant_id=tenant_id, user_id=user_id, roles=wanted)
        audit.append(
            stream=f"tenant:{tenant_id}",
            tenant_id=tenant_id,
            actor=f"system:{by}",
            action="member.grant",
            target=f"user:{user_id}",
            via="command",
            details={"old": [], "new": wanted},
        )
    return True


def disable_member(
    principal: Principal, *, user_id: int, reason: str, request_id: str | None = None
) -> None:
    """End a membership; its keys, sessions and streams lose their rights with it (S6).

    Transaction: its own. Locks: the tenant.

    Raises:
        LastAdminError: nobody would be left who manages members.
        NotFoundError: no such member.
        InvalidInputError: no reason.
    """
    require(principal, "members:manage")
    text = clean_reason(reason)
    with transaction.atomic(durable=True):
        _lock_tenant(principal.tenant_id)
        row = _rows(principal).filter(user_id=user_id).first()
        if row is None:
            raise NotFoundError("Not found.")
        _keep_an_admin(principal, user_id)
        _rows(principal).filter(id=row.id).update(status="disabled")
        details = {"old": list(row.roles), "reason": text}
        tenant_audit.record(principal, "member.disable", f"user:{user_id}", request_id, details)


def _known(roles: Iterable[str]) -> list[str]:
    wanted = sorted(set(roles))
    problems = [
        FieldProblem("/roles", "unknown_role", f"No such role: {role}.")
        for role in wanted
        if role not in ROLES
    ]
    if not wanted:
        problems.append(FieldProblem("/roles", "role_required", "At least one role."))
    if problems:
        raise InvalidInputError("The roles cannot be granted.", problems)
    return wanted


def _lock_tenant(tenant_id: UUID) -> None:
    Tenant.objects.select_for_update(no_key=True).get(id=tenant_id)


def _rows(principal: Principal) -> QuerySet[Membership]:
    rows: QuerySet[Membership] = Membership.objects.for_tenant(principal.tenant_id)
    return rows


def _keep_an_admin(principal: Principal, user_id: int) -> None:
    """Refuse when this person is the last admin who stays; one with an end date does not count."""
    admins = _rows(principal).filter(
        Q(expires_at__isnull=True), status="active", roles__contains=["admin"], user__is_active=True
    )
    kept = list(admins.values_list("user_id", flat=True))
    if kept == [user_id]:
        raise LastAdminError("The last admin of a tenant cannot be removed.")


def _write(
    principal: Principal,
    user_id: int,
    roles: list[str],
    expires_at: datetime | None,
    *,
    exists: bool,
) -> None:
    if exists:
        _rows(principal).filter(user_id=user_id).update(
            roles=roles,
            status="active",
            expires_at=expires_at,
            granted_by_id=principal.user_id,
            granted_at=Now(),
        )
        return
    if not get_user_model().objects.filter(pk=user_id, is_active=True).exists():
        raise NotFoundError("Not found.")
    Membership.objects.create(
        tenant_id=principal.tenant_id,
        user_id=user_id,
        roles=roles,
        expires_at=expires_at,
        granted_by_id=principal.user_id,
    )
