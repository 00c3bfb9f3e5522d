"""U39: every writing route takes an Idempotency-Key; a repeat is answered and does nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from pytest_django import Settings

from ledger_app.models import AuditEntry
from tasks_app.admission import replays
from tasks_app.models import KeptAnswer, Schedule
from tasks_app.models.access import ROLES
from tests.api.calls import Api, api_of, openapi, task_body
from tests.api.world import DIGEST, World, make_schedule, make_world
from tests.factories import make_api_key, make_task

pytestmark = pytest.mark.django_db
REASON = {"reason": "because"}


@dataclass(frozen=True)
class Write:
    """One writing route: what is sent, and the status of its first answer and of a repeat."""

    path: str
    body: dict[str, Any]
    status: int
    again: int | None = None
    # Another request, which the key does not stand for.
    other: dict[str, Any] = field(default_factory=lambda: {"reason": "another"})
    # Fields that a repeat does not show.
    hidden: tuple[str, ...] = ()


HOOK = "https://hooks.example.org/perdure"
STEER = {"type": "pause", "expectedVersion": 1, **REASON}
SCHEDULE = {"name": "other", "workflow": "scripted", "goal": {"script": []}, "cron": "0 7 * * *"}
WRITES = {
    "createTask": Write("tasks", task_body(), 201, 200, {"title": "Other"}),
    "steerTask": Write("tasks/{free}/commands", STEER, 202),
    "steerTasks": Write("commands", {"type": "pause", "select": {}, **REASON}, 200),
    "repairTask": Write(
        "tasks/{held}/repairs", {"verb": "requeue", "expectedVersion": 1, **REASON}, 202
    ),
    "repairTasks": Write(
        "repairs",
        {"verb": "requeue", "tasks": [{"taskId": "{held}", "expectedVersion": 1}], **REASON},
        200,
    ),
    "decideApproval": Write(
        "approvals/{approval}/decision",
        {"decision": "approve", "argsSha256": DIGEST, "expectedVersion": 1, **REASON},
        200,
    ),
    "createSchedule": Write("schedules", SCHEDULE, 201, None, {"name": "third"}),
    "pauseSchedule": Write("schedules/{schedule}/pause", REASON, 200),
    "resumeSchedule": Write("schedules/{schedule}/resume", REASON, 200),
    "fireSchedule": Write("schedules/{schedule}/fire", REASON, 200),
    "deleteSchedule": Write("schedules/{schedule}/delete", REASON, 204),
    "setBudget": Write("budgets", {"kind": "tokens", "limit": 9, **REASON}, 200),
    "setPrice": Write(
        "prices", {"subject": "m", "unit": "call", "microsPerMillion": 1, **REASON}, 201
    ),
    "createKey": Write(
        "keys", {"name": "k", "scopes": ["tasks:read"]}, 201, None, {"name": "l"}, ("key",)
    ),
    "rotateKey": Write("keys/{key}/rotate", {"days": 3}, 201, None, {"days": 4}, ("key",)),
    "createWebhook": Write("webhooks", {"url": HOOK}, 201, None, {"allTasks": False}, ("secret",)),
    "rotateWebhook": Write("webhooks/{webhook}/rotate", REASON, 201, hidden=("secret",)),
    "disableWebhook": Write("webhooks/{webhook}/disable", REASON, 200),
    "enableWebhook": Write("webhooks/{webhook}/enable", REASON, 200),
    "revokeKey": Write("keys/{key}/revoke", REASON, 204),
}
each_write = pytest.mark.parametrize("name", WRITES)


@dataclass(frozen=True)
class Scene:
    """Somebody with every right, and something to act on with each route."""

    world: World
    api: Api
    places: dict[str, str]

    def send(self, name: str, key: str, more: Mapping[str, Any] = {}) -> Any:
        write = WRITES[name]
        body = {**write.body, **more}
        if name == "repairTasks":
            body["tasks"] = [{"taskId": self.places["held"], "expectedVersion": 1}]
        path = f"/runtime/{write.path.format(**self.places)}"
        return self.api.post(path, body, Idempotency_Key=key)


@pytest.fixture
def scene(settings: Settings) -> Scene:
    settings.RUNTIME = {**settings.RUNTIME, "webhook_hosts": ("hooks.example.org",)}
    world = make_world()
    api = api_of(world.tenant, *ROLES)
    assert api.user is not None
    error = {"code": "too_many_recoveries", "message": "It is held."}
    held = make_task(
        tenant=world.tenant, status="dead_lettered", error=error, held_at=timezone.now(),
        initiator=world.owner,
    )  # fmt: skip
    key, _ = make_api_key(world.tenant, api.user)
    Schedule.objects.for_tenant(world.tenant.id).update(name="first")
    places = {
        "free": make_task(tenant=world.tenant).pk,
        "held": held.pk,
        "approval": world.approval.pk,
        "schedule": make_schedule(world.tenant, api.user).pk,
        "key": key.pk,
        "webhook": world.webhook.pk,
    }
    return Scene(world, api, {name: str(value) for name, value in places.items()})


def shown(answer: Any) -> Any:
    return answer.json() if answer.content else None


def test_every_writing_route_is_here() -> None:
    """A route that is added is missing here until its repeat is tried; each offers the header."""
    found = {}
    for path in openapi()["paths"].values():
        if "post" in path:
            headers = [p["name"] for p in path["post"].get("parameters", []) if p["in"] == "header"]
            found[path["post"]["operationId"]] = headers
    assert found.keys() == WRITES.keys()
    assert [name for name, headers in found.items() if "Idempotency-Key" not in headers] == []


@each_write
def test_a_repeat_does_nothing(scene: Scene, name: str) -> None:
    """The first answer once more, said to be one; not even a trace in the audit."""
    write = WRITES[name]
    first = scene.send(name, "k")
    assert first.status_code == write.status, first.content
    assert "Idempotent-Replayed" not in first.headers
    entries = AuditEntry.objects.count()
    again = scene.send(name, " k ")
    assert again.status_code == (write.again or write.status)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.headers.get("Location") == first.headers.get("Location")
    before = shown(first)
    if name == "steerTasks":
        before["done"] = [{**row, "replayed": True} for row in before["done"]]
    if write.hidden:
        before = {**before, **dict.fromkeys(write.hidden)}
    assert shown(again) == before
    assert AuditEntry.objects.count() == entries


@each_write
def test_a_key_stands_for_one_request(scene: Scene, name: str) -> None:
    """Another request with the key is refused and does nothing."""
    assert scene.send(name, "k").status_code == WRITES[name].status
    entries = AuditEntry.objects.count()
    answer = scene.send(name, "k", WRITES[name].other)
    assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_mismatch")
    assert AuditEntry.objects.count() == entries


@each_write
def test_an_unusable_key_is_refused(scene: Scene, name: str) -> None:
    """Before anything is done."""
    entries = AuditEntry.objects.count()
    answer = scene.send(name, "x" * 256)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
    assert AuditEntry.objects.count() == entries


def test_a_key_belongs_to_one_person_and_one_route(scene: Scene) -> None:
    """Somebody else's key of the same name is another; on another route it is the same."""
    other = api_of(scene.world.tenant, *ROLES)
    body = WRITES["setPrice"].body
    assert scene.send("setPrice", "k").json()["version"] == 1
    assert other.post("/runtime/prices", body, Idempotency_Key="k").json()["version"] == 2
    assert scene.send("createSchedule", "k").json()["code"] == "idempotency_mismatch"


