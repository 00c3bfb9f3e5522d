"""Rules: the operator's command makes a tenant whose first members can work; nothing is replaced."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from ledger_app.models import AuditEntry
from tasks_app.admission.principal import from_user
from tasks_app.models import AgentIdentity, Tenant
from tests import factories

pytestmark = pytest.mark.django_db(transaction=True)


def _found(*members: str, slug: str = "acme") -> str:
    output = StringIO()
    arguments = [part for member in members for part in ("--member", member)]
    call_command("found_tenant", "--slug", slug, "--name", "Acme", *arguments, stdout=output)
    return output.getvalue()


def test_first_members_have_their_rights() -> None:
    """Tenant, agent and memberships exist, and each grant is in the tenant's audit stream."""
    alice, bob = factories.make_user(username="alice"), factories.make_user(username="bob")
    _found("alice=admin", "bob=submitter,viewer")
    tenant = Tenant.objects.get(slug="acme")
    assert from_user(alice, tenant.id).can("members:manage")
    assert from_user(bob, tenant.id).can("tasks:create")
    assert AgentIdentity.objects.for_tenant(tenant.id).get().name == "default"
    assert AuditEntry.objects.filter(stream=f"tenant:{tenant.id}").count() == 2


def test_second_run_changes_nothing() -> None:
    """A membership that exists stays as it is, and the command says so."""
    alice = factories.make_user(username="alice")
    _found("alice=viewer")
    assert "stays as before" in _found("alice=admin")
    tenant = Tenant.objects.get(slug="acme")
    assert not from_user(alice, tenant.id).can("members:manage")
    assert AgentIdentity.objects.for_tenant(tenant.id).count() == 1


@pytest.mark.parametrize(
    ("member", "slug"), [("nobody=admin", "acme"), ("alice", "acme"), ("alice=admin", "a b")]
)
def test_unclear_input_makes_nothing(member: str, slug: str) -> None:
    """A message, and no tenant."""
    factories.make_user(username="alice")
    with pytest.raises(CommandError):
        _found(member, slug=slug)
    assert not Tenant.objects.exists()


def test_unknown_role_is_named() -> None:
    """The role that does not exist is in the message."""
    factories.make_user(username="alice")
    with pytest.raises(CommandError, match="king"):
        _found("alice=king")
