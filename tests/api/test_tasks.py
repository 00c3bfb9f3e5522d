"""Tasks over REST: start, replay, look, list."""

import json
import re
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from ledger_app.models import AuditEntry
from tasks_app.models import Event, SteeringCommand, Task
from tests.api.calls import Api, api_of, task_body, without_id
from tests.api.world import make_world
from tests.factories import make_task, make_tenant

pytestmark = pytest.mark.django_db
TASKS = "/runtime/tasks"


@pytest.fixture
def api() -> Api:
    return api_of(make_tenant(), "submitter")


def count(api: Api) -> int:
    return len(api.get(TASKS).json()["items"])


def test_create_answers_as_promised(api: Api) -> None:
    """M6: task id, status, addresses; Location; an audit entry with the request id."""
    answer = api.post(TASKS, task_body(title="First"), X_Request_Id="abc-1")
    assert answer.status_code == 201
    body = answer.json()
    task_id = body["taskId"]
    assert body == {
        "taskId": task_id,
        "status": "queued",
        "stateVersion": 1,
        "title": "First",
        "statusUrl": f"/runtime/tasks/{task_id}",
        "streamUrl": f"/runtime/tasks/{task_id}/events",
    }
    assert answer.headers["Location"] == body["statusUrl"]
    assert answer.headers["X-Request-Id"] == "abc-1"
    entry = AuditEntry.objects.get(stream=f"task:{task_id}")
    assert json.loads(entry.envelope)["request_id"] == "abc-1"


def test_strange_request_ids_are_replaced(api: Api) -> None:
    """What goes into logs and audit is a plain word."""
    answer = api.get("/runtime/whoami", X_Request_Id='x"; drop')
    assert re.fullmatch(r"[0-9a-f]{32}", answer.headers["X-Request-Id"])


def test_same_key_gives_back_the_first_task(api: Api) -> None:
    """U39: one row, 200, the same task; blanks around the key do not count."""
    first = api.post(TASKS, task_body(), Idempotency_Key="k-1")
    again = api.post(TASKS, task_body(), Idempotency_Key=" k-1 ")
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert "Idempotent-Replayed" not in first.headers
    assert again.json() == first.json()
    assert count(api) == 1


def test_same_key_for_another_request_is_refused(api: Api) -> None:
    """409, and the first stays as it was."""
    api.post(TASKS, task_body(), Idempotency_Key="k-1")
    answer = api.post(TASKS, task_body(title="Other"), Idempotency_Key="k-1")
    assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_mismatch")
    assert count(api) == 1


def test_keys_belong_to_their_owner(api: Api) -> None:
    """A54: the same key of somebody else is another key."""
    api.post(TASKS, task_body(), Idempotency_Key="k-1")
    other = api_of(make_tenant(), "submitter")
    assert other.post(TASKS, task_body(), Idempotency_Key="k-1").status_code == 201


@pytest.mark.parametrize("key", ["", " ", "x" * 256, "schlüssel", "a\tb"])
def test_unusable_idempotency_keys_are_refused(api: Api, key: str) -> None:
    """1 to 255 printable characters; nothing is stored."""
    answer = api.post(TASKS, task_body(), Idempotency_Key=key)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
    assert count(api) == 0


def test_p21_user_json_comes_back_as_sent(api: Api) -> None:
    """P21: keys inside a goal are not respelled, in the snapshot and in commands."""
    goal = {"script": [{"op": "set", "values": {"HTTPHeader": 1, "priority-X": {"a_b": [1.5]}}}]}
    created = api.post(TASKS, {"workflow": "scripted", "goal": goal}).json()
    assert api.get(created["statusUrl"]).json()["goal"] == goal


