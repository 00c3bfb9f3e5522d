"""What the MCP door takes and refuses, and what it tells whoever it refuses (S140, mcp.md 8)."""

import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from oauth2_provider.models import AccessToken

from tasks_app.admission import tokens
from tasks_app.domain.errors import UnauthenticatedError
from tasks_app.models import Membership, Task, Tenant
from tests import factories
from tests.mcp.site import Wire
from tests.oauth.door import METADATA, URL, answer, answers, challenge_of, make_token

pytestmark = pytest.mark.django_db(transaction=True)

STARTING = ["tasks:create", "tasks:read"]
CALL = {"name": "scripted", "arguments": {"script": []}}
OLDER = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": CALL,
}


@pytest.fixture
def tenant() -> Tenant:
    return factories.make_tenant()


@pytest.fixture
def person(tenant: Tenant) -> User:
    return factories.make_member(tenant, "submitter")


def test_token_starts_a_task_in_its_owners_name(tenant: Tenant, person: User) -> None:
    told = answer(make_token(tenant, person, STARTING), "tools/call", CALL)
    assert told.status_code == 200, told.text
    [task] = Task.objects.for_tenant(tenant.id)
    assert (task.initiator_id, task.source) == (person.pk, "mcp")


def test_nobody_is_told_where_tokens_come_from_and_which_is_needed() -> None:
    [call, look, begin] = answers(
        Wire(URL, "").request("tools/call", CALL),
        Wire(URL, "").request("tasks/get", {"taskId": "x"}),
        Wire(URL, "").request("server/discover"),
    )
    wanted = ["tasks:create tasks:read", "tasks:read", "tasks:create tasks:read"]
    for refused, scope in zip([call, look, begin], wanted, strict=True):
        assert refused.status_code == 401
        assert challenge_of(refused) == {
            "realm": "perdure",
            "scope": scope,
            "resource_metadata": METADATA,
        }


def test_older_client_is_told_the_scope_by_its_body() -> None:
    wire = Wire(URL, "")
    body = json.dumps({**OLDER, "method": "tasks/get", "padding": "x" * 70_000}).encode()
    many = {"url": URL, "content": body, "headers": {"Content-Type": "application/json"}}
    [look, cut, padded] = answers(
        wire.legacy_request({**OLDER, "method": "tasks/get"}, "2025-11-25"),
        {**many, "content": b"{"},
        many,
    )
    assert challenge_of(look)["scope"] == "tasks:read"
    # What cannot be read, or is long, is not looked into for somebody unknown.
    assert challenge_of(cut)["scope"] == challenge_of(padded)["scope"] == "tasks:create tasks:read"


@pytest.mark.parametrize("columns", [
    pytest.param({"expires": timezone.now() - timedelta(seconds=1)}, id="expired"),
    pytest.param({"resource": []}, id="for-any-address"),
    pytest.param({"resource": ["https://elsewhere.example/mcp"]}, id="for-another-address"),
    pytest.param({"resource": [URL.removesuffix("/mcp")]}, id="for-a-prefix"),
    pytest.param({"resource": [URL]}, id="for-no-tenant"),
])  # fmt: skip
def test_token_that_is_not_for_here_and_now_is_refused(
    tenant: Tenant, person: User, columns: dict[str, Any]
) -> None:
    refused = answer(make_token(tenant, person, **columns), "server/discover")
    assert refused.status_code == 401
    assert challenge_of(refused) == {
        "realm": "perdure",
        "error": "invalid_token",
        "scope": "tasks:create tasks:read",
        "resource_metadata": METADATA,
    }


