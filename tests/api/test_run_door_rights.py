"""Every route of the run door × every role × own and other tenant, compared with the table of rights."""

import json
import uuid
from dataclasses import dataclass
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern
from typing_extensions import override

from tasks_app.admission import runs, threads
from tasks_app.admission.principal import from_user
from tasks_app.api.base import SIGNED_IN
from tasks_app.api.langgraph import urls
from tasks_app.domain.run_bodies import parse
from tasks_app.models import Run, ThreadState
from tasks_app.models.access import ROLES
from tests.api.calls import Api, api_of, without_id
from tests.api.test_sweep import Route, caller, expected, undone
from tests.api.world import World, make_world
from tests.factories import make_tenant

RUN: dict[str, Any] = {
    "assistant_id": "scripted",
    "input": {"script": [{"op": "say", "text": "x"}]},
}
LATER = {**RUN, "multitask_strategy": "enqueue"}
MANY = {"status": "all"}
THREAD, OF_RUN = "/api/threads/{thread}", "/api/threads/{thread}/runs/{run}"


@dataclass(frozen=True)
class DoorRoute(Route):
    """One way in, by any method."""

    verb: str = ""

    @property
    @override
    def method(self) -> str:
        return self.verb or super().method

    @override
    def call(self, api: Api, path: str) -> Any:
        answer = api.client.generic(
            self.method,
            path,
            "" if self.body is None else json.dumps(self.body),
            content_type="application/json",
            headers=api.headers(),
        )
        if answer.streaming:
            answer.close()
        return answer


# A run is at work in the thread: what needs it to have ended is refused to those who may, with 409.
ROUTES = (
    DoorRoute("/api/info", SIGNED_IN, 200),
    DoorRoute("/api/assistants/search", SIGNED_IN, 200, {}),
    DoorRoute("/api/assistants/count", SIGNED_IN, 200, {}),
    DoorRoute("/api/assistants/{assistant}", SIGNED_IN, 200),
    DoorRoute("/api/assistants/{assistant}/graph", SIGNED_IN, 200),
    DoorRoute("/api/assistants/{assistant}/schemas", SIGNED_IN, 200),
    DoorRoute("/api/threads", "tasks:create", 200, {}),
    DoorRoute("/api/threads/search", "tasks:read", 200, {}),
    DoorRoute("/api/threads/count", "tasks:read", 200, {}),
    DoorRoute(THREAD, "tasks:read", 200),
    DoorRoute(THREAD, "tasks:create", 200, {"metadata": {"a": 1}}, owner_only=True, verb="PATCH"),
    DoorRoute(THREAD, "tasks:create", 409, None, owner_only=True, verb="DELETE"),
    DoorRoute(f"{THREAD}/state", "tasks:read", 200),
    DoorRoute(f"{THREAD}/state", "tasks:create", 409, {"values": {"a": 1}}, owner_only=True),
    DoorRoute(f"{THREAD}/state/checkpoint", "tasks:read", 200, {"checkpoint": {}}),
    DoorRoute(f"{THREAD}/state/{{checkpoint}}", "tasks:read", 200),
    DoorRoute(f"{THREAD}/history", "tasks:read", 200),
    DoorRoute(f"{THREAD}/history", "tasks:read", 200, {}),
    DoorRoute(f"{THREAD}/messages", "tasks:read", 200),
    DoorRoute(f"{THREAD}/messages/page", "tasks:read", 200),
    DoorRoute(f"{THREAD}/token-usage", "tasks:read", 200),
    DoorRoute(f"{THREAD}/runs", "tasks:read", 200),
    DoorRoute(f"{THREAD}/runs", "tasks:create", 200, LATER),
    DoorRoute(f"{THREAD}/runs/page", "tasks:read", 200),
    DoorRoute(OF_RUN, "tasks:read", 200),
    DoorRoute(OF_RUN, "tasks:cancel", 409, None, verb="DELETE"),
    DoorRoute(f"{OF_RUN}/messages", "tasks:read", 200),
    DoorRoute(f"{OF_RUN}/events", "tasks:read", 200),
    DoorRoute(f"{OF_RUN}/workspace-changes", "tasks:read", 200),
    DoorRoute("/api/runs", "tasks:create", 200, RUN),
    DoorRoute("/api/runs/batch", "tasks:create", 200, [RUN]),  # type: ignore[arg-type]
    DoorRoute("/api/runs/cancel", "tasks:cancel", 204, MANY),
    DoorRoute("/api/runs/{run}/messages", "tasks:read", 200),
)
# Answers that stay open; they give their database connection back and so need real commits.
OPEN_ROUTES = (
    DoorRoute(f"{THREAD}/runs/stream", "tasks:create", 200, LATER),
    DoorRoute(f"{THREAD}/runs/wait", "tasks:create", 200, LATER),
    DoorRoute("/api/runs/stream", "tasks:create", 200, RUN),
    DoorRoute("/api/runs/wait", "tasks:create", 200, RUN),
    DoorRoute(f"{OF_RUN}/stream", "tasks:read", 200),
    DoorRoute(f"{OF_RUN}/stream", "tasks:read", 200, {}),
    DoorRoute(f"{OF_RUN}/join", "tasks:read", 200),
    DoorRoute("/api/runs/{run}/stream", "tasks:read", 200),
    DoorRoute("/api/runs/{run}/stream", "tasks:read", 200, {}),
    DoorRoute(f"{OF_RUN}/cancel", "tasks:cancel", 202, {}),
)
ELSEWHERE = {"ok", "nothing"}
NOBODYS = {
    "thread": "nowhere", "assistant": "nobody",
    "run": str(uuid.UUID(int=1)), "checkpoint": str(uuid.UUID(int=2)),
}  # fmt: skip
PEOPLE = [("owner", "submitter"), *((kind, role) for kind in ("own", "other") for role in ROLES)]


