"""S127: how often somebody may ask, on every door; and what happens while Redis is away."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.conf import settings as django_settings
from django.test import Client
from pytest_django import Settings

from tasks_app.admission import throttles
from tasks_app.admission.principal import from_user
from tasks_app.admission.throttles import Rate, rate_of
from tasks_app.domain.errors import TooManyRequestsError
from tasks_app.models import Task
from tests.api.calls import Api, api_of, task_body
from tests.factories import PASSWORD, make_api_key, make_member, make_tenant, make_user
from tests.support.engine import Engine

pytestmark = pytest.mark.django_db

RUN: dict[str, Any] = {
    "assistant_id": "scripted",
    "input": {"script": [{"op": "say", "text": "x"}]},
}


@pytest.fixture(autouse=True)
def _counted(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttles, "_away_until", 0.0)
    limit(settings)


def limit(settings: Settings, **rates: int) -> None:
    settings.RUNTIME = {**settings.RUNTIME, "throttle": True, "requests_per_minute": rates}


def redis_client() -> redis.Redis:
    options: Any = django_settings.THROTTLE_REDIS
    return redis.Redis(**options)


def statuses(answers: list[Any]) -> list[int]:
    return [answer.status_code for answer in answers]


def test_answers_say_what_is_left(settings: Settings) -> None:
    """The bucket's size, and how much is in it."""
    limit(settings, read=600)
    answer = api_of(make_tenant(), "viewer").get("/runtime/tasks")
    assert answer["RateLimit-Policy"] == '"read";q=600;w=60'
    assert answer["RateLimit"] == '"read";r=599'


@pytest.mark.parametrize(
    ("rate", "path", "body"),
    [
        ("read", "/runtime/tasks", None),
        ("read", "/api/threads/search", {}),
        ("read", "/api/assistants/scripted", None),
        ("create", "/runtime/tasks", task_body()),
        ("create", "/api/runs", RUN),
        ("write", "/runtime/commands", {}),
        ("write", "/api/runs/cancel", {}),
    ],
)
def test_one_too_many_is_told_when_to_come_back(
    settings: Settings, rate: str, path: str, body: Any
) -> None:
    """By both doors, with a stable code and Retry-After; other kinds of requests go on."""
    limit(settings, **{rate: 2})
    api = api_of(make_tenant(), "submitter", "operator", "admin")

    def ask() -> Any:
        return api.get(path) if body is None else api.post(path, body)

    first = [ask(), ask()]
    assert 429 not in statuses(first)
    refused = ask()
    assert refused.status_code == 429
    problem = refused.json()
    assert (problem["code"], problem["rate"]) == ("too_many_requests", rate)
    # Two a minute: the next one comes after half of it.
    assert int(refused["Retry-After"]) == problem["retryAfterSeconds"] in range(20, 31)
    other = (
        api.get("/runtime/whoami") if rate != "read" else api.post("/runtime/tasks", task_body())
    )
    assert other.status_code in {200, 201}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", ["/api/runs/wait", "/api/runs/stream"])
def test_open_answers_are_counted(settings: Settings, path: str) -> None:
    """Refused before a run is made."""
    limit(settings, create=1)
    tenant = make_tenant()
    api = api_of(tenant, "submitter")
    answers = [api.post(path, RUN), api.post(path, RUN)]
    assert statuses(answers) == [200, 429]
    assert answers[0]["RateLimit"] == '"create";r=0'
    assert answers[1].json()["code"] == "too_many_requests"
    answers[0].close()
    assert Task.objects.for_tenant(tenant.id).count() == 1


def test_keys_of_one_person_share_what_there_is(settings: Settings) -> None:
    """Who makes more keys may not ask more often."""
    limit(settings, read=2)
    tenant = make_tenant()
    person = make_member(tenant, "viewer")
    keys = [make_api_key(tenant, person)[1] for _ in range(3)]
    answers = [Api(key).get("/runtime/tasks") for key in keys]
    assert statuses(answers) == [200, 200, 429]


def test_forwarding_headers_buy_nothing(settings: Settings) -> None:
    """A44: who varies them is the same person."""
    limit(settings, read=2)
    api = api_of(make_tenant(), "viewer")
    answers = [api.get("/runtime/tasks", X_Forwarded_For=f"192.0.2.{n}") for n in range(3)]
    assert statuses(answers) == [200, 200, 429]


