"""RUNTIME_POLL_CLAIM: the due task is the message; nothing is owed, sent or read elsewhere (E45)."""

import pytest
from celery import current_app
from django.core.management import CommandError, call_command
from pytest_django import Settings

from tasks_app.engine import polling, recovery, shutdown, slice_runner
from tasks_app.models import Outbox
from tests.engine.test_claim_order import SAY
from tests.support.engine import Engine


@pytest.fixture
def polled(engine: Engine, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """An installation whose workers poll and whose broker must not be touched."""
    settings.RUNTIME = {**settings.RUNTIME, "poll_claim": True, "poll_seconds": 0.0}

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a message was sent")

    monkeypatch.setattr(current_app, "send_task", refuse)
    monkeypatch.setattr(shutdown, "_leaving", False)
    return engine


def poll(times: int) -> list[bool]:
    """Ask so often; return what the parent would be told."""
    told: list[bool] = []
    polling.work(may_go_on=lambda _: len(told) < 2 * times, note=told.append)
    return told


def test_due_tasks_run_without_a_message(polled: Engine) -> None:
    """Admitted, executed, handed on, recovered, woken: no message is owed or sent."""
    ids = [polled.submit(SAY), polled.submit({"op": "sleep", "s": 60}, SAY)]
    poll(3)
    polled.make_due(ids[1])
    recovery.sweep()
    poll(2)
    assert {polled.task(task_id).status for task_id in ids} == {"completed"}
    assert not Outbox.objects.for_tenant(polled.tenant.id).exists()


def test_error_of_ours_does_not_end_the_process(
    polled: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is logged, and after a pause the process asks again."""
    monkeypatch.setattr(polling, "ERROR_PAUSE_SECONDS", 0.001)

    def fail() -> str:
        raise RuntimeError("planned")

    polled.submit(SAY)
    with monkeypatch.context() as broken:
        broken.setattr(slice_runner, "run_slice", fail)
        assert poll(2) == [True, False, True, False]


def test_process_that_is_to_leave_claims_nothing(polled: Engine) -> None:
    """Nor does one that has grown old."""
    task_id = polled.submit(SAY)
    shutdown.leave()
    assert poll(1) == []
    assert polled.task(task_id).status == "queued"


def test_command_wants_the_setting() -> None:
    """Without it other processes would send messages that nobody reads."""
    with pytest.raises(CommandError, match="RUNTIME_POLL_CLAIM"):
        call_command("work")
