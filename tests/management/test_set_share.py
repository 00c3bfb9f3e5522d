"""Rules: the operator sets a tenant's share by command; nothing senseless is stored."""

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from ledger_app.models import AuditEntry
from tasks_app.models import Tenant
from tests import factories

pytestmark = pytest.mark.django_db(transaction=True)


def _share(tenant: Tenant, *arguments: str) -> str:
    output = StringIO()
    call_command("set_share", "--tenant", tenant.slug, *arguments, stdout=output)
    return output.getvalue().partition(": ")[2].strip()


def test_share_is_set_in_parts_and_audited() -> None:
    """What is not named stays; each change is one entry in the tenant's audit stream."""
    tenant = factories.make_tenant()
    assert _share(tenant) == "weight 1, running tasks: no limit"
    assert _share(tenant, "--weight", "3") == "weight 3, running tasks: no limit"
    assert _share(tenant, "--max-concurrent-tasks", "20") == "weight 3, running tasks: 20"
    assert _share(tenant, "--max-concurrent-tasks", "none", "--weight", "3") == (
        "weight 3, running tasks: no limit"
    )
    entries = AuditEntry.objects.filter(stream=f"tenant:{tenant.id}")
    assert [json.loads(entry.envelope)["action"] for entry in entries] == ["tenant.share"] * 3


@pytest.mark.parametrize(
    "arguments",
    [
        ("--weight", "0"),
        ("--weight", "101"),
        ("--max-concurrent-tasks", "0"),
        ("--max-concurrent-tasks", "-1"),
        ("--max-concurrent-tasks", "99999999999"),
    ],
)
def test_senseless_shares_are_refused(arguments: tuple[str, str]) -> None:
    """With a sentence, and nothing changes."""
    tenant = factories.make_tenant()
    with pytest.raises(CommandError):
        _share(tenant, *arguments)
    assert _share(tenant) == "weight 1, running tasks: no limit"


def test_unknown_tenant_is_refused() -> None:
    """A typo makes no tenant."""
    with pytest.raises(CommandError, match="no such tenant"):
        _share(Tenant(slug="nobody"))
