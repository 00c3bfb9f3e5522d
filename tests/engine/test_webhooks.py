"""Webhooks: owed in the commit of what they tell, one key for every try, never where they may not go."""

import json
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from hashlib import sha256
from hmac import digest
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from pytest_django import Settings

from ledger_app.queries import EffectRow, find_receipt, list_effects, list_open_effects
from runtime_project.local.processes import wait_until
from tasks_app.admission import webhooks as admission
from tasks_app.domain.errors import InvalidInputError, NotAllowedError
from tasks_app.domain.principal import Principal
from tasks_app.engine import delivery, webhooks
from tasks_app.models import Event, Task, WebhookDelivery, WebhookEndpoint
from tasks_app.tools import outbound
from tests.factories import set_tenant
from tests.support.engine import Engine
from tests.support.receiver import Heard, Receiver

SAY = {"op": "say", "text": "hello"}
ASK = {"op": "interrupt", "value": "go on?"}
BREAK = {"op": "fail", "error": "Broken", "message": "boo"}


@pytest.fixture
def receiver(settings: Settings) -> Iterator[Receiver]:
    with Receiver() as found:
        allow(settings, webhook_private_hosts=(found.host,), webhook_timeout_seconds=10.0)
        yield found


def allow(settings: Settings, **more: Any) -> None:
    settings.RUNTIME = {**settings.RUNTIME, **more}


def admin(engine: Engine) -> Principal:
    return engine.person("admin")


def deliveries(engine: Engine) -> list[WebhookDelivery]:
    return list(WebhookDelivery.objects.for_tenant(engine.tenant.id).order_by("id"))


def the_endpoint(engine: Engine) -> WebhookEndpoint:
    found: WebhookEndpoint = WebhookEndpoint.objects.for_tenant(engine.tenant.id).get()
    return found


def acts(engine: Engine, task_id: UUID) -> list[EffectRow]:
    return list_effects(tenant_id=engine.tenant.id, task_id=task_id)


def let_pass(seconds: float) -> None:
    """Move time by changing rows."""
    with connection.cursor() as cursor:
        for table, columns in (
            ("tasks_app_webhookdelivery", ("next_try_at",)),
            ("tasks_app_webhookendpoint", ("next_try_at", "previous_until")),
        ):
            past = "make_interval(secs => %(seconds)s)"
            sets = ", ".join(f"{column} = {column} - {past}" for column in columns)
            cursor.execute(f"UPDATE {table} SET {sets}", {"seconds": seconds})


def is_signed(heard: Heard, secret: str) -> bool:
    """Check a message as its receiver would."""
    signed = f"{heard.key}.{heard.headers['webhook-timestamp']}.".encode() + heard.body
    wanted = b64encode(digest(b64decode(secret.removeprefix("whsec_")), signed, "sha256"))
    return f"v1,{wanted.decode()}" in heard.headers["webhook-signature"].split()


def test_end_of_a_task_is_told_once(engine: Engine, receiver: Receiver) -> None:
    """Ids and status, nothing of goal or result; the ledger has it under the key that was sent."""
    task_id = engine.submit(SAY, webhook=receiver.url("/hook?token=abc"))
    assert not webhooks.send_all()
    task = engine.drive(task_id)
    assert webhooks.send_all() == 1
    assert webhooks.send_all() == 0
    [heard] = receiver.heard
    told = json.loads(heard.body)
    assert heard.path == "/hook?token=abc"
    assert told["type"] == "task.completed"
    assert told["data"] == {
        "taskId": str(task_id), "threadId": None, "status": "completed",
        "stateVersion": task.state_version, "seq": task.event_seq,
    }  # fmt: skip
    [act] = acts(engine, task_id)
    assert (act.key, act.state, act.kind, act.attempts) == (heard.key, "succeeded", "keyed", 1)
    assert act.args_sha256 == sha256(heard.body).hexdigest()
    assert act.target == receiver.url()
    [message] = deliveries(engine)
    assert (message.state, message.tries, message.last_status) == ("delivered", 1, 204)
    engine.assert_audit_verifies(task_id)


def test_a_budget_that_is_nearly_used_is_told(engine: Engine, receiver: Receiver) -> None:
    """S74: at 80 and at 100 % of a limit, in the commit that used it, each once."""
    used = ([40, 45], [5, 0], [5, 5])
    script = [{**SAY, "tokens": one, "call_id": f"call{n}"} for n, one in enumerate(used)]
    task_id = engine.submit(*script, budget={"tokens": 100}, webhook=receiver.url())
    engine.drive(task_id)
    while webhooks.send_all():
        pass
    told = [json.loads(heard.body) for heard in receiver.heard]
    assert [one["type"] for one in told] == [
        "task.budget_80", "task.budget_100", "task.completed",
    ]  # fmt: skip
    events = Event.objects.for_tenant(engine.tenant.id).filter(task_id=task_id, type="budget")
    notices = events.order_by("seq")
    assert [one["data"]["seq"] for one in told[:2]] == list(notices.values_list("seq", flat=True))
    assert [row.data["percent"] for row in notices] == [80, 100]


