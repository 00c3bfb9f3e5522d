"""Decisions over REST: bound to what was shown, made by somebody else, made once."""

from typing import Any

import pytest

from tasks_app.models import ApprovalDecision, Membership
from tests.api.calls import ALL_SCOPES, Api, api_of
from tests.api.world import DIGEST, World, make_world
from tests.factories import make_api_key, make_member

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    return make_world()


@pytest.fixture
def approver(world: World) -> Api:
    return api_of(world.tenant, "approver")


def decide(api: Api, world: World, **changes: Any) -> Any:
    body = {
        "decision": "approve", "argsSha256": DIGEST, "expectedVersion": 1, "reason": "read it",
        **changes,
    }  # fmt: skip
    kept = {key: value for key, value in body.items() if value is not None}
    return api.post(world.path("/runtime/approvals/{approval}/decision"), kept)


def decisions(world: World) -> int:
    return int(ApprovalDecision.objects.for_tenant(world.tenant.id).count())


def test_approval_shows_the_act_and_hides_secrets(world: World, approver: Api) -> None:
    """S56 and S58: arguments with their digest; a secret value is marked, not shown."""
    body = approver.get(world.path("/runtime/approvals/{approval}")).json()
    assert body["arguments"] == {"to": "x", "api_key": "[redacted]"}
    assert (body["argsSha256"], body["version"], body["status"]) == (DIGEST, 1, "pending")
    assert body["requestedBy"]["name"] == world.owner.username
    (item,) = approver.get("/runtime/approvals").json()["items"]
    assert item["id"] == body["id"]
    assert approver.get("/runtime/approvals?status=denied").json()["items"] == []


def test_decision_is_stored_with_its_reason(world: World, approver: Api) -> None:
    """The answer is the approval as it stands then; the task goes on."""
    answer = decide(approver, world)
    assert answer.status_code == 200, answer.content
    body = answer.json()
    assert body["status"] == "approved"
    (decision,) = body["decisions"]
    assert (decision["decision"], decision["reason"]) == ("approve", "read it")
    assert approver.user is not None
    assert decision["by"] == {"id": approver.user.pk, "name": approver.user.username}
    task = approver.get(world.path("/runtime/tasks/{task}")).json()
    assert (task["status"], task["openApproval"]) == ("queued", None)


def test_a14_decision_on_something_else_is_refused(world: World, approver: Api) -> None:
    """A14: an old digest or version is 409 with the new ones; a missing digest is 409 too."""
    for changes, code in (
        ({"argsSha256": "cd" * 32}, "approval_changed"),
        ({"expectedVersion": 2}, "approval_changed"),
        ({"argsSha256": None}, "approval_digest_required"),
    ):
        answer = decide(approver, world, **changes)
        assert (answer.status_code, answer.json()["code"]) == (409, code)
    assert decide(approver, world, expectedVersion=None).status_code == 428
    assert decisions(world) == 0


def test_changed_approval_names_what_waits_now(world: World, approver: Api) -> None:
    """S58: the caller can look again without another request."""
    body = decide(approver, world, argsSha256="cd" * 32).json()
    assert (body["argsSha256"], body["currentVersion"]) == (DIGEST, 1)


def test_decisions_are_final(world: World, approver: Api) -> None:
    """S62: a second one is 409 and tells what was decided."""
    assert decide(approver, world, decision="deny").status_code == 200
    answer = decide(api_of(world.tenant, "approver"), world, expectedVersion=2)
    assert (answer.status_code, answer.json()["code"]) == (409, "approval_decided")
    assert answer.json()["currentStatus"] == "denied"
    assert answer.json()["status"] == 409
    assert decisions(world) == 1


def test_a12_nobody_decides_on_their_own_request(world: World) -> None:
    """A12: by an own key, also with the approver's role."""
    Membership.objects.for_tenant(world.tenant.id).filter(user=world.owner).update(
        roles=["submitter", "approver"]
    )
    _, text = make_api_key(world.tenant, world.owner, ALL_SCOPES)
    answer = decide(Api(text), world)
    assert (answer.status_code, answer.json()["code"]) == (403, "approval_self")
    assert decisions(world) == 0


@pytest.mark.parametrize(("role", "status"), [("operator", 403), ("viewer", 403), ("admin", 403)])
def test_a5_who_may_not_decide_is_refused(world: World, role: str, status: int) -> None:
    """A5: operators see approvals and do not decide."""
    answer = decide(api_of(world.tenant, role), world)
    assert (answer.status_code, answer.json()["code"]) == (status, "capability_required")
    assert decisions(world) == 0


def test_key_without_the_scope_does_not_decide(world: World) -> None:
    """S6: an approver's key is no wider than its scopes."""
    user = make_member(world.tenant, "approver")
    _, text = make_api_key(world.tenant, user, ["approvals:read", "tasks:read"])
    assert decide(Api(text), world).status_code == 403
