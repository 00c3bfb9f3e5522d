"""Rules: the installation adds clients, ends access and links identities by command; all audited."""

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from oauth2_provider.models import Application

from ledger_app.models import AuditEntry
from tasks_app.admission import tokens
from tasks_app.domain.errors import UnauthenticatedError
from tasks_app.models import ExternalIdentity, Tenant
from tests import factories
from tests.oauth.door import make_client, make_token

pytestmark = pytest.mark.django_db(transaction=True)


def run(*arguments: str) -> list[str]:
    output = StringIO()
    call_command("oauth", *arguments, stdout=output, stderr=StringIO())
    return output.getvalue().splitlines()


def actions(tenant: Tenant) -> list[str]:
    entries = AuditEntry.objects.filter(stream=f"tenant:{tenant.id}").order_by("seq")
    return [json.loads(entry.envelope)["action"] for entry in entries]


def test_clients_come_and_go() -> None:
    [client_id] = run("add-client", "Desk", "--redirect-uri", "http://127.0.0.1/callback")
    row = Application.objects.get(client_id=client_id)
    assert (row.client_type, row.authorization_grant_type) == ("public", "authorization-code")
    assert row.skip_authorization is False
    [_, secret] = run(
        "add-client", "Web", "--secret", "--redirect-uri", "https://a.example/b",
        "--redirect-uri", "https://c.example/d",
    )  # fmt: skip
    web = Application.objects.get(name="Web")
    assert web.client_secret not in {"", secret}
    assert web.redirect_uri_allowed("https://c.example/d")
    assert [line.split("\t")[1] for line in run("clients")] == ["Desk", "Web"]
    run("remove-client", client_id)
    assert not Application.objects.filter(client_id=client_id).exists()
    with pytest.raises(CommandError):
        run("remove-client", client_id)


@pytest.mark.parametrize("address", [
    "javascript:alert(1)", "ftp://x.example/", "*", "/callback", "http://evil.example/callback",
    "http://localhost.evil.example/", "http://localhost@evil.example/", "https://a.example/b#c",
    "https://a.example/b#", "https:///callback", "https://a.example/ http://evil.example/",
    "http://[::1", "",
])  # fmt: skip
def test_client_needs_an_address_that_a_browser_may_follow(address: str) -> None:
    with pytest.raises(CommandError, match="has to be https"):
        run(
            "add-client", "Desk", "--redirect-uri", "https://a.example/b", "--redirect-uri", address
        )
    assert not Application.objects.exists()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8123", "[::1]"])
def test_own_machine_needs_no_tls(host: str) -> None:
    run("add-client", "Desk", "--redirect-uri", f"http://{host}/callback")
    assert Application.objects.get().redirect_uris == f"http://{host}/callback"


@pytest.mark.parametrize("name", ["", "  "])
def test_client_needs_a_name(name: str) -> None:
    with pytest.raises(CommandError, match="name"):
        run("add-client", name, "--redirect-uri", "https://a.example/b")
    assert not Application.objects.exists()


def test_access_ends_for_one_client_or_all() -> None:
    tenant = factories.make_tenant()
    anna, other = factories.make_members(tenant, ["submitter", "submitter"])
    desk, web = make_client("Desk"), make_client("Web")
    held = [make_token(tenant, anna, application=one) for one in (desk, web)]
    kept = make_token(tenant, other, application=desk)
    ended = run("end", "--user", anna.username, "--client", desk.client_id, "--reason", "lost")
    assert ended == [desk.client_id]
    with pytest.raises(UnauthenticatedError):
        tokens.from_token(held[0])
    tokens.from_token(held[1])
    assert run("end", "--user", anna.username, "--reason", "left") == [web.client_id]
    with pytest.raises(UnauthenticatedError):
        tokens.from_token(held[1])
    tokens.from_token(kept)
    assert run("end", "--user", anna.username, "--reason", "left") == []
    assert actions(tenant) == ["oauth.end", "oauth.end"]


def test_subjects_are_linked_to_members_once(settings: Any) -> None:
    settings.MCP_JWT_ISSUER = "https://id.example"
    tenant = factories.make_tenant()
    anna, other = factories.make_members(tenant, ["submitter", "submitter"])
    stranger = factories.make_user()
    run("link", "s-1", "--tenant", tenant.slug, "--user", anna.username)
    for user in (anna, other, stranger):
        with pytest.raises(CommandError):
            run("link", "s-1", "--tenant", tenant.slug, "--user", user.username)
    with pytest.raises(CommandError):
        run("link", "s-2", "--tenant", tenant.slug, "--user", stranger.username)
    [row] = ExternalIdentity.objects.for_tenant(tenant.id)
    assert (row.issuer, row.subject, row.user_id) == ("https://id.example", "s-1", anna.pk)
    run("unlink", "s-1", "--tenant", tenant.slug)
    with pytest.raises(CommandError):
        run("unlink", "s-1", "--tenant", tenant.slug)
    assert actions(tenant) == ["identity.link", "identity.unlink"]


def test_links_need_an_issuer() -> None:
    tenant = factories.make_tenant()
    anna = factories.make_member(tenant, "submitter")
    with pytest.raises(CommandError, match="MCP_JWT_ISSUER"):
        run("link", "s-1", "--tenant", tenant.slug, "--user", anna.username)
