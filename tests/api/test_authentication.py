"""Which credential counts, and which request is refused before anybody looks at it."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client
from django.utils import timezone

from ledger_app.services import audit
from tasks_app.models import ApiKey, Membership, Task
from tests.api.calls import Api, api_of, task_body, without_id
from tests.api.world import make_world
from tests.factories import make_api_key, make_member, make_tenant

pytestmark = pytest.mark.django_db
WHO = "/runtime/whoami"


def test_key_works_in_both_headers() -> None:
    """S5: as Bearer and as X-Api-Key, alone or both with one value."""
    api = api_of(make_tenant(), "viewer")
    client = Client()
    for headers in (
        {"Authorization": f"Bearer {api.key}"},
        {"X-Api-Key": api.key},
        {"Authorization": f"bearer {api.key}", "X-Api-Key": api.key},
    ):
        answer = client.get(WHO, headers=headers)
        assert answer.status_code == 200
        assert answer.json()["via"] == "api_key"


def test_a8_every_refused_credential_looks_the_same() -> None:
    """A8: expired, revoked, mistyped, other environment, two keys, other scheme: one 401."""
    tenant = make_tenant()
    user = make_member(tenant, "viewer")
    now = timezone.now()
    _, good = make_api_key(tenant, user)
    _, other = make_api_key(tenant, user)
    _, expired = make_api_key(tenant, user, expires_at=now - timedelta(seconds=1))
    _, revoked = make_api_key(tenant, user, revoked_at=now)
    client = Client()
    refused = [
        client.get(WHO, headers=headers)
        for headers in (
            {"Authorization": f"Bearer {expired}"},
            {"Authorization": f"Bearer {revoked}"},
            {"Authorization": f"Bearer {good[:-1]}"},
            {"Authorization": f"Bearer {good.replace('rtk_test', 'rtk_live')}"},
            {"Authorization": f"Bearer {good}", "X-Api-Key": other},
            {"Authorization": "Basic dXNlcjpwYXNz"},
            {"Authorization": ""},
            {},
        )
    ]
    assert {answer.status_code for answer in refused} == {401}
    assert len({json.dumps(without_id(answer), sort_keys=True) for answer in refused}) == 1
    assert {answer.headers["WWW-Authenticate"] for answer in refused} == {"Bearer"}


def test_a8_key_in_an_address_is_refused_and_ended() -> None:
    """A8 and S5: 400 wherever it stands in the query, and the key is burnt."""
    tenant = make_tenant()
    user = make_member(tenant, "viewer")
    row, text = make_api_key(tenant, user)
    api = api_of(tenant, "viewer")
    answer = api.get(f"{WHO}?api_key={text}")
    assert answer.status_code == 400
    assert answer.json()["code"] == "credential_in_url"
    assert text not in answer.content.decode()
    stored = ApiKey.objects.for_tenant(tenant.id).get(id=row.id)
    assert stored.revoked_reason == "credential_in_url"


def test_a8_key_in_a_body_is_refused_and_ended() -> None:
    """S5: a key inside a goal or reason is a leak too."""
    tenant = make_tenant()
    api = api_of(tenant, "submitter")
    _, text = make_api_key(tenant, make_member(tenant, "viewer"))
    answer = api.post("/runtime/tasks", task_body(title=f"use {text}"))
    assert (answer.status_code, answer.json()["code"]) == (400, "credential_in_url")
    assert Api(text).get(WHO).status_code == 401
    assert not Task.objects.for_tenant(tenant.id).exists()


def test_a7_removed_role_counts_at_the_next_request() -> None:
    """A7: scopes wider than the role give nothing; a role that is taken away is gone at once."""
    world = make_world()
    api = api_of(world.tenant, "operator")
    path = world.path("/runtime/tasks/{task}/effects")
    assert api.get(path).status_code == 200
    rows = Membership.objects.for_tenant(world.tenant.id).filter(user=api.user)
    rows.update(roles=["viewer"])
    assert api.get(path).status_code == 403
    rows.update(status="disabled")
    assert api.get(path).status_code == 401


def test_session_acts_in_its_active_tenant() -> None:
    """A member of two tenants sees the one the session names, not the other."""
    first, second = make_world(), make_world()
    user = make_member(first.tenant, "operator")
    make_member(second.tenant, ["operator"], user)
    client = Client()
    client.force_login(user)
    session = client.session
    session["tenant"] = second.tenant.slug
    session.save()
    assert client.get(second.path("/runtime/tasks/{task}")).status_code == 200
    assert client.get(first.path("/runtime/tasks/{task}")).status_code == 404
    session["tenant"] = make_tenant().slug
    session.save()
    assert client.get(WHO).status_code == 401


class TestA42:
    """A42: sessions need their token and their own origin; a wrong key is not saved by a cookie."""

    @pytest.fixture
    def client(self) -> Client:
        client = Client(enforce_csrf_checks=True)
        client.get("/login/")
        client.force_login(make_member(make_tenant(), "submitter"))
        return client

    def post(self, client: Client, **headers: str) -> Any:
        return client.post(
            "/runtime/tasks",
            json.dumps(task_body()),
            content_type="application/json",
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )

    def token(self, client: Client, settings: Any) -> str:
        return client.cookies[settings.CSRF_COOKIE_NAME].value

    def test_write_without_token_is_refused(self, client: Client) -> None:
        """The session alone is not enough."""
        answer = self.post(client)
        assert (answer.status_code, answer.json()["code"]) == (403, "csrf_failed")

    def test_write_with_token_passes(self, client: Client, settings: Any) -> None:
        """What our own pages send."""
        token = self.token(client, settings)
        answer = self.post(client, X_CSRFToken=token)
        assert answer.status_code == 201, answer.content

    def test_write_from_another_origin_is_refused(self, client: Client, settings: Any) -> None:
        """Even with a token."""
        token = self.token(client, settings)
        answer = self.post(client, X_CSRFToken=token, Origin="https://evil.example")
        assert (answer.status_code, answer.json()["code"]) == (403, "csrf_failed")

    def test_cookie_does_not_save_a_wrong_key(self, client: Client) -> None:
        """Cookies are ignored as soon as there is an Authorization header."""
        assert self.post(client, Authorization="Bearer rtk_wrong").status_code == 401
        assert client.get(WHO, headers={"Authorization": "Bearer x"}).status_code == 401

    def test_read_needs_no_token(self, client: Client) -> None:
        """GET changes nothing."""
        assert client.get(WHO).json()["via"] == "session"


def test_key_needs_no_token() -> None:
    """CSRF is about cookies."""
    api = api_of(make_tenant(), "submitter")
    api.client = Client(enforce_csrf_checks=True)
    assert api.post("/runtime/tasks", task_body()).status_code == 201


def test_forwarded_addresses_count_only_behind_a_proxy(settings: Any) -> None:
    """S36: the client does not choose the address that its key is checked against."""
    tenant = make_tenant()
    _, text = make_api_key(tenant, make_member(tenant, "viewer"), allowed_cidrs=["198.51.100.0/24"])
    api = Api(text)
    assert api.get(WHO, X_Forwarded_For="198.51.100.9").status_code == 401
    settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, "NUM_PROXIES": 1}
    assert api.get(WHO, X_Forwarded_For="198.51.100.9").status_code == 200
    assert api.get(WHO, X_Forwarded_For="198.51.100.9, 192.0.2.1").status_code == 401


def test_plain_http_is_refused_and_not_redirected(settings: Any) -> None:
    """S122: a client that sends its key in the clear notices; pages are redirected."""
    settings.SECURE_SSL_REDIRECT = True
    api = api_of(make_tenant(), "viewer")
    answer = api.get(WHO)
    assert (answer.status_code, answer.json()["code"]) == (403, "https_required")
    assert api.client.get(WHO, headers=api.headers(), secure=True).status_code == 200
    assert api.get("/runtime/docs").status_code == 301


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_unused_methods_are_refused(method: str) -> None:
    """S132: 405 with what is allowed; nothing answers to TRACE."""
    api = api_of(make_tenant(), "operator")
    answer = api.client.generic(method, "/runtime/tasks", headers=api.headers())
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    assert answer.headers["Allow"] == "GET, POST, HEAD"


def test_head_is_a_get_without_its_body() -> None:
    """Nothing is declared for it twice."""
    api = api_of(make_tenant(), "viewer")
    answer = api.client.head(WHO, headers=api.headers())
    assert (answer.status_code, answer.content) == (200, b"")


def test_a35_failing_audit_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A35: when the audit entry cannot be written, 503 and the change did not happen."""
    tenant = make_tenant()
    api = api_of(tenant, "viewer")

    def broken(**entry: Any) -> int:
        raise OperationalError("disk full")

    monkeypatch.setattr(audit, "append", broken)
    answer = api.post("/runtime/keys", {"name": "k", "scopes": ["tasks:read"]})
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert answer.headers["Retry-After"] == "5"
    assert ApiKey.objects.for_tenant(tenant.id).count() == 1


def test_suspended_tenant_reads_and_changes_nothing() -> None:
    """S1: 403 `tenant_suspended` on every change."""
    world = make_world()
    api = api_of(world.tenant, "operator", "submitter")
    world.tenant.status = "suspended"
    world.tenant.save(update_fields=["status"])
    assert api.get(world.path("/runtime/tasks/{task}")).status_code == 200
    steer = {"type": "pause", "expectedVersion": 1, "reason": "r"}
    for path, body in (
        ("/runtime/tasks", task_body()),
        (world.path("/runtime/tasks/{task}/commands"), steer),
        ("/runtime/keys", {"name": "k", "scopes": ["tasks:read"]}),
    ):
        answer = api.post(path, body)
        assert (answer.status_code, answer.json()["code"]) == (403, "tenant_suspended")
