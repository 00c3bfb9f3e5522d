"""Every list of REST: pages by cursor that stay right while rows come, filters, orders, refusals."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from ledger_app.models import Effect
from ledger_app.services import audit
from tasks_app.api import lists
from tasks_app.models import (
    Artifact,
    Attempt,
    Budget,
    Checkpoint,
    Event,
    PlanVersion,
    Price,
    Repair,
    Schedule,
    Slice,
    SteeringCommand,
    Step,
    Thread,
    WebhookDelivery,
    WebhookEndpoint,
)
from tests.api.calls import Api, api_of, openapi
from tests.api.world import DIGEST, World, make_approval, make_step, make_world
from tests.factories import make_agent, make_api_key, make_task

pytestmark = pytest.mark.django_db


def in_task(world: World) -> dict[str, Any]:
    return {"tenant": world.tenant, "task": world.task}


def add_task(world: World, n: int) -> None:
    make_task(
        tenant=world.tenant, initiator=world.owner, priority=n % 3, title=f"T{n}",
        workflow="scripted" if n % 2 else "other", status="paused" if n % 2 else "queued",
    )  # fmt: skip


def add_held(world: World, n: int) -> None:
    error = {"code": "too_many_recoveries" if n % 2 else "checkpoint_damaged", "message": "x"}
    held_at = timezone.now() + timedelta(seconds=n)
    make_task(tenant=world.tenant, status="dead_lettered", error=error, held_at=held_at)


def add_approval(world: World, n: int) -> None:
    task = make_task(tenant=world.tenant, initiator=world.owner, status="input_required")
    step = make_step(task, key=f"a{n}", kind="approval", status="waiting")
    expires_at = timezone.now() + timedelta(hours=n + 1)
    make_approval(task, step, tool="mail" if n % 2 else "publish", expires_at=expires_at)


def add_command(world: World, n: int) -> None:
    SteeringCommand.objects.create(
        **in_task(world), command_id=uuid4(), seq=n + 1, type="pause" if n % 2 else "resume",
        payload_sha256=DIGEST, expected_version=1, old_version=1, reason="r", source="rest",
        requested_by=world.owner, status="applied" if n % 2 else "rejected",
    )  # fmt: skip


def add_repair(world: World, n: int) -> None:
    Repair.objects.create(
        **in_task(world), repair_id=uuid4(), verb="requeue" if n % 2 else "close", cause="c",
        payload={}, payload_sha256=DIGEST, reason="r", requested_by=world.owner, source="rest",
        old_version=1, new_version=2, status="queued",
    )  # fmt: skip


def add_plan(world: World, n: int) -> None:
    none = {"count": 0, "keys": []}
    PlanVersion.objects.create(
        **in_task(world), version=n + 1, cause="repair" if n % 2 else "adjust_goal",
        workflow_version=1, actor="user:1",
        difference={"kept": none, "added": none, "retired": none},
    )  # fmt: skip


def add_step(world: World, n: int) -> None:
    make_step(
        world.task, key=f"s{n}", position=n // 2, kind="map" if n % 2 else "step",
        status="failed" if n % 2 else "planned", retired_in=2 if n % 2 else None,
    )  # fmt: skip


def add_slice(world: World, n: int) -> None:
    Slice.objects.create(
        **in_task(world), fence=n + 1, worker=f"w{n % 2}", outcome="lost" if n % 2 else "yielded",
        recovered=bool(n % 2),
    )  # fmt: skip


def add_attempt(world: World, n: int) -> None:
    step = Step.objects.for_tenant(world.tenant.id).filter(task=world.task).first()
    Attempt.objects.create(**in_task(world), step=step, number=n + 1, fence=n + 1, error={})


def add_checkpoint(world: World, n: int) -> None:
    Checkpoint.objects.create(
        **in_task(world), seq=n + 1, reason="steps" if n % 2 else "pause", document="{}",
        sha256=DIGEST, schema_version=2, plan_version=1, next_step="", fence=1,
    )  # fmt: skip


def add_effect(world: World, n: int) -> None:
    Effect.objects.create(
        tenant_id=world.tenant.id, task_id=world.task.id, step_key=f"s{n % 2}", key=f"k{n}",
        kind="keyed", tool="mail" if n % 2 else "publish", args_sha256=DIGEST, attempts=0,
        state="begun" if n % 2 else "planned", fence=1, request={},
        begun_at=timezone.now() if n % 2 else None,
    )  # fmt: skip


def add_artifact(world: World, n: int) -> None:
    Artifact.objects.create(
        **in_task(world), step_key=f"s{n % 2}", name=f"{n}.txt", media_type="text/plain",
        size_bytes=n, sha256=DIGEST, fence=1, presented=bool(n % 2),
    )  # fmt: skip


def add_event(world: World, n: int) -> None:
    Event.objects.create(**in_task(world), seq=n + 1, type="log" if n % 2 else "progress")


def add_audit(world: World, n: int) -> None:
    audit.append(
        stream=f"task:{world.task.id}", tenant_id=world.tenant.id, actor=f"user:{n % 2}",
        action="task.paused" if n % 2 else "task.resumed", target="t", via="rest",
    )  # fmt: skip


def add_thread(world: World, n: int) -> None:
    Thread.objects.create(tenant=world.tenant, key=f"k{n}", owner=world.owner)


def add_schedule(world: World, n: int) -> None:
    thread = Thread.objects.create(tenant=world.tenant, key=f"s{n}", owner=world.owner)
    Schedule.objects.create(
        tenant=world.tenant, owner=world.owner, thread=thread, name=f"S{n}", goal={},
        workflow="scripted" if n % 2 else "other", cron="0 0 1 1 *", starts_at=timezone.now(),
        paused_at=timezone.now() if n % 2 else None,
    )  # fmt: skip


def add_key(world: World, n: int) -> None:
    key, _ = make_api_key(world.tenant, world.owner)
    type(key).objects.for_tenant(world.tenant.id).filter(pk=key.pk).update(
        revoked_at=timezone.now() if n % 2 else None
    )


def add_webhook(world: World, n: int) -> None:
    WebhookEndpoint.objects.create(
        tenant=world.tenant, url=f"https://h{n}.example.org/", created_by=world.owner,
        disabled_at=timezone.now() if n % 2 else None,
    )  # fmt: skip


def add_delivery(world: World, n: int) -> None:
    WebhookDelivery.objects.create(
        **in_task(world), endpoint=world.webhook, seq=n, state_version=1,
        status="failed" if n % 2 else "completed", state="held" if n % 3 else "pending",
    )  # fmt: skip


def add_limit(world: World, n: int) -> None:
    Budget.objects.create(
        tenant=world.tenant, kind="tokens" if n % 2 else "steps", limit_amount=n,
        period="day" if n % 3 else "month", agent=make_agent(world.tenant, name=f"a{n}"),
    )  # fmt: skip


def add_price(world: World, n: int) -> None:
    Price.objects.create(
        tenant=world.tenant, subject=f"m{n % 2}", unit="call", version=n, micros_per_million=n,
    )  # fmt: skip


@dataclass(frozen=True)
class List:
    """One list: where, what adds its n-th row, which role sees it, and some filters."""

    path: str
    add: Callable[[World, int], None]
    filters: tuple[str, ...] = ()
    role: str = "operator"
    # What tells one row from another.
    key: str = "id"


LISTS = {
    "listTasks": List("/runtime/tasks", add_task, (
        "status=paused", "workflow=other", "priority=0,1", "q=T3",
        "source=schedule,webhook", "createdAfter=2999-01-01T00:00:00Z", "needsMe=true",
        "initiator=nobody", f"threadId={uuid4()}", f"parentId={uuid4()}", f"agentId={uuid4()}",
        "createdBefore=1025-01-17T17:50:30-17:02", "count=estimate",
    ), key="taskId"),
    "listHeldTasks": List("/runtime/dead-letters", add_held, (
        "cause=checkpoint_damaged", "workflow=x", "initiator=nobody",
    ), key="taskId"),
    "listApprovals": List("/runtime/approvals", add_approval, (
        "status=denied", "tool=mail", "mine=true", "workflow=x", "requestedBy=nobody",
        f"taskId={uuid4()}",
    )),
    "listCommands": List("/runtime/tasks/{task}/commands", add_command, (
        "type=pause", "status=rejected", "requestedBy=nobody",
    ), key="seq"),
    "listRepairs": List("/runtime/tasks/{task}/repairs", add_repair, (
        "verb=close", "cause=x", "requestedBy=nobody",
    ), key="repairId"),
    "listPlans": List("/runtime/tasks/{task}/plans", add_plan, ("cause=repair",), key="version"),
    "listSteps": List("/runtime/tasks/{task}/steps", add_step, (
        "status=failed", "kind=map", "retired=true", "retired=false", "method=x", "planVersion=2",
    ), key="key"),
    "listSlices": List("/runtime/tasks/{task}/slices", add_slice, (
        "outcome=lost", "worker=w1", "recovered=true",
    ), key="fence"),
    "listAttempts": List("/runtime/tasks/{task}/attempts", add_attempt, (
        "step=nothing", "fence=2",
    ), key="number"),
    "listCheckpoints": List("/runtime/tasks/{task}/checkpoints", add_checkpoint, (
        "reason=pause", "planVersion=2",
    ), key="seq"),
    "listEffects": List("/runtime/tasks/{task}/effects", add_effect, (
        "state=planned", "tool=mail", "stepKey=s1",
    ), key="key"),
    "listArtifacts": List("/runtime/tasks/{task}/artifacts", add_artifact, (
        "q=3", "presented=true", "stepKey=s1", "mediaType=x",
    )),
    "listEvents": List("/runtime/tasks/{task}/journal", add_event, (
        "type=log", "after=3", "before=3",
    ), key="seq"),
    "listAudit": List("/runtime/tasks/{task}/audit", add_audit, (
        "action=task.paused", "actor=user:1",
    ), key="seq"),
    "listThreads": List("/runtime/threads", add_thread, (
        "q=k1", "owner=nobody", "status=busy",
    )),
    "listSchedules": List("/runtime/schedules", add_schedule, (
        "q=s3", "paused=true", "workflow=other", "owner=nobody",
    )),
    "listKeys": List("/runtime/keys", add_key, (
        "state=revoked", "q=zzz", "owner=nobody",
    ), role="admin"),
    "listWebhooks": List("/runtime/webhooks", add_webhook, (
        "q=h3", "disabled=true",
    ), role="admin"),
    "listWebhookDeliveries": List("/runtime/webhooks/{webhook}/deliveries", add_delivery, (
        "state=held", "status=failed", f"taskId={uuid4()}",
    ), role="admin"),
    "listBudgets": List("/runtime/budgets", add_limit, (
        "kind=tokens", "period=day", f"agentId={uuid4()}",
    ), role="admin", key="limit"),
    "listPrices": List("/runtime/prices", add_price, (
        "subject=m1", "unit=output_token",
    ), role="admin", key="version"),
}  # fmt: skip
# Closed and short: all of it is one answer.
WHOLE = {"listWorkflows", "listHeldCauses"}

# Filters that leave none out here: they name everything, or narrow nothing.
ALL_OF_THEM = {"count=estimate"}

QUERIES = {
    operation["operationId"]: [p for p in operation.get("parameters", []) if p["in"] == "query"]
    for path in openapi()["paths"].values()
    for operation in path.values()
    if operation["operationId"].startswith("list")
}
each_list = pytest.mark.parametrize("name", LISTS)


def allowed(name: str, parameter: str) -> list[str]:
    """Return the values that the reference allows for a parameter of a list."""
    (found,) = [p for p in QUERIES[name] if p["name"] == parameter]
    return list(found["schema"]["enum"])


@pytest.fixture
def world() -> World:
    return make_world()


def ask(world: World, name: str) -> tuple[Api, str]:
    found = LISTS[name]
    return api_of(world.tenant, found.role), world.path(found.path)


def fill(world: World, name: str, numbers: range) -> None:
    for n in numbers:
        LISTS[name].add(world, n)


def walk(
    api: Api, path: str, after_first: Callable[[], None] = lambda: None
) -> list[dict[str, Any]]:
    """Return the rows of all pages, of three rows each; something happens after the first."""
    rows: list[dict[str, Any]] = []
    cursor = ""
    while True:
        answer = api.get(f"{path}{'&' if '?' in path else '?'}limit=3{cursor}")
        assert answer.status_code == 200, answer.content
        body = answer.json()
        rows += body["items"]
        if body["nextCursor"] is None:
            return rows
        if not cursor:
            after_first()
        cursor = f"&cursor={body['nextCursor']}"


def test_every_list_is_here() -> None:
    """A list that is added to the routes is missing here until it is walked."""
    assert LISTS.keys() | WHOLE == QUERIES.keys()


@each_list
def test_every_filter_is_asked(name: str) -> None:
    """What the reference offers is what the tests below ask for."""
    offered = {p["name"] for p in QUERIES[name]} - {"limit", "cursor", "sort"}
    assert offered == {query.partition("=")[0] for query in LISTS[name].filters}


@each_list
def test_default_order_is_the_one_that_is_told(name: str) -> None:
    """The order that the reference calls the default is the first of the list's orders."""
    (found,) = [p for p in QUERIES[name] if p["name"] == "sort"]
    assert found["schema"]["default"] == found["schema"]["enum"][0]