def test_questions_and_held_tasks_are_told(engine: Engine, receiver: Receiver) -> None:
    """Whenever a person is needed, and the end after it."""
    asking = engine.submit(ASK, webhook=receiver.url())
    engine.drive(asking)
    engine.steer(asking, "provide_input", by=engine.submitter, payload={"answer": True})
    engine.drive(asking)
    held = engine.submit({**BREAK, "on_failure": "ask"}, webhook=receiver.url())
    engine.drive(held)
    failed = engine.submit(BREAK, webhook=receiver.url())
    engine.drive(failed)
    gone = engine.submit(SAY, webhook=receiver.url())
    engine.steer(gone, "cancel")
    assert webhooks.send_all() == 5
    told = [json.loads(heard.body)["type"] for heard in receiver.heard]
    assert told == [
        "task.input_required", "task.completed", "task.dead_lettered", "task.failed",
        "task.cancelled",
    ]  # fmt: skip
    assert len({heard.key for heard in receiver.heard}) == 5


def test_message_is_owed_in_the_commit_of_the_end(
    engine: Engine, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was rolled back is told to nobody."""
    task_id = engine.submit(SAY, webhook=receiver.url())

    def undone(*_: Any) -> None:
        assert len(deliveries(engine)) == 1
        raise LookupError

    with monkeypatch.context() as patched:
        patched.setattr(delivery, "_tell_others", undone)
        with pytest.raises(LookupError):
            engine.steer(task_id, "cancel")
    assert deliveries(engine) == []
    engine.steer(task_id, "cancel")
    assert len(deliveries(engine)) == 1


def test_failed_message_is_sent_again_with_the_same_key(engine: Engine, receiver: Receiver) -> None:
    """After a pause that doubles, while the other messages of the endpoint wait with it."""
    receiver.status = 503
    first = engine.submit(SAY, webhook=receiver.url())
    engine.drive(first)
    assert webhooks.send_all() == 1
    engine.drive(engine.submit(SAY, webhook=receiver.url()))
    assert webhooks.send_all() == 0, "the endpoint is left in peace"
    [act] = acts(engine, first)
    assert (act.state, act.error) == ("failed", {"code": "answered", "message": "503 Service Unavailable"})  # fmt: skip
    let_pass(5)
    assert webhooks.send_all() == 1, "one message finds out whether it is back"
    let_pass(5)
    assert webhooks.send_all() == 0, "the pause has doubled"
    receiver.status = 200
    let_pass(5)
    assert webhooks.send_all() == 2
    assert len(receiver.heard) == 4
    bodies = {heard.key: {one.body for one in receiver.heard if one.key == heard.key}
              for heard in receiver.heard}  # fmt: skip
    assert [len(texts) for texts in bodies.values()] == [1, 1]
    assert {one.state for one in deliveries(engine)} == {"delivered"}
    assert (the_endpoint(engine).failures, the_endpoint(engine).next_try_at) == (0, None)
    assert acts(engine, first)[0].state == "succeeded"


def test_answer_that_never_comes_leaves_the_act_open(
    engine: Engine, receiver: Receiver, settings: Settings
) -> None:
    """It may have arrived: the same key is sent again, and at last it is in doubt, nobody's to settle."""
    allow(settings, webhook_timeout_seconds=0.5)
    receiver.gate.clear()
    task_id = engine.submit(SAY, webhook=receiver.url())
    engine.drive(task_id)
    assert webhooks.send_all() == 1
    assert acts(engine, task_id)[0].state == "begun"
    assert list_open_effects(tenant_id=engine.tenant.id) == []
    let_pass(100)
    allow(settings, webhook_give_up_seconds=0)
    assert webhooks.send_all() == 1
    [act] = acts(engine, task_id)
    assert (act.state, act.attempts) == ("in_doubt", 2)
    assert list_open_effects(tenant_id=engine.tenant.id) == []
    assert [one.state for one in deliveries(engine)] == ["failed"]
    receiver.gate.set()
    assert wait_until(lambda: len(receiver.heard) == 2, seconds=30)
    assert len({heard.key for heard in receiver.heard}) == 1


def test_open_message_is_no_act_of_the_task(
    engine: Engine, receiver: Receiver, settings: Settings
) -> None:
    """A task ends whatever its webhooks do, and its receipt does not tell of them."""
    allow(settings, webhook_timeout_seconds=0.5)
    receiver.gate.clear()
    task_id = engine.submit(ASK, webhook=receiver.url())
    engine.drive(task_id)
    assert webhooks.send_all() == 1
    engine.steer(task_id, "cancel")
    engine.drive(task_id)
    assert acts(engine, task_id)[0].state == "begun"
    receipt = find_receipt(tenant_id=engine.tenant.id, task_id=task_id)
    assert receipt is not None
    assert receipt.effects == []


@pytest.mark.slow
@pytest.mark.parametrize(("status", "tries"), [(410, 1), (500, 20)])
def test_endpoint_that_only_fails_is_switched_off(
    engine: Engine, receiver: Receiver, status: int, tries: int
) -> None:
    """S145: after 20 failures in a row or when it is gone; what waits comes when it is back."""
    receiver.status = status
    for _ in range(2):
        engine.drive(engine.submit(SAY, webhook=receiver.url()))
    for _ in range(tries):
        assert webhooks.send_all() == 1
        let_pass(4 * 3600)
    assert webhooks.send_all() == 0
    assert the_endpoint(engine).disabled_at is not None
    engine.drive(engine.submit(SAY, webhook=receiver.url()))
    assert len(deliveries(engine)) == 2, "nothing more is owed while it is off"
    receiver.status = 204
    held = [one.id for one in deliveries(engine) if one.state == "held"]
    admission.enable_endpoint(admin(engine), endpoint_id=the_endpoint(engine).pk, reason="back")
    assert webhooks.send_all() == len(held) == (1 if status == 410 else 2)
    engine.drive(engine.submit(SAY, webhook=receiver.url()))
    assert webhooks.send_all() == 1


def test_endpoint_of_a_tenant_hears_of_every_task(engine: Engine, receiver: Receiver) -> None:
    """Not of other tenants' ones, nor of children; once of a task that names it, too."""
    made = admission.create_endpoint(admin(engine), url=receiver.url())
    child = {"op": "task", "script": [SAY]}
    tasks = [engine.submit(child), engine.submit(SAY, webhook=receiver.url("/hook?x=1"))]
    for task_id in tasks:
        drive_all(engine, task_id)
    other = Engine()
    other.drive(other.submit(SAY))
    webhooks.send_all()
    told = {json.loads(heard.body)["data"]["taskId"]: heard.path for heard in receiver.heard}
    assert told == {str(tasks[0]): "/hook", str(tasks[1]): "/hook?x=1"}
    assert len(receiver.heard) == 2
    assert all(is_signed(heard, made.secret) for heard in receiver.heard)


def drive_all(engine: Engine, task_id: UUID) -> None:
    """Let a task and its children come to rest."""
    for _ in range(10):
        open_tasks = Task.objects.for_tenant(engine.tenant.id).filter(
            status__in=("queued", "recovering"), next_wake_at__isnull=False
        )
        for pk in list(open_tasks.values_list("pk", flat=True)):
            engine.run(pk)
    assert engine.task(task_id).status == "completed"


def test_secret_changes_with_an_overlap(
    engine: Engine, receiver: Receiver, settings: Settings
) -> None:
    """Two signatures for a day, one for each secret; also while the installation's key is changed."""
    old = admission.create_endpoint(admin(engine), url=receiver.url())
    new = admission.rotate_secret(admin(engine), endpoint_id=old.endpoint.pk, reason="it leaked")
    assert old.secret != new.secret

    def signatures() -> list[bool]:
        engine.drive(engine.submit(SAY))
        webhooks.send_all()
        return [is_signed(receiver.heard[-1], one.secret) for one in (old, new)]

    assert signatures() == [True, True]
    let_pass(25 * 3600)
    assert signatures() == [False, True]
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another-" + "k" * 50
    assert signatures() == [False, True]


def test_redirects_are_not_followed(engine: Engine, receiver: Receiver) -> None:
    """A49: the answer counts as a failure, and nobody else is called."""
    with Receiver() as other:
        receiver.status, receiver.headers = 307, {"Location": other.url()}
        engine.drive(engine.submit(SAY, webhook=receiver.url()))
        assert webhooks.send_all() == 1
        assert (len(receiver.heard), other.heard) == (1, [])
    assert deliveries(engine)[0].last_error == "307 Temporary Redirect"


@pytest.mark.parametrize(
    "addresses", [["127.0.0.1"], ["93.184.216.34", "10.0.0.1"], ["64:ff9b::a9fe:a9fe"]]
)
def test_names_that_lead_inside_are_not_called(
    engine: Engine, settings: Settings, monkeypatch: pytest.MonkeyPatch, addresses: list[str]
) -> None:
    """A25, A26: every address of a public name must be public, whenever it is looked up."""

    async def resolve(host: str, port: int) -> list[str]:
        return addresses

    async def call(*args: Any) -> Any:
        raise AssertionError("called")

    allow(settings, webhook_hosts=("hooks.example.org",))
    monkeypatch.setattr(outbound, "_resolve", resolve)
    monkeypatch.setattr(outbound, "_post_to", call)
    task_id = engine.submit(SAY, webhook="https://hooks.example.org/")
    engine.drive(task_id)
    assert webhooks.send_all() == 1
    assert deliveries(engine)[0].last_error == "egress_denied"
    assert acts(engine, task_id)[0].state == "failed"


def test_address_that_was_checked_is_the_one_called(
    engine: Engine, receiver: Receiver, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A26: a name is looked up once for each call, so that another answer in between is no use."""
    asked = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append((host, port))
        return ["127.0.0.1"]

    monkeypatch.setattr(outbound, "_resolve", resolve)
    # Nobody else knows this name: whoever looked it up again would get nowhere.
    place = f"hooks.invalid:{receiver.port}"
    allow(settings, webhook_private_hosts=(place,))
    engine.drive(engine.submit(SAY, webhook=f"http://{place}/x"))
    assert webhooks.send_all() == 1
    assert receiver.heard[0].headers["host"] == place
    assert asked == [("hooks.invalid", receiver.port)]


def test_host_that_was_taken_off_the_list_is_not_called(
    engine: Engine, receiver: Receiver, settings: Settings
) -> None:
    """The list of now decides, not that of admission."""
    engine.drive(engine.submit(SAY, webhook=receiver.url()))
    allow(settings, webhook_private_hosts=())
    assert webhooks.send_all() == 1
    assert (receiver.heard, deliveries(engine)[0].last_error) == ([], "host_not_allowed")


def test_host_outside_the_list_is_refused_at_once(engine: Engine, receiver: Receiver) -> None:
    """Nothing is stored, not even an endpoint."""
    with pytest.raises(InvalidInputError):
        engine.submit(SAY, webhook="https://elsewhere.example.org/")
    assert not Task.objects.for_tenant(engine.tenant.id).exists()
    assert not WebhookEndpoint.objects.for_tenant(engine.tenant.id).exists()


def test_suspended_tenant_tells_nobody(engine: Engine, receiver: Receiver) -> None:
    """S1: what is owed waits."""
    engine.drive(engine.submit(SAY, webhook=receiver.url()))
    set_tenant(engine.tenant, status="suspended")
    assert webhooks.send_all() == 0
    set_tenant(engine.tenant, status="active")
    assert webhooks.send_all() == 1


def test_only_who_manages_webhooks_makes_them(engine: Engine, receiver: Receiver) -> None:
    """The table of rights."""
    with pytest.raises(NotAllowedError):
        admission.create_endpoint(engine.submitter, url=receiver.url())


def test_senders_share_what_is_owed(engine: Engine, receiver: Receiver) -> None:
    """Any number of them: each message is sent by one."""
    for _ in range(12):
        engine.drive(engine.submit(SAY, webhook=receiver.url()))
    stop = threading.Event()

    def send() -> None:
        webhooks.send_until(stop)
        connection.close()

    senders = [threading.Thread(target=send) for _ in range(4)]
    for sender in senders:
        sender.start()
    settled = wait_until(
        lambda: all(one.state == "delivered" for one in deliveries(engine)), seconds=30
    )
    stop.set()
    for sender in senders:
        sender.join()
    assert settled
    assert len(receiver.heard) == len({heard.key for heard in receiver.heard}) == 12


def test_sender_that_was_overtaken_notes_nothing(engine: Engine, receiver: Receiver) -> None:
    """Its lease ended; the later try decides, and the receiver was sent the key twice."""
    receiver.status = 500
    task_id = engine.submit(SAY, webhook=receiver.url())
    engine.drive(task_id)
    late = webhooks._take()
    assert late is not None
    let_pass(3600)
    receiver.status = 204
    assert webhooks.send_all() == 1
    with transaction.atomic():
        webhooks._note(late, outbound.Answer(outbound.Sent.ANSWERED, 500, "late"))
    [message] = deliveries(engine)
    assert (message.state, message.tries) == ("delivered", 2)
    assert (acts(engine, task_id)[0].state, the_endpoint(engine).failures) == ("succeeded", 0)