def test_snapshot_is_not_sent_twice() -> None:
    """U38: 304 while version and seq stand; a new event or version is a new answer."""
    world = make_world(state_version=3, event_seq=7)
    api = api_of(world.tenant, "operator")
    path = world.path("/runtime/tasks/{task}")
    first = api.get(path)
    assert first.headers["ETag"] == 'W/"3-7"'
    second = api.get(path, If_None_Match=first.headers["ETag"])
    assert (second.status_code, second.content) == (304, b"")
    Task.objects.for_tenant(world.tenant.id).update(event_seq=8)
    assert api.get(path, If_None_Match=first.headers["ETag"]).status_code == 200


def test_polling_costs_one_row(django_assert_num_queries: Any) -> None:
    """Two queries say who asks, one finds the version."""
    world = make_world()
    api = api_of(world.tenant, "operator")
    path = world.path("/runtime/tasks/{task}")
    etag = api.get(path).headers["ETag"]
    with django_assert_num_queries(2):
        assert api.get(path, If_None_Match=etag).status_code == 304


def test_snapshot_shows_what_to_decide() -> None:
    """M7 and S58: the approval with the digest and version that a decision repeats."""
    world = make_world()
    body = api_of(world.tenant, "approver").get(world.path("/runtime/tasks/{task}")).json()
    assert body["status"] == body["outsideStatus"] == "input_required"
    assert body["openApproval"]["id"] == str(world.approval.id)
    assert body["openApproval"]["argsSha256"] == world.approval.args_sha256
    assert body["openApproval"]["version"] == 1
    assert body["initiator"] == {"id": world.owner.pk, "name": world.owner.username}