@each_list
def test_pages_hold_every_row_once_while_rows_come(world: World, name: str) -> None:
    """U40: in each order; rows that are added between the pages move none of the others."""
    fill(world, name, range(5))
    api, path = ask(world, name)
    key = LISTS[name].key
    there = {row[key] for row in api.get(path).json()["items"]}
    assert len(there) >= 5
    seen: dict[str, list[Any]] = {}
    for n, order in enumerate(allowed(name, "sort"), start=5):
        rows = walk(api, f"{path}?sort={order}", partial(LISTS[name].add, world, n))
        found = [row[key] for row in rows]
        assert len(found) == len(set(found)), order
        seen[order] = [row for row in found if row in there]
        assert set(seen[order]) == there, order
    for order in seen.keys() - {"priority"}:
        if f"-{order}" in seen:
            assert seen[order] == seen[f"-{order}"][::-1]


@each_list
def test_filters_leave_rows_out(world: World, name: str) -> None:
    """Each gives some of the rows, in pages as in one."""
    fill(world, name, range(6))
    api, path = ask(world, name)
    key = LISTS[name].key
    every = {row[key] for row in api.get(f"{path}?limit=200").json()["items"]}
    for query in LISTS[name].filters:
        found = [row[key] for row in walk(api, f"{path}?{query}")]
        assert len(found) == len(set(found))
        if query in ALL_OF_THEM:
            assert set(found) == every
        else:
            assert set(found) < every, query