def test_a_refused_request_leaves_its_key_free(scene: Scene) -> None:
    """Once the reason is gone the same key works."""
    Schedule.objects.for_tenant(scene.world.tenant.id).filter(name="first").update(name="other")
    assert scene.send("createSchedule", "k").json()["code"] == "name_taken"
    Schedule.objects.for_tenant(scene.world.tenant.id).filter(name="other").update(name="first")
    assert scene.send("createSchedule", "k").status_code == 201


def test_while_the_first_is_at_work_the_second_waits(scene: Scene) -> None:
    """409 that says when to try again; nothing is done twice."""
    assert scene.api.user is not None
    name = f"{scene.world.tenant.id}:user:{scene.api.user.pk}:k"
    first = connection.copy()
    try:
        with first.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", [replays._LOCKS, name])
        answer = scene.send("setPrice", "k")
        assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_in_progress")
        assert answer.headers["Retry-After"] == "1"
    finally:
        first.close()
    assert scene.send("setPrice", "k").json()["version"] == 1


def test_no_secret_is_kept(scene: Scene) -> None:
    """S3: the text of a new key is in its first answer and nowhere else."""
    text = scene.send("createKey", "k").json()["key"]
    kept = KeptAnswer.objects.for_tenant(scene.world.tenant.id).get()
    assert text not in str(kept.body)
    assert kept.body["key"] is None


def test_answers_are_kept_so_long(scene: Scene, settings: Settings) -> None:
    """Then the key is free again; younger answers stay."""
    scene.send("createKey", "old")
    rows = KeptAnswer.objects.for_tenant(scene.world.tenant.id)
    long_ago = timezone.now() - timedelta(seconds=settings.RUNTIME["kept_answer_seconds"] + 1)
    rows.update(created_at=long_ago)
    scene.send("createKey", "young")
    assert replays.forget_old() == 1
    assert rows.get().created_at > long_ago
    assert replays.forget_old() == 0
