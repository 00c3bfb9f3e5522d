"""Roles are granted by others, and a tenant always keeps an admin."""

import json
from datetime import timedelta

import pytest
from django.utils import timezone

from ledger_app.models import AuditEntry
from tasks_app.admission.members import disable_member, grant_roles
from tasks_app.admission.principal import from_user
from tasks_app.domain.errors import (
    InvalidInputError,
    LastAdminError,
    NotAllowedError,
    NotFoundError,
    SelfGrantError,
    UnauthenticatedError,
)
from tests.factories import make_member, make_tenant, make_user

pytestmark = pytest.mark.django_db


def test_admin_grants_roles_to_a_newcomer() -> None:
    """The grant makes the membership and stands in the audit stream."""
    tenant, newcomer = make_tenant(), make_user()
    admin = from_user(make_member(tenant, "admin"), tenant.id)
    grant_roles(admin, user_id=newcomer.pk, roles=["operator", "viewer"], reason="joins the team")
    assert from_user(newcomer, tenant.id).can("tasks:cancel")
    entry = AuditEntry.objects.get(stream=f"tenant:{tenant.id}")
    assert json.loads(entry.envelope)["action"] == "member.grant"
    assert json.loads(entry.details or "")["new"] == ["operator", "viewer"]


def test_a11_nobody_grants_a_role_to_themselves() -> None:
    """A11 and S2: neither one more role nor a disabled one again; fewer is fine."""
    tenant = make_tenant()
    make_member(tenant, "admin")
    user = make_member(tenant, ["admin", "viewer"])
    admin = from_user(user, tenant.id)
    with pytest.raises(SelfGrantError):
        grant_roles(admin, user_id=user.pk, roles=["admin", "approver"], reason="r")
    grant_roles(admin, user_id=user.pk, roles=["admin"], reason="r")


def test_the_last_admin_stays() -> None:
    """S2: not by disabling, not by other roles, not by an end date."""
    tenant = make_tenant()
    user = make_member(tenant, "admin")
    temporary = make_member(tenant, "admin", expires_at=timezone.now() + timedelta(days=1))
    admin = from_user(temporary, tenant.id)
    with pytest.raises(LastAdminError):
        disable_member(admin, user_id=user.pk, reason="r")
    with pytest.raises(LastAdminError):
        grant_roles(admin, user_id=user.pk, roles=["viewer"], reason="r")
    with pytest.raises(LastAdminError):
        grant_roles(admin, user_id=user.pk, roles=["admin"], reason="r", expires_at=timezone.now())
    make_member(tenant, "admin")
    disable_member(admin, user_id=user.pk, reason="left")
    with pytest.raises(UnauthenticatedError):
        from_user(user, tenant.id)


def test_refusals_change_nothing() -> None:
    """Unknown role, no role, no reason, unknown people, no right."""
    tenant = make_tenant()
    admin = from_user(make_member(tenant, "admin"), tenant.id)
    user = make_member(tenant, "viewer")
    for roles, reason in ((["root"], "r"), ([], "r"), (["viewer"], " ")):
        with pytest.raises(InvalidInputError):
            grant_roles(admin, user_id=user.pk, roles=roles, reason=reason)
    with pytest.raises(NotFoundError):
        grant_roles(admin, user_id=2**31 - 1, roles=["viewer"], reason="r")
    stranger = make_member(make_tenant(), "viewer")
    with pytest.raises(NotFoundError):
        disable_member(admin, user_id=stranger.pk, reason="r")
    with pytest.raises(NotAllowedError):
        grant_roles(from_user(user, tenant.id), user_id=user.pk, roles=["admin"], reason="r")
    assert not AuditEntry.objects.exists()
