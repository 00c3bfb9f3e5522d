"""Every REST route × every role × own and other tenant, compared with the table of rights."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import transaction

from ledger_app.models import AuditEntry
from tasks_app.api import urls
from tasks_app.api.base import SIGNED_IN
from tasks_app.models.access import ROLES
from tasks_app.policy.capabilities import ALL, OWN, TABLE, sight_of
from tests.api.calls import ALL_SCOPES, Api, api_of, task_body, without_id
from tests.api.world import DIGEST, RANDOM_IDS, World, make_world
from tests.factories import make_api_key, make_tenant

pytestmark = pytest.mark.django_db

REASON = "because the sweep says so"


@dataclass(frozen=True)
class Route:
    """One way in. `body` None is a GET."""

    path: str
    capability: str
    status: int
    body: dict[str, Any] | None = None
    # Even who reaches all does it only with what is their own.
    owner_only: bool = False

    @property
    def method(self) -> str:
        return "GET" if self.body is None else "POST"

    @property
    def has_object(self) -> bool:
        return "{" in self.path

    def call(self, api: Api, path: str) -> Any:
        answer = api.get(path) if self.body is None else api.post(path, self.body)
        if answer.streaming:
            b"".join(answer.streaming_content)
        return answer


def steer(kind: str) -> dict[str, Any]:
    return {"type": kind, "expectedVersion": 1, "reason": REASON}


DECISION = {"decision": "approve", "argsSha256": DIGEST, "expectedVersion": 1, "reason": REASON}
REPAIR = {"verb": "requeue", "expectedVersion": 1, "reason": REASON}
PREVIEW = {"verb": "requeue", "cause": "too_many_recoveries", "dryRun": True}
PAUSE_ALL = {"type": "pause", "select": {}, "reason": REASON}
ROUTES = (
    Route("/runtime/tasks", "tasks:read", 200),
    Route("/runtime/tasks", "tasks:create", 201, task_body()),
    Route("/runtime/tasks/{task}", "tasks:read", 200),
    Route("/runtime/tasks/{task}/commands", "tasks:read", 200),
    Route("/runtime/tasks/{task}/commands", "tasks:steer", 202, steer("pause")),
    Route("/runtime/tasks/{task}/commands", "tasks:cancel", 202, steer("cancel")),
    Route("/runtime/tasks/{task}/repairs", "tasks:read", 200),
    # The task is not held: who may repair is told so, everybody else does not get that far.
    Route("/runtime/tasks/{task}/repairs", "deadletters:manage", 409, REPAIR),
    Route("/runtime/commands", "tasks:steer", 200, PAUSE_ALL),
    Route("/runtime/commands", "tasks:cancel", 200, {**PAUSE_ALL, "type": "cancel"}),
    Route("/runtime/repairs", "deadletters:manage", 200, PREVIEW),
    Route("/runtime/dead-letters", "tasks:read", 200),
    Route("/runtime/dead-letters/causes", "tasks:read", 200),
    Route("/runtime/tasks/{task}/steps", "tasks:read", 200),
    Route("/runtime/tasks/{task}/slices", "tasks:read", 200),
    Route("/runtime/tasks/{task}/attempts", "tasks:read", 200),
    Route("/runtime/threads", "tasks:read", 200),
    Route("/runtime/tasks/{task}/checkpoints", "tasks:read", 200),
    Route("/runtime/tasks/{task}/plans", "tasks:read", 200),
    Route("/runtime/tasks/{task}/effects", "ledger:read", 200),
    Route("/runtime/tasks/{task}/artifacts", "artifacts:read", 200),
    Route("/runtime/tasks/{task}/journal", "tasks:read", 200),
    Route("/runtime/tasks/{task}/audit", "tasks:read", 200),
    Route("/runtime/artifacts/{artifact}", "artifacts:read", 200),
    Route("/runtime/artifacts/{artifact}/content", "artifacts:read", 200),
    Route("/runtime/approvals", "approvals:read", 200),
    Route("/runtime/approvals/{approval}", "approvals:read", 200),
    Route("/runtime/approvals/{approval}/decision", "approvals:decide", 200, DECISION),
    Route("/runtime/workflows", SIGNED_IN, 200),
    Route("/runtime/whoami", SIGNED_IN, 200),
    Route("/runtime/budgets", "budgets:manage", 200),
    Route(
        "/runtime/budgets",
        "budgets:manage",
        200,
        {"kind": "tokens", "limit": 10**9, "reason": REASON},
    ),
    Route("/runtime/prices", "budgets:manage", 200),
    Route(
        "/runtime/prices",
        "budgets:manage",
        201,
        {"subject": "small", "unit": "call", "microsPerMillion": 1, "reason": REASON},
    ),
    Route("/runtime/schedules", "tasks:read", 200),
    Route(
        "/runtime/schedules",
        "tasks:create",
        201,
        {"name": "other", "workflow": "scripted", "goal": {"script": []}, "cron": "0 7 * * *"},
    ),
    Route("/runtime/schedules/{schedule}", "tasks:read", 200),
    Route("/runtime/schedules/{schedule}/pause", "tasks:steer", 200, {"reason": REASON}),
    Route("/runtime/schedules/{schedule}/resume", "tasks:steer", 200, {"reason": REASON}),
    Route(
        "/runtime/schedules/{schedule}/fire",
        "tasks:create",
        200,
        {"reason": REASON},
        owner_only=True,
    ),
    Route("/runtime/schedules/{schedule}/delete", "tasks:cancel", 204, {"reason": REASON}),
    Route("/runtime/webhooks", "webhooks:manage", 200),
    # No host may be called: who may make one is told so.
    Route("/runtime/webhooks", "webhooks:manage", 422, {"url": "https://hooks.example.org/"}),
    Route("/runtime/webhooks/{webhook}/rotate", "webhooks:manage", 201, {"reason": REASON}),
    Route("/runtime/webhooks/{webhook}/disable", "webhooks:manage", 200, {"reason": REASON}),
    Route("/runtime/webhooks/{webhook}/enable", "webhooks:manage", 200, {"reason": REASON}),
    Route("/runtime/webhooks/{webhook}/deliveries", "webhooks:manage", 200),
    Route("/runtime/keys", "keys:manage", 200),
    Route("/runtime/keys", "keys:manage", 201, {"name": "k", "scopes": ["tasks:read"]}),
    Route("/runtime/keys/{key}/rotate", "keys:manage", 201, {}, owner_only=True),
    Route("/runtime/keys/{key}/revoke", "keys:manage", 204, {"reason": REASON}),
    Route("/runtime/schema", SIGNED_IN, 200),
)
# Visited by tests of their own: a stream needs a server; these two are pages, not REST.
ELSEWHERE = {"events", "docs", "nothing"}


@contextmanager
def undone() -> Iterator[None]:
    """Take back what the requests inside wrote."""
    mark = transaction.savepoint()
    try:
        yield
    finally:
        transaction.savepoint_rollback(mark)


def expected(route: Route, role: str, *, own_tenant: bool, owner: bool) -> int:
    """Return the status that the table of rights asks for."""
    if route.capability == SIGNED_IN:
        return route.status
    reach = TABLE[role].get(route.capability)
    if not route.has_object:
        return route.status if reach else 403
    # What is acted on must be in sight first: 404 for what is not, 403 for what may not be done.
    sight = TABLE[role].get(sight_of(route.capability))
    if sight is None:
        return 403
    if not own_tenant or (sight == OWN and not owner):
        return 404
    reaches = owner if route.owner_only else reach == ALL or (reach == OWN and owner)
    return route.status if reaches else 403


def caller(world: World, role: str, kind: str) -> Api:
    if kind == "owner":
        _, text = make_api_key(world.tenant, world.owner, ALL_SCOPES)
        return Api(text, world.owner)
    return api_of(world.tenant if kind == "own" else make_tenant(), role)


@pytest.mark.parametrize(
    ("kind", "role"),
    [("owner", "submitter"), *((kind, role) for kind in ("own", "other") for role in ROLES)],
)
def test_routes_answer_as_the_table_says(kind: str, role: str) -> None:
    """S13: each route, for a member, for one of another tenant, and for who started the task."""
    world = make_world()
    api = caller(world, role, kind)
    wrong = []
    for route in ROUTES:
        with undone():
            answer = route.call(api, world.path(route.path))
        wanted = expected(route, role, own_tenant=kind != "other", owner=kind == "owner")
        if answer.status_code != wanted:
            wrong.append((route.method, route.path, wanted, answer.status_code, answer.content))
    assert not wrong, wrong


@pytest.mark.parametrize("role", ROLES)
def test_a1_another_tenants_object_is_like_none(role: str) -> None:
    """A1: by id, on every route: same status and body as a random uuid, and no trace in the audit."""
    world = make_world()
    api = api_of(make_tenant(), role)
    for route in (route for route in ROUTES if route.has_object):
        with undone():
            foreign = route.call(api, world.path(route.path))
            nothing = route.call(api, route.path.format(**RANDOM_IDS))
            assert not AuditEntry.objects.filter(stream__contains=str(world.task.id)).exists()
        assert foreign.status_code == nothing.status_code, route
        assert foreign.status_code in {403, 404}
        assert without_id(foreign) == without_id(nothing)


def test_sweep_visits_every_route() -> None:
    """A route that is added to the URLs is missing here until it is swept."""
    visited = {route.path.removeprefix("/runtime/") for route in ROUTES}
    names = {
        pattern.name: str(pattern.pattern).replace("<uuid:", "{").replace("_id>", "}")
        for pattern in urls.urlpatterns
    }
    assert visited == {path for name, path in names.items() if str(name) not in ELSEWHERE}


def test_sweep_visits_every_method() -> None:
    """Each method that a view has is one of the routes above."""
    swept = {(route.path.removeprefix("/runtime/"), route.method) for route in ROUTES}
    for pattern in urls.urlpatterns:
        view = getattr(pattern.callback, "view_class", None)
        if str(pattern.name) in ELSEWHERE or view is None:
            continue
        path = str(pattern.pattern).replace("<uuid:", "{").replace("_id>", "}")
        for method in ("get", "post", "put", "patch", "delete"):
            if hasattr(view, method):
                assert (path, method.upper()) in swept


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_routes_refuse_who_has_no_credential(route: Route) -> None:
    """Nobody gets anything, and every refusal looks the same."""
    answer = route.call(Api(), route.path.format(**RANDOM_IDS))
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert without_id(answer)["code"] == "unauthenticated"