@dataclass(frozen=True)
class Conversation:
    """A thread with a state that a client wrote and a run that waits for a worker."""

    world: World
    names: dict[str, str]

    def path(self, route: Route) -> str:
        return route.path.format(**self.names)


def make_conversation() -> Conversation:
    world = make_world()
    principal = from_user(world.owner, world.tenant.id)
    key = threads.create_thread(principal, key=None, metadata={}).key
    threads.write_state(principal, key=key, values={"a": 1})
    state = ThreadState.objects.for_tenant(world.tenant.id).get()
    made = runs.create_run(principal, thread_key=key, body=parse(RUN))
    names = {"thread": key, "run": made.task_id, "checkpoint": state.id, "assistant": "scripted"}
    return Conversation(world, {name: str(value) for name, value in names.items()})


def wrong_answers(
    conversation: Conversation, api: Api, routes: tuple[DoorRoute, ...], kind: str, role: str
) -> list[Any]:
    wrong = []
    for route in routes:
        with undone():
            answer = route.call(api, conversation.path(route))
        wanted = expected(route, role, own_tenant=kind != "other", owner=kind == "owner")
        if answer.status_code != wanted:
            wrong.append((route.method, route.path, wanted, answer.status_code))
    return wrong


@pytest.mark.slow
@pytest.mark.django_db
@pytest.mark.parametrize(("kind", "role"), PEOPLE)
def test_routes_answer_as_the_table_says(kind: str, role: str) -> None:
    """S13: each route, for a member, for one of another tenant, and for who made the thread."""
    conversation = make_conversation()
    api = caller(conversation.world, role, kind)
    assert wrong_answers(conversation, api, ROUTES, kind, role) == []


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("kind", "role"), PEOPLE)
def test_open_routes_answer_as_the_table_says(kind: str, role: str) -> None:
    """The same for answers that stay open; nobody reads them here."""
    conversation = make_conversation()
    api = caller(conversation.world, role, kind)
    wrong = []
    for route in OPEN_ROUTES:
        answer = route.call(api, conversation.path(route))
        wanted = expected(route, role, own_tenant=kind != "other", owner=kind == "owner")
        if answer.status_code != wanted:
            wrong.append((route.method, route.path, wanted, answer.status_code))
    assert wrong == []
    if not any(answered == "tasks:cancel" for answered in _held(kind, role)):
        rows = Run.objects.for_tenant(conversation.world.tenant.id)
        assert not rows.exclude(cancel_action="").exists()


def _held(kind: str, role: str) -> list[str]:
    cancel = OPEN_ROUTES[-1]
    status = expected(cancel, role, own_tenant=kind != "other", owner=kind == "owner")
    return [cancel.capability] if status == cancel.status else []


@pytest.mark.django_db
@pytest.mark.parametrize("role", ROLES)
def test_another_tenants_thread_is_like_none(role: str) -> None:
    """A1: same status and body as for a name that nobody has."""
    conversation = make_conversation()
    api = api_of(make_tenant(), role)
    for route in ROUTES:
        if not route.has_object or route.capability == SIGNED_IN:
            continue
        with undone():
            foreign = route.call(api, conversation.path(route))
            nothing = route.call(api, route.path.format(**NOBODYS))
        assert foreign.status_code == nothing.status_code, route
        assert foreign.status_code in {403, 404}
        assert without_id(foreign) == without_id(nothing)


def require_refused(routes: tuple[DoorRoute, ...]) -> None:
    for route in routes:
        answer = route.call(Api(), route.path.format(**NOBODYS))
        assert answer.status_code == 401, route
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert without_id(answer)["code"] == "unauthenticated"


@pytest.mark.django_db
def test_routes_refuse_who_has_no_credential() -> None:
    """Nobody gets anything, and every refusal looks the same."""
    require_refused(ROUTES)


@pytest.mark.django_db(transaction=True)
def test_open_routes_refuse_who_has_no_credential() -> None:
    """The same before an answer is opened."""
    require_refused(OPEN_ROUTES)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("route", ["/api/runs", "/api/runs/wait", "/api/runs/stream"])
def test_sessions_show_their_token(route: str) -> None:
    """A browser's cookie alone starts nothing, by either kind of view."""
    world = make_world()
    client = Client(enforce_csrf_checks=True)
    client.force_login(world.owner)
    answer = client.post(route, json.dumps(RUN), content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (403, "csrf_failed")
    assert not Run.objects.for_tenant(world.tenant.id).exists()


def _place(pattern: URLPattern) -> str:
    place = str(pattern.pattern)
    for kind in ("str", "uuid"):
        place = place.replace(f"<{kind}:", "{")
    return "/api/" + place.replace("_id>", "}")


def test_sweep_visits_every_route_and_method() -> None:
    """What is added to the URLs is missing here until it is swept."""
    swept = {(route.path, route.method) for route in (*ROUTES, *OPEN_ROUTES)}
    declared = set()
    for pattern in urls.urlpatterns:
        if pattern.name in ELSEWHERE:
            continue
        view = getattr(pattern.callback, "view_class", None)
        methods = getattr(view or pattern.callback, "capabilities")  # noqa: B009 - both have it
        declared |= {(_place(pattern), method) for method in methods}
    assert declared == swept
