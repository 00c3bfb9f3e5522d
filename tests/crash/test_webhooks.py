"""A sender that is killed between the call and its receipt: the receiver hears the same key again."""

import signal
from uuid import UUID

import pytest
from django.db import connection
from pytest_django import Settings

from ledger_app.queries import list_effects
from runtime_project.local.processes import wait_until
from tasks_app.admission.tasks import admit_task
from tasks_app.models import WebhookDelivery
from tests.crash.bed import Bed
from tests.support.receiver import Receiver
from tests.support.workers import Sweeper

pytestmark = pytest.mark.crash


def test_killed_sender_leaves_the_message_to_another(bed: Bed, settings: Settings) -> None:
    """At least once, with one id; the ledger says twice begun and once done."""
    with Receiver() as receiver:
        settings.RUNTIME = {**settings.RUNTIME, "webhook_private_hosts": (receiver.host,)}
        env = {**bed.fleet.env, "RUNTIME_WEBHOOK_PRIVATE_HOSTS": receiver.host}
        bed.sync.hold("webhook.after_call")
        task_id = admit_task(
            bed.submitter,
            workflow="scripted",
            goal={"script": [{"op": "say", "text": "hello"}]},
            source="code",
            webhook=receiver.url(),
        ).task_id
        first = Sweeper("hooks1", bed.fleet.folder, env)
        try:
            bed.sync.wait_hit("webhook.after_call", task_id)
            assert act_of(bed, task_id) == ("begun", 1)
            first.kill_group()
        finally:
            if first.is_running():
                first.kill_group()
        bed.sync.release("webhook.after_call")
        end_leases(bed)
        second = Sweeper("hooks2", bed.fleet.folder, env)
        try:
            assert wait_until(lambda: act_of(bed, task_id) == ("succeeded", 2), seconds=30)
        finally:
            second.send(signal.SIGTERM)
            second.process.wait(20)
        assert len(receiver.heard) == 2
        assert len({heard.key for heard in receiver.heard}) == 1
        assert len({heard.body for heard in receiver.heard}) == 1
        told = WebhookDelivery.objects.for_tenant(bed.tenant.id).get(task_id=task_id)
        assert (told.state, told.tries) == ("delivered", 2)


def act_of(bed: Bed, task_id: UUID) -> tuple[str, int] | None:
    acts = list_effects(tenant_id=bed.tenant.id, task_id=task_id)
    return (acts[0].state.value, acts[0].attempts) if acts else None


def end_leases(bed: Bed) -> None:
    """Move time by changing the row: the dead sender's time with the message is over."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE tasks_app_webhookdelivery SET next_try_at = clock_timestamp()"
            " WHERE tenant_id = %s",
            [bed.tenant.id],
        )