def test_list_goes_on_where_it_stopped() -> None:
    """U40: every task once, newest first, also when some were made at the same moment."""
    tenant = make_tenant()
    moment = timezone.now()
    made = [
        make_task(tenant=tenant, created_at=moment - timedelta(minutes=n // 3)) for n in range(9)
    ]
    api = api_of(tenant, "viewer")
    seen: list[str] = []
    path: str | None = f"{TASKS}?limit=4"
    pages = 0
    while path:
        answer = api.get(path)
        body = answer.json()
        seen += [item["taskId"] for item in body["items"]]
        link = re.fullmatch(r'<(.+)>; rel="next"', answer.headers.get("Link", ""))
        assert (link is None) is (body["nextCursor"] is None)
        path = link[1] if link else None
        pages += 1
    assert pages == 3
    assert sorted(seen) == sorted(str(task.id) for task in made)


def test_cursor_of_another_list_is_refused() -> None:
    """S128: bound to tenant and filter, and signed."""
    tenant, other = make_tenant(), make_tenant()
    for home in (tenant, tenant, other, other):
        make_task(tenant=home)
    api = api_of(tenant, "viewer")
    cursor = api.get(f"{TASKS}?limit=1").json()["nextCursor"]
    assert api.get(f"{TASKS}?limit=1&cursor={cursor}").status_code == 200
    for path, caller in (
        (f"{TASKS}?limit=1&cursor={cursor}", api_of(other, "viewer")),
        (f"{TASKS}?limit=1&status=queued&cursor={cursor}", api),
        (f"{TASKS}?limit=1&cursor={cursor[:-2]}xx", api),
        (f"/runtime/keys?cursor={cursor}", api),
    ):
        answer = caller.get(path)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_query")


def test_list_can_be_filtered() -> None:
    """By status, workflow and text."""
    tenant = make_tenant()
    paused = make_task(tenant=tenant, status="paused", title="Quarterly review")
    make_task(tenant=tenant, workflow="other")
    api = api_of(tenant, "viewer")
    for query in ("status=paused", "q=quarterly", f"q={str(paused.id)[:8]}"):
        items = api.get(f"{TASKS}?{query}").json()["items"]
        assert [item["taskId"] for item in items] == [str(paused.id)]
    assert len(api.get(f"{TASKS}?workflow=other").json()["items"]) == 1


def test_a5_submitters_list_only_their_own() -> None:
    """A5 and section 2: own, not the tenant's."""
    world = make_world()
    peer = api_of(world.tenant, "submitter")
    assert peer.get(TASKS).json()["items"] == []
    assert peer.get(world.path("/runtime/tasks/{task}")).status_code == 404
    assert peer.get("/runtime/approvals").json()["items"] == []


@pytest.mark.parametrize(
    "part", ["steps", "commands", "checkpoints", "artifacts", "journal", "effects", "audit"]
)
def test_histories_are_paged(part: str, api: Api) -> None:
    """Each takes `limit` and `cursor`, and refuses a foreign cursor."""
    created = api.post(TASKS, task_body(goal={"script": [{"op": "say"}] * 3})).json()
    other = api.post(TASKS, task_body(goal={"script": [{"op": "say"}] * 3})).json()
    answer = api.get(f"{created['statusUrl']}/{part}?limit=2")
    assert answer.status_code == 200
    cursor = answer.json()["nextCursor"]
    if cursor is None:
        return
    assert part == "steps"
    rest = api.get(f"{created['statusUrl']}/{part}?limit=2&cursor={cursor}").json()
    assert [item["position"] for item in answer.json()["items"] + rest["items"]] == [0, 1, 2]
    assert api.get(f"{other['statusUrl']}/{part}?cursor={cursor}").status_code == 400


def test_journal_goes_on_after_a_number() -> None:
    """A client that knows seq 2 asks for what came after it."""
    world = make_world()
    for seq in range(1, 6):
        Event.objects.create(tenant=world.tenant, task=world.task, seq=seq, type="log")
    api = api_of(world.tenant, "viewer")
    path = world.path("/runtime/tasks/{task}/journal")
    first = api.get(f"{path}?after=2&limit=2").json()
    assert [item["seq"] for item in first["items"]] == [3, 4]
    rest = api.get(f"{path}?after=2&limit=2&cursor={first['nextCursor']}").json()
    assert ([item["seq"] for item in rest["items"]], rest["nextCursor"]) == ([5], None)
    assert api.get(f"{path}?after=-1").status_code == 400


class TestSteering:
    """Commands carry what the caller saw, and are stored with who and why."""

    def steer(self, api: Api, path: str, **body: Any) -> Any:
        command = {"type": "pause", "expectedVersion": 1, "reason": "lunch", **body}
        command = {key: value for key, value in command.items() if value is not None}
        return api.post(f"{path}/commands", command)

    @pytest.fixture
    def path(self, api: Api) -> str:
        url: str = api.post(TASKS, task_body()).json()["statusUrl"]
        return url

    def test_command_is_accepted_and_readable(self, api: Api, path: str) -> None:
        """202 with the new version; the list tells who, why and the versions."""
        answer = self.steer(api, path)
        assert answer.status_code == 202
        assert answer.json()["status"] == "applied"
        assert answer.headers["Location"] == f"{path}/commands"
        (item,) = api.get(f"{path}/commands").json()["items"]
        assert (item["type"], item["reason"], item["oldVersion"]) == ("pause", "lunch", 1)
        assert item["commandId"] == answer.json()["commandId"]
        snapshot = api.get(path).json()
        assert snapshot["status"] == "paused"
        assert snapshot["stateVersion"] == answer.json()["stateVersion"] > 1

    def test_version_is_required(self, api: Api, path: str) -> None:
        """U38: 428 names the present version."""
        answer = self.steer(api, path, expectedVersion=None)
        assert (answer.status_code, answer.json()["code"]) == (428, "version_required")
        assert answer.json()["currentVersion"] == 1

    def test_stale_version_is_a_conflict(self, api: Api, path: str) -> None:
        """409 tells where the task stands and who moved it; nothing is stored."""
        self.steer(api, path)
        answer = self.steer(api, path, type="resume")
        body = answer.json()
        assert (answer.status_code, body["code"]) == (409, "version_conflict")
        assert (body["currentStatus"], body["changedBy"]) == (
            "paused",
            api.user and api.user.username,
        )
        assert body["currentVersion"] > 1
        assert len(api.get(f"{path}/commands").json()["items"]) == 1

    def test_same_command_twice_is_one(self, api: Api, path: str) -> None:
        """M9: by commandId, and by Idempotency-Key when there is none."""
        command_id = str(uuid.uuid4())
        first = self.steer(api, path, commandId=command_id)
        again = self.steer(api, path, commandId=command_id)
        assert again.headers["Idempotent-Replayed"] == "true"
        assert again.json()["commandId"] == first.json()["commandId"] == command_id
        body = {"type": "resume", "expectedVersion": first.json()["stateVersion"], "reason": "r"}
        one, two = (api.post(f"{path}/commands", body, Idempotency_Key="k") for _ in range(2))
        assert one.json()["commandId"] == two.json()["commandId"]
        assert SteeringCommand.objects.all_tenants("both").count() == 2

    def test_reason_is_required(self, api: Api, path: str) -> None:
        """S16."""
        for reason in (None, "", "x" * 501):
            answer = self.steer(api, path, reason=reason)
            assert answer.status_code == 422
            assert answer.json()["errors"][0]["pointer"] == "/reason"

    def test_limits_are_not_raised_by_steering(self, api: Api, path: str) -> None:
        """S15: 403 names the right that would be needed."""
        answer = self.steer(api, path, type="adjust_goal", payload={"budget": {"steps": 10**6}})
        assert (answer.status_code, answer.json()["code"]) == (403, "capability_required")
        assert answer.json()["capability"] == "budgets:manage"

    def test_dry_run_tells_the_difference_and_changes_nothing(self, api: Api, path: str) -> None:
        """E72: the merged goal and what the plan would keep, add and retire; not even a trace."""
        script = [{"op": "say", "text": "hello"}, {"op": "map", "count": 3}]
        before = api.get(path).json()
        entries = AuditEntry.objects.count()
        answer = self.steer(api, path, type="adjust_goal", payload={"script": script}, dryRun=True)
        body = answer.json()
        assert answer.status_code == 200
        assert (body["planVersion"], body["stateVersion"]) == (2, 1)
        assert body["goal"]["script"] == script
        assert body["difference"] == {
            "kept": {"count": 1, "keys": ["run"]},
            "added": {"count": 3, "keys": ["number", "square", "total"]},
            "retired": {"count": 0, "keys": []},
        }
        assert body["maps"] == [{"step": "square", "items": None, "kept": None}]
        assert api.get(path).json() == before
        assert AuditEntry.objects.count() == entries
        assert api.get(f"{path}/commands").json()["items"] == []
        assert api.get(f"{path}/plans").json()["items"] == []

    def test_dry_run_is_refused_as_the_command_would_be(self, api: Api, path: str) -> None:
        """The same checks in the same words: versions, goal, limits, reason."""
        goal: dict[str, Any] = {"type": "adjust_goal", "payload": {"note": "x"}}
        changes: tuple[dict[str, Any], ...] = (
            {"expectedVersion": None},
            {"expectedVersion": 7},
            {"payload": {"script": 3}},
            {"payload": {"refuse_goal": True}},
            {"payload": {"budget": {"steps": 10**6}}},
            {"payload": {}},
            {"reason": ""},
        )
        for change in changes:
            dry = self.steer(api, path, **{**goal, **change}, dryRun=True)
            real = self.steer(api, path, **{**goal, **change})
            assert dry.status_code == real.status_code >= 400
            assert without_id(dry) == without_id(real)
        answer = self.steer(api, path, dryRun=True)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] == "/dryRun"

    def test_replaced_plans_are_listed(self, api: Api, path: str) -> None:
        """E72: the stored difference of each plan, with cause, command and author."""
        done = self.steer(api, path, type="adjust_goal", payload={"note": "x"}).json()
        newest, first = api.get(f"{path}/plans").json()["items"]
        assert (newest["version"], newest["cause"]) == (2, "adjust_goal")
        assert newest["commandId"] == done["commandId"]
        assert newest["actor"] == first["actor"] == f"user:{api.user and api.user.pk}"
        assert newest["difference"]["kept"] == {"count": 1, "keys": ["run"]}
        assert (first["version"], first["cause"], first["commandId"]) == (1, "admission", None)
        assert first["difference"]["added"] == {"count": 1, "keys": ["run"]}
        page = api.get(f"{path}/plans?limit=1").json()
        assert [item["version"] for item in page["items"]] == [2]

    def test_a6_key_that_may_only_create_cannot_cancel(self) -> None:
        """A6: creating is not cancelling; the task is untouched."""
        tenant = make_tenant()
        api = api_of(tenant, "submitter", scopes=("tasks:create", "tasks:read"))
        path = api.post(TASKS, task_body()).json()["statusUrl"]
        answer = self.steer(api, path, type="cancel")
        assert (answer.status_code, answer.json()["code"]) == (403, "capability_required")
        assert api.get(path).json()["stateVersion"] == 1
        blind = api_of(tenant, "submitter", scopes=("tasks:create",))
        assert self.steer(blind, path, type="cancel").status_code == 403

    @pytest.mark.parametrize(
        ("role", "kind"), [("viewer", "pause"), ("auditor", "cancel"), ("approver", "cancel")]
    )
    def test_a5_who_only_looks_cannot_steer(self, role: str, kind: str) -> None:
        """A5: 403, since they see the task."""
        world = make_world()
        api = api_of(world.tenant, role)
        answer = self.steer(api, world.path("/runtime/tasks/{task}"), type=kind)
        assert (answer.status_code, answer.json()["code"]) == (403, "capability_required")


class TestBudget:
    """Limits over REST: what a task may use, and what stands above it."""

    def test_task_shows_its_limits(self) -> None:
        """What was asked for comes back with what is used of it."""
        api = api_of(make_tenant(), "submitter")
        made = api.post("/runtime/tasks", {**task_body(), "budget": {"steps": 5, "tokens": 10}})
        assert made.status_code == 201
        shown = api.get(made.json()["statusUrl"]).json()["budget"]
        assert shown == [
            {"kind": "steps", "limit": 5, "spent": 0, "reserved": 0},
            {"kind": "tokens", "limit": 10, "spent": 0, "reserved": 0},
        ]

    def test_limit_above_is_granted_once(self) -> None:
        """Under a limit a task must say its part, and two tasks never get the same."""
        tenant = make_tenant()
        admin, submitter = api_of(tenant, "admin"), api_of(tenant, "submitter")
        limit = {"kind": "tokens", "limit": 100, "reason": "plan B"}
        assert admin.post("/runtime/budgets", limit).status_code == 200
        refused = submitter.post("/runtime/tasks", task_body())
        assert (refused.status_code, refused.json()["code"]) == (422, "budget_required")
        asked = {**task_body(), "budget": {"tokens": 60}}
        assert submitter.post("/runtime/tasks", asked).status_code == 201
        second = submitter.post("/runtime/tasks", asked)
        assert (second.status_code, second.json()["code"]) == (409, "budget_insufficient")
        assert "100" not in second.content.decode()
        [row] = admin.get("/runtime/budgets").json()["items"]
        assert (row["limit"], row["reserved"], row["spent"]) == (100, 60, 0)
        assert admin.post("/runtime/budgets", {**limit, "limit": None}).status_code == 200
        assert submitter.post("/runtime/tasks", task_body()).status_code == 201

    @pytest.mark.parametrize("limit", [-1, 1.5, True, "5"])
    def test_bad_limits_are_refused(self, limit: object) -> None:
        """Whole numbers from 0 on, nothing else."""
        api = api_of(make_tenant(), "submitter")
        answer = api.post("/runtime/tasks", {**task_body(), "budget": {"tokens": limit}})
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] == "/budget/tokens"