def test_every_refused_token_looks_the_same(tenant: Tenant, person: User) -> None:
    """Revoked, unknown, of nobody, of a disabled person, of one who left: one answer (S5)."""
    gone = make_token(tenant, person)
    AccessToken.objects.all().delete()
    away = factories.make_user(is_active=False)
    factories.make_member(tenant, "submitter", away)
    left = factories.make_user()
    factories.make_member(tenant, "submitter", left, status="disabled")
    foreign = factories.make_member(factories.make_tenant(), "submitter")
    sent = [
        gone,
        "unknown",
        "rtk_test_nonsense",
        "a.b.c",
        make_token(tenant, None),
        make_token(tenant, away),
        make_token(tenant, left),
        make_token(tenant, foreign),
    ]
    named = {"X-Request-Id": "a-request"}
    told = answers(*[Wire(URL, token).request("server/discover", headers=named) for token in sent])
    assert {one.status_code for one in told} == {401}
    assert {one.json()["requestId"] for one in told} == {"a-request"}
    assert {one.headers["X-Request-Id"] for one in told} == {"a-request"}
    assert len({one.text for one in told}) == 1
    assert {one.headers["Content-Type"] for one in told} == {"application/problem+json"}
    assert len({one.headers["WWW-Authenticate"] for one in told}) == 1


def test_leaving_ends_a_token_at_once(tenant: Tenant, person: User) -> None:
    token = make_token(tenant, person)
    assert answer(token, "tools/list").status_code == 200
    bearer = tokens.from_token(token)
    Membership.objects.for_tenant(tenant.id).update(status="disabled")
    assert answer(token, "tools/list").status_code == 401
    assert bearer.principal.via == "oauth"
    with pytest.raises(UnauthenticatedError):
        tokens.from_token(token)


@pytest.mark.parametrize("older", [None, "2025-11-25", "2025-06-18"])
@pytest.mark.parametrize("named", [True, False])
def test_reading_token_starts_nothing_in_any_era(
    tenant: Tenant, person: User, older: str | None, named: bool
) -> None:
    """Also when the headers say that something is read: the body is what would run."""
    wire = Wire(URL, make_token(tenant, person, ["tasks:read"]))
    request = (
        wire.request("tools/call", CALL) if older is None else wire.legacy_request(OLDER, older)
    )
    names = {"Mcp-Method", "Mcp-Name"}
    request["headers"] = {k: v for k, v in request["headers"].items() if k not in names}
    if named:
        request["headers"] |= {"Mcp-Method": "tasks/get", "Mcp-Name": "x"}
    [refused] = answers(request)
    assert refused.status_code == 403
    assert challenge_of(refused) == {
        "realm": "perdure",
        "error": "insufficient_scope",
        "scope": "tasks:create tasks:read",
        "resource_metadata": METADATA,
    }
    assert not Task.objects.for_tenant(tenant.id).exists()


@pytest.mark.parametrize(("method", "params", "scope"), [
    ("tasks/get", {"taskId": "x"}, "tasks:read"),
    ("tasks/cancel", {"taskId": "x"}, "tasks:cancel"),
    ("tasks/update", {"taskId": "x", "inputResponses": {}}, "tasks:steer approvals:decide"),
    ("resources/list", {}, "tasks:read"),
    ("resources/read", {"uri": "task://x"}, "tasks:read"),
    ("subscriptions/listen", {"notifications": {}}, "tasks:read"),
    ("tools/call", {"name": "task_status", "arguments": {}}, "tasks:read"),
    ("tools/call", {"name": "task_list", "arguments": {}}, "tasks:read"),
    ("tools/call", {"name": "task_steer", "arguments": {}}, "tasks:steer tasks:cancel"),
    ("tools/call", {"name": "task_steer", "arguments": {"type": "pause"}}, "tasks:steer"),
    ("tools/call", {"name": "task_steer", "arguments": {"type": "cancel"}}, "tasks:cancel"),
    ("tools/call", {"name": "task_decide", "arguments": {}}, "approvals:decide"),
    ("tools/call", {"name": "no_such", "arguments": {}}, "tasks:create tasks:read"),
    ("tools/call", {"name": ["task_steer"], "arguments": {}}, "tasks:create tasks:read"),
])  # fmt: skip
def test_challenge_names_all_scopes_of_the_request(
    tenant: Tenant, person: User, method: str, params: dict[str, Any], scope: str
) -> None:
    refused = answer(make_token(tenant, person, []), method, params)
    assert refused.status_code == 403
    told = challenge_of(refused)
    assert (told["error"], told["scope"]) == ("insufficient_scope", scope)