def test_people_of_a_tenant_have_a_limit_together(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody of another tenant notices."""
    limit(settings, read=2)
    monkeypatch.setattr(throttles, "TENANT_FACTOR", 2)
    tenant = make_tenant()
    people = [api_of(tenant, "viewer") for _ in range(3)]
    answers = [api.get("/runtime/tasks") for api in people for _ in range(2)]
    assert statuses(answers) == [200] * 4 + [429] * 2
    assert api_of(make_tenant(), "viewer").get("/runtime/tasks").status_code == 200


def test_threads_at_once_get_no_more(settings: Settings) -> None:
    """A44: eight threads, one bucket of ten."""
    limit(settings, write=10)
    tenant = make_tenant()
    principal = from_user(make_member(tenant, "submitter"), tenant.id)
    passed: list[int] = []
    barrier = threading.Barrier(8)

    def ask() -> None:
        barrier.wait(30)
        for n in range(10):
            try:
                throttles.charge(principal, Rate.WRITE)
            except TooManyRequestsError:
                continue
            passed.append(n)

    askers = [threading.Thread(target=ask) for _ in range(8)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(60)
    # A bucket of ten gets one more every six seconds: a slow machine may see some of them.
    assert 10 <= len(passed) <= 20


def test_bucket_fills_again(settings: Settings) -> None:
    """Evenly: half a minute brings half of it."""
    limit(settings, read=4)
    tenant = make_tenant()
    api = api_of(tenant, "viewer")
    assert statuses([api.get("/runtime/tasks") for _ in range(5)]) == [200] * 4 + [429]
    client = redis_client()
    for key in client.scan_iter(f"{tenant.id}:throttle:read*"):
        client.hincrbyfloat(key, "at", -30)
    assert statuses([api.get("/runtime/tasks") for _ in range(3)]) == [200, 200, 429]


def test_keys_in_redis_begin_with_the_tenant() -> None:
    """S31, and none of them stays."""
    tenant = make_tenant()
    api_of(tenant, "viewer").get("/runtime/tasks")
    client = redis_client()
    keys = list(client.scan_iter("*:throttle:*"))
    mine = [key for key in keys if key.decode().startswith(str(tenant.id))]
    assert len(mine) == 2
    assert all(0 < client.ttl(key) <= 61 for key in mine)


@pytest.fixture
def away(settings: Settings) -> None:
    """Redis is not there."""
    settings.THROTTLE_REDIS = {"unix_socket_path": "/nowhere/redis.sock"}
    throttles._script.cache_clear()


@pytest.fixture(autouse=True)
def _same_redis_afterwards() -> Iterator[None]:
    script = throttles._script
    yield
    script.cache_clear()


def test_reading_goes_on_without_redis(settings: Settings, away: None) -> None:
    """Nothing is counted, and nothing is said of it."""
    limit(settings, read=1)
    api = api_of(make_tenant(), "viewer")
    answers = [api.get("/runtime/tasks") for _ in range(3)]
    assert statuses(answers) == [200] * 3
    assert "RateLimit" not in answers[0].headers


def test_new_tasks_are_counted_in_the_database_without_redis(
    settings: Settings, away: None
) -> None:
    """One's own of the last minute; other people's do not count."""
    limit(settings, create=2)
    tenant = make_tenant()
    api, other = api_of(tenant, "submitter"), api_of(tenant, "submitter")
    answers = [api.post("/runtime/tasks", task_body()) for _ in range(3)]
    assert statuses(answers) == [201, 201, 429]
    assert api.post("/api/runs", RUN).status_code == 429
    assert other.post("/runtime/tasks", task_body()).status_code == 201


def test_redis_that_is_away_is_not_asked_again_at_once(
    settings: Settings, away: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it at every request; after a while it is asked again."""
    engine = Engine()
    throttles.charge(engine.submitter, Rate.READ)
    asked = []
    monkeypatch.setattr(throttles, "_script", lambda: asked.append(1))
    throttles.charge(engine.submitter, Rate.READ)
    assert asked == []
    monkeypatch.setattr(throttles, "_away_until", 0.0)
    with pytest.raises(TypeError):
        throttles.charge(engine.submitter, Rate.READ)
    assert asked == [1]


def test_nobody_is_counted_unless_it_is_switched_on(settings: Settings) -> None:
    """Demo and tests."""
    limit(settings, read=1)
    settings.RUNTIME = {**settings.RUNTIME, "throttle": False}
    api = api_of(make_tenant(), "viewer")
    assert statuses([api.get("/runtime/tasks") for _ in range(3)]) == [200] * 3


def test_guessing_passwords_is_slow(settings: Settings) -> None:
    """By person and address: the right password does not help then, elsewhere it does."""
    limit(settings, login=3)
    user = make_user()

    def sign_in(password: str, address: str = "192.0.2.1") -> Any:
        posted = {"username": user.username, "password": password}
        return Client(REMOTE_ADDR=address).post("/login/", posted)

    assert statuses([sign_in("wrong") for _ in range(3)]) == [200] * 3
    refused = sign_in(PASSWORD)
    assert refused.status_code == 200
    assert "Too many tries" in refused.content.decode()
    assert sign_in(PASSWORD, "192.0.2.2").status_code == 302


@pytest.mark.parametrize(
    ("method", "needs", "rate"),
    [
        ("GET", "tasks:read", Rate.READ),
        ("HEAD", None, Rate.READ),
        ("POST", "tasks:read", Rate.READ),
        ("POST", "tasks:create", Rate.CREATE),
        ("PATCH", "tasks:create", Rate.WRITE),
        ("POST", ("tasks:steer", "tasks:cancel"), Rate.WRITE),
        ("POST", "approvals:decide", Rate.APPROVALS),
        ("POST", None, Rate.WRITE),
    ],
)
def test_routes_count_as_what_they_need(method: str, needs: Any, rate: Rate) -> None:
    """The kinds of the contract, from what each route declares."""
    assert rate_of(method, needs) is rate


def test_settings_know_the_kinds(settings: Settings) -> None:
    """A misspelt kind stops the process instead of counting nothing."""
    assert list(settings.REQUEST_KINDS) == list(Rate)