@each_list
def test_what_is_not_offered_is_refused(world: World, name: str) -> None:
    """U37: 400 `invalid_query` that names the parameter; a cursor opens no other list (S128)."""
    fill(world, name, range(4))
    api, path = ask(world, name)
    cursor = api.get(f"{path}?limit=2").json()["nextCursor"]
    stranger, elsewhere = ask(make_world(), name)
    last, narrowed = allowed(name, "sort")[-1], LISTS[name].filters[0]
    for caller, address, pointer, code in (
        (api, f"{path}?colour=red", "?colour", "unknown_field"),
        (api, f"{path}?limit=0", "?limit", "greater_than_equal"),
        (api, f"{path}?limit=201", "?limit", "less_than_equal"),
        (api, f"{path}?limit=1&limit=2", "?limit", "repeated"),
        (api, f"{path}?sort=colour", "?sort", "literal_error"),
        (api, f"{path}?sort=", "?sort", "literal_error"),
        (api, f"{path}?cursor=nonsense", "?cursor", "invalid_cursor"),
        (api, f"{path}?cursor={cursor[:-2]}xx", "?cursor", "invalid_cursor"),
        (api, f"{path}?sort={last}&cursor={cursor}", "?cursor", "invalid_cursor"),
        (api, f"{path}?{narrowed}&cursor={cursor}", "?cursor", "invalid_cursor"),
        (stranger, f"{elsewhere}?cursor={cursor}", "?cursor", "invalid_cursor"),
    ):
        answer = caller.get(address)
        body = answer.json()
        assert (answer.status_code, body["code"]) == (400, "invalid_query"), address
        assert [(item["pointer"], item["code"]) for item in body["errors"]] == [(pointer, code)]


