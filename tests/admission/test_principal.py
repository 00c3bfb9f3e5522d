"""Who is acting: sessions and keys become principals; every refusal looks the same."""

import logging
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tasks_app.admission import principal as door
from tasks_app.domain.errors import UnauthenticatedError
from tasks_app.domain.principal import PrincipalKind
from tasks_app.models import ApiKey, Membership
from tests.factories import make_agent, make_api_key, make_member, make_tenant, make_user

pytestmark = pytest.mark.django_db
HERE = "192.0.2.7"


def refused(caplog: pytest.LogCaptureFixture, text: str, address: str = HERE) -> str:
    """Return the reason that the security log names for a refused key."""
    with caplog.at_level(logging.WARNING, "security"), pytest.raises(UnauthenticatedError) as error:
        door.from_api_key(text, address)
    assert error.value.message == "No valid credential."
    reason: str = caplog.records[-1].reason  # type: ignore[attr-defined]
    return reason


def test_session_gives_the_roles_of_the_active_tenant() -> None:
    """A member of two tenants acts in the one the session names."""
    first, second = make_tenant(), make_tenant()
    user = make_member(first, "viewer")
    make_member(second, ["operator"], user)
    acting = door.from_session(user, second.slug)
    assert acting.tenant_id == second.id
    assert acting.can("tasks:cancel")
    assert not door.from_session(user, first.slug).can("tasks:cancel")
    assert [choice.slug for choice in door.list_tenants(user)] == sorted([first.slug, second.slug])


def test_session_without_slug_takes_the_first_tenant() -> None:
    """One membership needs no choice."""
    tenant = make_tenant()
    assert door.from_session(make_member(tenant, "viewer")).tenant_id == tenant.id


def test_session_of_a_foreign_slug_is_refused() -> None:
    """The tenant is never replaced silently by another one."""
    user = make_member(make_tenant(), "viewer")
    with pytest.raises(UnauthenticatedError):
        door.from_session(user, make_tenant().slug)


@pytest.mark.parametrize(
    "member",
    [
        {"status": "disabled"},
        {"expires_at": timezone.now() - timedelta(minutes=1)},
    ],
)
def test_membership_that_ended_gives_nothing(member: dict[str, Any]) -> None:
    """Disabled and expired memberships are none."""
    tenant = make_tenant()
    user = make_member(tenant, "viewer", **member)
    with pytest.raises(UnauthenticatedError):
        door.from_user(user, tenant.id)


def test_inactive_user_and_closed_tenant_are_refused() -> None:
    """Neither a locked account nor a closed tenant lets anyone in."""
    tenant = make_tenant()
    user = make_member(tenant, "viewer", make_user(is_active=False))
    closed = make_tenant(status="closed")
    with pytest.raises(UnauthenticatedError):
        door.from_user(user, tenant.id)
    with pytest.raises(UnauthenticatedError):
        door.from_user(make_member(closed, "viewer"), closed.id)


def test_suspended_tenant_marks_the_principal() -> None:
    """S1: the mark is what `require` looks at."""
    tenant = make_tenant(status="suspended")
    assert door.from_user(make_member(tenant, "viewer"), tenant.id).suspended


def test_key_holds_its_scopes_as_far_as_the_owner_does() -> None:
    """S6: scopes wider than the role give no more than the role."""
    tenant = make_tenant()
    owner = make_member(tenant, "submitter")
    row, text = make_api_key(tenant, owner, ["tasks:read", "tasks:create", "approvals:decide"])
    acting = door.from_api_key(text, HERE)
    assert acting.capabilities == {"tasks:read", "tasks:create"}
    assert acting.own_only == {"tasks:read"}
    assert (acting.api_key_id, acting.via, acting.user_id) == (row.id, "api_key", owner.pk)


