"""API keys: shown once, never wider than their maker, ended with a reason, audited."""

import json
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from ledger_app.models import AuditEntry
from tasks_app.admission.keys import create_key, revoke_exposed, revoke_key, rotate_key
from tasks_app.admission.principal import from_api_key, from_user
from tasks_app.domain.errors import (
    InvalidInputError,
    NotAllowedError,
    NotFoundError,
    TenantSuspendedError,
    UnauthenticatedError,
)
from tasks_app.domain.key_text import find_key_text, make_key_text, parse_key_text
from tasks_app.domain.principal import Principal
from tasks_app.models import ApiKey
from tests.factories import make_agent, make_api_key, make_member, make_tenant

pytestmark = pytest.mark.django_db


def member(roles: Any, tenant: Any = None) -> Principal:
    home = tenant or make_tenant()
    return from_user(make_member(home, roles), home.id)


def actions(tenant_id: uuid.UUID) -> list[str]:
    rows = AuditEntry.objects.filter(stream=f"tenant:{tenant_id}").order_by("seq")
    return [json.loads(row.envelope)["action"] for row in rows]


def codes(error: pytest.ExceptionInfo[InvalidInputError]) -> list[tuple[str, str]]:
    return [(problem.pointer, problem.code) for problem in error.value.errors]


def test_key_text_has_its_form() -> None:
    """S3: prefix, environment, key id, 256 bit, checksum."""
    key = make_key_text("live")
    prefix, environment, key_id, rest = key.text.split("_", 3)
    assert (prefix, environment, key_id) == ("rtk", "live", key.key_id)
    assert len(rest) == 43 + 1 + 6
    assert parse_key_text(key.text) == key
    assert find_key_text(f"see https://x/?token={key.text}&y=1") == key
    assert parse_key_text(key.text[:-1]) is None


def test_created_key_works_and_only_its_digest_is_stored() -> None:
    """S3: the text is known once."""
    acting = member("submitter")
    made = create_key(acting, name="ci", scopes=["tasks:read", "tasks:create"])
    assert from_api_key(made.text, "").can("tasks:create")
    row = ApiKey.objects.for_tenant(acting.tenant_id).get(id=made.id)
    assert len(bytes(row.digest)) == 32
    assert made.text.encode() not in bytes(row.digest)
    assert timedelta(days=89) < row.expires_at - timezone.now() <= timedelta(days=90)
    assert actions(acting.tenant_id) == ["key.create"]


def test_key_is_never_wider_than_its_maker() -> None:
    """Scopes are a part of what the maker holds."""
    with pytest.raises(InvalidInputError) as refused:
        create_key(member("viewer"), name="x", scopes=["tasks:cancel", "nonsense"])
    assert codes(refused) == [("/scopes/0", "scope_not_held"), ("/scopes/1", "unknown_scope")]


def test_key_of_an_agent_gets_nothing_forbidden() -> None:
    """S7: refused at the door as well."""
    acting = member("approver")
    agent = make_agent(make_tenant())
    with pytest.raises(InvalidInputError) as refused:
        create_key(acting, name="x", scopes=["approvals:decide"], agent_id=agent.id)
    assert codes(refused) == [("/scopes/0", "scope_forbidden_to_agents")]
    with pytest.raises(NotFoundError):
        create_key(acting, name="x", scopes=["tasks:read"], agent_id=agent.id)


@pytest.mark.parametrize(
    ("values", "pointer"),
    [
        ({"name": " "}, "/name"),
        ({"days": 366}, "/days"),
        ({"days": 0}, "/days"),
        ({"scopes": []}, "/scopes"),
        ({"allowed_cidrs": ["10.0.0.0/8", "nowhere"]}, "/allowedCidrs/1"),
    ],
)
def test_bad_values_are_named(values: dict[str, Any], pointer: str) -> None:
    """Every problem points at its field."""
    good: dict[str, Any] = {"name": "x", "scopes": ["tasks:read"]}
    with pytest.raises(InvalidInputError) as refused:
        create_key(member("viewer"), **{**good, **values})
    assert [problem.pointer for problem in refused.value.errors] == [pointer]


def test_auditor_makes_no_keys() -> None:
    """The table gives auditors none."""
    with pytest.raises(NotAllowedError):
        create_key(member("auditor"), name="x", scopes=["tasks:read"])


def test_suspended_tenant_makes_no_keys() -> None:
    """S1."""
    with pytest.raises(TenantSuspendedError):
        create_key(
            member("viewer", make_tenant(status="suspended")), name="x", scopes=["tasks:read"]
        )


def test_rotation_leaves_the_old_key_a_day() -> None:
    """S4: both work, for 24 hours at most."""
    tenant = make_tenant()
    owner = make_member(tenant, "viewer")
    row, old_text = make_api_key(tenant, owner, ["tasks:read"])
    made = rotate_key(from_user(owner, tenant.id), key_id=row.id)
    assert from_api_key(old_text, "").user_id == from_api_key(made.text, "").user_id
    rows = ApiKey.objects.for_tenant(tenant.id)
    assert rows.get(id=row.id).expires_at <= timezone.now() + timedelta(hours=24)
    assert rows.get(id=made.id).replaces_id == row.id
    assert actions(tenant.id) == ["key.rotate"]


def test_nobody_rotates_the_key_of_another_person() -> None:
    """The new key would act in the owner's name; an admin may only end it."""
    tenant = make_tenant()
    row, _ = make_api_key(tenant, make_member(tenant, "viewer"), ["tasks:read"])
    with pytest.raises(NotAllowedError):
        rotate_key(member("admin", tenant), key_id=row.id)


def test_revoked_key_is_refused_and_says_why() -> None:
    """A revoked key stays revoked, with the first reason."""
    tenant = make_tenant()
    owner = make_member(tenant, "viewer")
    row, text = make_api_key(tenant, owner, ["tasks:read"])
    acting = from_user(owner, tenant.id)
    revoke_key(acting, key_id=row.id, reason=" laptop lost ")
    revoke_key(acting, key_id=row.id, reason="again")
    with pytest.raises(UnauthenticatedError):
        from_api_key(text, "")
    stored = ApiKey.objects.for_tenant(tenant.id).get(id=row.id)
    assert (stored.revoked_reason, stored.revoked_by_id) == ("laptop lost", owner.pk)
    assert actions(tenant.id) == ["key.revoke"]
    with pytest.raises(InvalidInputError):
        rotate_key(acting, key_id=row.id)


def test_keys_of_others_are_not_found() -> None:
    """A viewer manages own keys; an admin those of the tenant, not of others."""
    tenant = make_tenant()
    row, _ = make_api_key(tenant, make_member(tenant, "viewer"))
    for stranger in (member("viewer", tenant), member("admin")):
        with pytest.raises(NotFoundError):
            revoke_key(stranger, key_id=row.id, reason="r")
    revoke_key(member("admin", tenant), key_id=row.id, reason="r")


def test_exposed_key_is_ended_once() -> None:
    """S5: a genuine key in an address is burnt."""
    tenant = make_tenant()
    row, text = make_api_key(tenant, make_member(tenant, "viewer"))
    revoke_exposed(row)
    revoke_exposed(row)
    with pytest.raises(UnauthenticatedError):
        from_api_key(text, "")
    assert actions(tenant.id) == ["key.revoke"]