@pytest.mark.parametrize("query", [
    "status=", "status=paused,,queued", "status=busy", "priority=10", "priority=x",
    "createdAfter=yesterday", "createdAfter=0001-01-01T00:00:00%2B14:00", "createdAfter=2026-01-01T00:00:00", "threadId=1", "count=all",
])  # fmt: skip
def test_unfit_values_are_refused(world: World, query: str) -> None:
    """A value outside the reference is never taken for "all"."""
    api, path = ask(world, "listTasks")
    answer = api.get(f"{path}?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_query")


def test_several_values_are_any_of_them(world: World) -> None:
    """In whatever order they stand, the list and its cursors are the same."""
    fill(world, "listTasks", range(4))
    make_task(tenant=world.tenant, status="completed", receipt_id=uuid4())
    api, path = ask(world, "listTasks")
    first = api.get(f"{path}?status=queued,paused&limit=2").json()
    rest = api.get(f"{path}?status=paused,queued&limit=2&cursor={first['nextCursor']}").json()
    states = [row["status"] for row in first["items"] + rest["items"]]
    assert sorted(states) == ["paused", "paused", "queued", "queued"]


def test_needs_me_is_what_waits_for_the_caller(world: World) -> None:
    """An approval that I may decide, a question that I may answer, a task that I may repair."""
    question = make_task(tenant=world.tenant, initiator=world.owner, status="input_required")
    held = make_task(tenant=world.tenant, status="dead_lettered", held_at=timezone.now())
    make_task(tenant=world.tenant)
    wanted = {
        "viewer": set(),
        "approver": {world.task.id},
        "operator": {question.id, held.id},
    }
    for role, tasks in wanted.items():
        found = api_of(world.tenant, role).get("/runtime/tasks?needsMe=true").json()["items"]
        assert {row["taskId"] for row in found} == {str(task) for task in tasks}, role
    _, text = make_api_key(world.tenant, world.owner, ("tasks:read", "tasks:steer"))
    own = Api(text, world.owner).get("/runtime/tasks?needsMe=true").json()["items"]
    assert [row["taskId"] for row in own] == [str(question.id)]


def test_count_is_an_estimate_that_is_asked_for(world: World) -> None:
    """U40: no totals unless they are asked for; then about how many the planner sees."""
    api, path = ask(world, "listTasks")
    assert "estimate" not in api.get(path).json()
    assert api.get(f"{path}?count=estimate").json()["estimate"] >= 0


def test_a_query_offers_what_its_list_narrows_by() -> None:
    """No filter can be forgotten at the door."""
    models = [
        model
        for model in vars(lists).values()
        if isinstance(model, type) and issubclass(model, lists.ListQuery)
    ]
    models.remove(lists.ListQuery)
    assert len(models) == len(LISTS)
    for model in models:
        narrowed = {item.name for item in fields(model.FILTERS)}
        assert narrowed <= model.model_fields.keys(), model
        assert model.model_fields.keys() - narrowed <= {"limit", "cursor", "count"}