def test_a7_a_removed_role_counts_at_the_next_request() -> None:
    """A7: nothing is cached."""
    tenant = make_tenant()
    owner = make_member(tenant, ["viewer", "operator"])
    _, text = make_api_key(tenant, owner, ["tasks:read", "tasks:cancel"])
    assert door.from_api_key(text, HERE).can("tasks:cancel")
    Membership.objects.for_tenant(tenant.id).filter(user=owner).update(roles=["viewer"])
    assert not door.from_api_key(text, HERE).can("tasks:cancel")


def test_a8_every_refusal_of_a_key_is_the_same(caplog: pytest.LogCaptureFixture) -> None:
    """A8: one error for all causes; the log tells them apart."""
    tenant = make_tenant()
    owner = make_member(tenant, "viewer")
    now = timezone.now()
    _, expired = make_api_key(tenant, owner, expires_at=now - timedelta(seconds=1))
    _, revoked = make_api_key(tenant, owner, revoked_at=now)
    _, elsewhere = make_api_key(tenant, owner, allowed_cidrs=["198.51.100.0/24"])
    _, stranger = make_api_key(tenant, make_user())
    row, deleted = make_api_key(tenant, owner)
    ApiKey.objects.for_tenant(tenant.id).filter(id=row.id).delete()
    assert refused(caplog, expired) == "key_expired"
    assert refused(caplog, revoked) == "key_revoked"
    assert refused(caplog, elsewhere) == "key_network"
    assert refused(caplog, stranger) == "owner_no_member"
    assert refused(caplog, deleted) == "key_unknown"
    assert refused(caplog, deleted[:-1] + ("a" if deleted[-1] != "a" else "b")) == "key_malformed"
    assert refused(caplog, "rtk_nonsense") == "key_malformed"


def test_a8_key_of_another_environment_is_refused(
    caplog: pytest.LogCaptureFixture, settings: Any
) -> None:
    """A8: a test key does not open a live installation."""
    tenant = make_tenant()
    _, text = make_api_key(tenant, make_member(tenant, "viewer"))
    settings.RUNTIME = {**settings.RUNTIME, "key_environment": "live"}
    assert refused(caplog, text) == "key_environment"


def test_key_of_an_allowed_network_passes() -> None:
    """The list holds IPv4 and IPv6 networks."""
    tenant = make_tenant()
    owner = make_member(tenant, "viewer")
    _, text = make_api_key(tenant, owner, allowed_cidrs=["192.0.2.0/24", "2001:db8::/32"])
    assert door.from_api_key(text, HERE).user_id == owner.pk
    assert door.from_api_key(text, "2001:db8::1").user_id == owner.pk


def test_a11_agent_key_never_decides() -> None:
    """A11: a scope inserted by SQL gives an agent no right to decide; it acts for a person."""
    tenant = make_tenant()
    person = make_member(tenant, ["approver", "submitter"])
    scopes = ["tasks:read", "tasks:create", "approvals:decide"]
    row, text = make_api_key(tenant, make_agent(tenant), scopes, created_by=person)
    acting = door.from_api_key(text, HERE)
    assert acting.kind is PrincipalKind.AGENT
    assert acting.actor == f"agent:{row.owner_agent_id}"
    assert acting.capabilities == {"tasks:read", "tasks:create"}


def test_last_used_is_written_once_a_minute(django_assert_num_queries: Any) -> None:
    """S4: a busy key costs one write a minute."""
    tenant = make_tenant()
    row, text = make_api_key(tenant, make_member(tenant, "viewer"))
    with django_assert_num_queries(2):
        door.from_api_key(text, HERE)
    with django_assert_num_queries(1):
        door.from_api_key(text, HERE)
    stored = ApiKey.objects.for_tenant(tenant.id).get(id=row.id)
    assert stored.last_used_at is not None


def test_system_principal_only_looks() -> None:
    """S11: internal is not superuser."""
    acting = door.system_principal(make_tenant().id, "sweeper")
    assert acting.actor == "system:sweeper"
    assert all(name.endswith(":read") for name in acting.capabilities)