def test_missing_right_asks_for_no_other_token(tenant: Tenant) -> None:
    """The token has the scope, its owner not the right: nothing that the client asks for helps."""
    viewer = factories.make_member(tenant, "viewer")
    refused = answer(make_token(tenant, viewer), "tools/call", CALL)
    assert refused.status_code == 403
    assert refused.json()["code"] == "capability_required"
    assert "WWW-Authenticate" not in refused.headers


def test_token_can_do_no_more_than_its_scopes_and_its_owner(tenant: Tenant) -> None:
    admin = factories.make_member(tenant, ["admin", "approver", "submitter"])
    scopes = [*tokens.SCOPES, "keys:manage", "members:manage"]
    principal = tokens.from_token(make_token(tenant, admin, scopes)).principal
    assert principal.capabilities == {*tokens.SCOPES, "artifacts:read", "approvals:read"}
    narrow = tokens.from_token(make_token(tenant, admin, ["approvals:decide"])).principal
    assert narrow.capabilities == {"approvals:decide", "approvals:read"}


def test_token_is_found_by_one_look_at_an_index(tenant: Tenant, person: User) -> None:
    """One query for the token with its owner, one for the membership: as many as a key takes."""
    token = make_token(tenant, person)
    tokens.from_token(token)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        tokens.from_token(token)
    assert len(queries) == 2
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        cursor.execute(
            "EXPLAIN SELECT * FROM oauth2_provider_accesstoken WHERE token_checksum = 'x'"
        )
        plan = "\n".join(line for (line,) in cursor.fetchall())
        cursor.execute("RESET enable_seqscan")
    assert "Index Scan" in plan


def test_token_in_the_address_is_refused_and_ended(tenant: Tenant, person: User) -> None:
    """A8: nothing is done for it, and a genuine one is worth nothing afterwards."""
    token = make_token(tenant, person)
    request = Wire(URL, "").request("server/discover")
    request["url"] += f"?access_token={token}"
    with_both = Wire(URL, token).request("server/discover")
    with_both["url"] += "?access_token=guess"
    [both, exposed] = answers(with_both, request)
    for refused in (both, exposed):
        assert refused.status_code == 400
        assert refused.json()["code"] == "credential_in_url"
    assert answer(token, "server/discover").status_code == 401


def test_keys_are_taken_as_before(tenant: Tenant, person: User) -> None:
    _, key = factories.make_api_key(tenant, person, ["tasks:read"])
    plain = Wire(URL, "").request("tools/list", headers={"X-Api-Key": key})
    [read, header, call] = answers(
        Wire(URL, key).request("tools/list"), plain, Wire(URL, key).request("tools/call", CALL)
    )
    assert (read.status_code, header.status_code) == (200, 200)
    assert challenge_of(call)["scope"] == "tasks:create tasks:read"
    token = make_token(tenant, person)
    as_key = Wire(URL, "").request("tools/list", headers={"X-Api-Key": token})
    assert answers(as_key)[0].status_code == 401


@pytest.mark.slow
def test_foreign_unknown_and_old_tasks_are_one_answer(tenant: Tenant, person: User) -> None:
    """S29: byte for byte, whoever asks with whatever credential."""
    other = factories.make_member(tenant, "submitter")
    foreign = factories.make_task(tenant=tenant, initiator=other)
    elsewhere = factories.make_task()
    long_ago = timezone.now() - timedelta(days=400)
    old = factories.make_task(
        tenant=tenant, initiator=person, status="cancelled", finished_at=long_ago
    )
    token = make_token(tenant, person)
    for method in ("tasks/get", "tasks/cancel", "tasks/update"):
        asked = [foreign.id, elsewhere.id, old.id, uuid4(), "x"]
        told = answers(*[
            Wire(URL, token).request(method, {"taskId": str(one), "inputResponses": {}})
            for one in asked
        ])  # fmt: skip
        assert len({(one.status_code, one.text) for one in told}) == 1
