"""Webhooks over REST and the run door: who may name which address, what is shown and what is not."""

from typing import Any

import pytest
from pytest_django import Settings

from tasks_app.models import Run, Task, WebhookDelivery, WebhookEndpoint
from tests.api.calls import Api, api_of, task_body
from tests.support.engine import Engine

pytestmark = pytest.mark.django_db

HOOK = "https://hooks.example.org/perdure"
RUN: dict[str, Any] = {
    "assistant_id": "scripted",
    "input": {"script": [{"op": "say", "text": "x"}]},
}


@pytest.fixture
def engine(settings: Settings) -> Engine:
    hosts = ("hooks.example.org", "*.example.net", "other.example.org:8443")
    private = ("10.0.0.7", "inside:8080")
    settings.RUNTIME = {
        **settings.RUNTIME, "webhook_hosts": hosts, "webhook_private_hosts": private
    }  # fmt: skip
    return Engine()


@pytest.fixture
def admin(engine: Engine) -> Api:
    return api_of(engine.tenant, "admin")


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example.org/x?y=1", "https://hooks.example.org:443/", "https://a.example.net/",
        "https://other.example.org:8443/", "http://10.0.0.7/", "https://10.0.0.7/", "http://inside:8080",
    ],
)  # fmt: skip
def test_listed_hosts_are_taken(engine: Engine, url: str) -> None:
    """By both doors; the address is kept whole with the task, without its query as an endpoint."""
    door = api_of(engine.tenant, "submitter")
    made = [
        door.post("/runtime/tasks", task_body(webhook=url)),
        door.post("/api/runs", {**RUN, "webhook": url}),
    ]
    assert [answer.status_code for answer in made] == [201, 200], made[0].content
    tasks = Task.objects.for_tenant(engine.tenant.id)
    assert set(tasks.values_list("webhook_url", flat=True)) == {url}
    endpoint = WebhookEndpoint.objects.for_tenant(engine.tenant.id).get()
    assert (endpoint.url, endpoint.hears_all) == (url.partition("?")[0], False)
    assert url not in "".join(answer.content.decode() for answer in made)


@pytest.mark.parametrize(
    "url",
    [
        "https://elsewhere.example.org/", "https://example.net/", "http://hooks.example.org/",
        "https://hooks.example.org:8443/", "https://other.example.org/", "https://hooks.example.org./",
        "https://hooks.example.org@10.0.0.8/", "https://u:p@hooks.example.org/",
        "https://hooks.example.org/#x", "https://169.254.169.254/", "https://[::ffff:a9fe:a9fe]/",
        "https://2130706433/", "https://0x7f.1/", "https://localhost/", "https://10.0.0.7:1/",
        "ftp://hooks.example.org/", "hooks.example.org", "https://", "https://hooks.example.org:x/",
        "https://hooks.example.org\\@10.0.0.7/", "https://hooks.example.org/\n", "https://höoks.example.org/",
        "https://hooks.example.org/" + "x" * 2000,
    ],
)  # fmt: skip
def test_other_addresses_are_refused(engine: Engine, url: str) -> None:
    """R11, A25: 422 before anything is stored."""
    door = api_of(engine.tenant, "submitter")
    mine = door.post("/runtime/tasks", task_body(webhook=url))
    theirs = door.post("/api/runs", {**RUN, "webhook": url})
    assert (mine.status_code, theirs.status_code) == (422, 422)
    assert [problem["pointer"] for problem in mine.json()["errors"]] == ["/webhook"]
    assert theirs.json()["detail"] == "Run option 'webhook' is not supported"
    assert not Task.objects.for_tenant(engine.tenant.id).exists()
    assert not WebhookEndpoint.objects.for_tenant(engine.tenant.id).exists()


def test_nothing_is_taken_where_no_host_is_listed(engine: Engine, settings: Settings) -> None:
    """The default of an installation."""
    settings.RUNTIME = {**settings.RUNTIME, "webhook_hosts": (), "webhook_private_hosts": ()}
    door = api_of(engine.tenant, "submitter")
    assert door.post("/api/runs", {**RUN, "webhook": HOOK}).status_code == 422
    assert door.post("/api/runs", {**RUN, "webhook": None}).status_code == 200


