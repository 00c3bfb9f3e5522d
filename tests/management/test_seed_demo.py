"""The demo's accounts: made once, kept afterwards, and only for their owner's eyes."""

import json
import re
import shlex
import stat
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from tasks_app.admission.principal import from_api_key
from tasks_app.domain.errors import UnauthenticatedError
from tasks_app.models import ApiKey, Tenant
from tests.factories import make_member, make_tenant

pytestmark = pytest.mark.django_db


def seed(file: Path) -> dict[str, Any]:
    out = StringIO()
    call_command("seed_demo", "--json", "--credentials", str(file), stdout=out)
    accounts: dict[str, Any] = json.loads(out.getvalue())
    return accounts


def test_seed_makes_people_who_can_sign_in(tmp_path: Path) -> None:
    """Every login works, with one role each; the keys do what their owners may."""
    accounts = seed(tmp_path / "credentials")
    assert list(accounts["logins"]) == [
        "operator", "approver", "submitter", "viewer", "admin", "auditor"
    ]  # fmt: skip
    for name, password in accounts["logins"].items():
        user = authenticate(username=name, password=password)
        assert user is not None
        assert isinstance(user, User)
        assert user.is_staff is (name not in {"viewer", "submitter"})
        assert not user.is_superuser
    submitter = from_api_key(accounts["api_keys"]["submitter"], "")
    approver = from_api_key(accounts["api_keys"]["approver"], "")
    assert submitter.can("tasks:create")
    assert approver.can("approvals:decide")
    assert submitter.user_id != approver.user_id
    assert from_api_key(accounts["api_keys"]["operator"], "").can("tasks:cancel")


def test_seed_again_changes_nothing(tmp_path: Path) -> None:
    """The same passwords and keys, in a file that only its owner reads."""
    file = tmp_path / "home" / "credentials"
    first = seed(file)
    assert seed(file) == first
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text()) == first
    tenant = Tenant.objects.get(slug="demo")
    assert ApiKey.objects.for_tenant(tenant.id).count() == 3


def test_seed_without_its_file_makes_new_keys(tmp_path: Path) -> None:
    """A key that is no longer known cannot be shown again; a revoked one is replaced."""
    first = seed(tmp_path / "one")
    again = seed(tmp_path / "two")
    assert first["api_keys"] != again["api_keys"]
    tenant = Tenant.objects.get(slug="demo")
    ApiKey.objects.for_tenant(tenant.id).update(revoked_reason="", revoked_at="2020-01-01T00:00Z")
    with pytest.raises(UnauthenticatedError):
        from_api_key(again["api_keys"]["submitter"], "")
    renewed = seed(tmp_path / "two")
    assert from_api_key(renewed["api_keys"]["submitter"], "").can("tasks:create")


def test_seed_refuses_production_and_strange_files(tmp_path: Path, settings: Any) -> None:
    """Nothing is made where it does not belong."""
    strange = tmp_path / "notes"
    strange.write_text("my notes")
    with pytest.raises(CommandError, match="not a file of seed_demo"):
        seed(strange)
    assert strange.read_text() == "my notes"
    settings.PRODUCTION = True
    with pytest.raises(CommandError, match="production"):
        seed(tmp_path / "credentials")
    assert not User.objects.exists()


def test_create_key_prints_a_key_that_works() -> None:
    """Never wider than its owner."""
    tenant = make_tenant()
    user = make_member(tenant, "viewer")
    base = ("create_key", "--tenant", tenant.slug, "--user", user.username, "--name", "ci")
    out = StringIO()
    call_command(*base, "--scope", "tasks:read", stdout=out, stderr=StringIO())
    assert from_api_key(out.getvalue().strip(), "").capabilities == {"tasks:read"}
    with pytest.raises(CommandError, match="/scopes/0"):
        call_command(*base, "--scope", "tasks:create")
    with pytest.raises(CommandError, match="no such tenant"):
        call_command(*base[:3], "--user", "nobody", "--name", "x", "--scope", "tasks:read")


def test_key_of_the_how_to_sets_limits(tmp_path: Path) -> None:
    """The command of docs/how-to/limit-what-tasks-use.md works on what seed_demo made."""
    seed(tmp_path / "credentials")
    page = Path(__file__).resolve().parents[2] / "docs/how-to/limit-what-tasks-use.md"
    [line] = re.findall(r"manage\.py create_key (.*?)\)", page.read_text())
    out = StringIO()
    call_command("create_key", *shlex.split(line), stdout=out, stderr=StringIO())
    key = from_api_key(out.getvalue().strip(), "127.0.0.1")
    assert key.can("budgets:manage")