def test_refused_run_leaves_no_endpoint(engine: Engine) -> None:
    """R29: also when the refusal comes in the transaction."""
    door = api_of(engine.tenant, "submitter")
    path = "/api/threads/talk/runs"
    assert door.post(path, {**RUN, "if_not_exists": "create"}).status_code == 200
    assert door.post(path, {**RUN, "webhook": HOOK}).status_code == 409
    assert not WebhookEndpoint.objects.for_tenant(engine.tenant.id).exists()
    assert Run.objects.for_tenant(engine.tenant.id).count() == 1


def test_another_webhook_is_another_request(engine: Engine) -> None:
    """An idempotency key stands for the address, too."""
    door = api_of(engine.tenant, "submitter")
    first = door.post("/runtime/tasks", task_body(webhook=HOOK), Idempotency_Key="k")
    again = door.post("/runtime/tasks", task_body(webhook=HOOK), Idempotency_Key="k")
    other = door.post("/runtime/tasks", task_body(), Idempotency_Key="k")
    assert [one.status_code for one in (first, again, other)] == [201, 200, 409]


def test_secret_is_shown_when_it_is_made_and_never_again(admin: Api) -> None:
    """Not in lists, and not the same for two endpoints or two rotations."""
    made = [
        admin.post("/runtime/webhooks", {"url": HOOK}),
        admin.post("/runtime/webhooks", {"url": HOOK + "/2", "allTasks": False}),
    ]
    place = f"/runtime/webhooks/{made[0].json()['id']}"
    made.append(admin.post(f"{place}/rotate", {"reason": "it leaked"}))
    assert [one.status_code for one in made] == [201, 201, 201]
    assert {one["Cache-Control"] for one in made} == {"no-store"}
    secrets = [one.json()["secret"] for one in made]
    assert len(set(secrets)) == 3
    assert all(secret.startswith("whsec_") for secret in secrets)
    listed = admin.get("/runtime/webhooks")
    assert "secret" not in listed.content.decode()
    assert [(row["url"], row["allTasks"]) for row in listed.json()["items"]] == [
        (HOOK + "/2", False), (HOOK, True)
    ]  # fmt: skip


def test_endpoint_with_a_query_is_refused(admin: Api) -> None:
    """What stands there is one task's."""
    answer = admin.post("/runtime/webhooks", {"url": HOOK + "?a=1"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/url")


def test_switched_off_endpoint_is_owed_nothing(engine: Engine, admin: Api) -> None:
    """What it was owed waits, and its list says so."""
    place = f"/runtime/webhooks/{admin.post('/runtime/webhooks', {'url': HOOK}).json()['id']}"
    engine.steer(engine.submit(), "cancel")
    off = admin.post(f"{place}/disable", {"reason": "too loud"}).json()
    assert (off["disabledReason"], off["disabledAt"] is None) == ("too loud", False)
    engine.steer(engine.submit(), "cancel")
    [told] = admin.get(f"{place}/deliveries").json()["items"]
    assert (told["state"], told["status"], told["nextTryAt"]) == ("held", "cancelled", None)
    on = admin.post(f"{place}/enable", {"reason": "better now"}).json()
    assert on["disabledAt"] is None
    [told] = admin.get(f"{place}/deliveries").json()["items"]
    assert told["state"] == "pending"
    assert WebhookDelivery.objects.for_tenant(engine.tenant.id).count() == 1


def test_fork_of_a_held_task_tells_the_same(engine: Engine) -> None:
    """Who waited for the first one hears of the second."""
    broken = {"op": "fail", "error": "Broken", "message": "boo", "on_failure": "ask"}
    task_id = engine.submit(broken, webhook=HOOK)
    engine.drive(task_id)
    engine.repair(task_id, "fork")
    tasks = Task.objects.for_tenant(engine.tenant.id)
    assert list(tasks.values_list("webhook_url", flat=True)) == [HOOK, HOOK]
