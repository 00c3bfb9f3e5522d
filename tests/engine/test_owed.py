"""Owed messages find their way however long the broker was away, or whatever it lost (E45)."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import current_app
from django.db import connection

from tasks_app.engine import continuation
from tasks_app.models import Outbox
from tests.support.engine import Engine

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def broker() -> Iterator[None]:
    """A queue of messages in which nothing waits."""
    with current_app.producer_or_acquire() as producer:
        client = producer.channel.client
        client.delete(continuation.QUEUE)
        yield
        client.delete(continuation.QUEUE)


def let_pass(seconds: float) -> None:
    """Move time by changing rows."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE tasks_app_outbox SET sent_at = sent_at - make_interval(secs => %(s)s),"
            " next_try_at = next_try_at - make_interval(secs => %(s)s)",
            {"s": seconds},
        )


def test_message_goes_out_as_soon_as_the_broker_is_back(
    engine: Engine, broker: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the sweeper looked while it was away: nothing counted as tried."""
    engine.submit({"op": "say"})
    with monkeypatch.context() as patch:
        patch.setattr(continuation, "count_waiting", lambda: None)
        for _ in range(20):
            let_pass(300)
            assert continuation.send_due() == 0
    assert Outbox.objects.for_tenant(engine.tenant.id).get().tries == 0
    assert continuation.send_due() == 1
    assert continuation.count_waiting()


def test_pauses_grow_while_messages_wait_for_a_worker(engine: Engine, broker: None) -> None:
    """A busy installation is not told over and over what it knows."""
    engine.submit({"op": "say"})
    for pause in (5, 5, 10, 20, 40):
        let_pass(pause)
        assert continuation.send_due() == 1
    let_pass(79)
    assert continuation.send_due() == 0


def test_lost_messages_are_sent_again_after_the_first_pause(engine: Engine, broker: None) -> None:
    """FLUSHALL, or a restart without its data: nothing waits though tasks are due."""
    engine.submit({"op": "say"})
    for pause in (5, 5, 10, 20, 40):
        let_pass(pause)
        assert continuation.send_due() == 1
    with current_app.producer_or_acquire() as producer:
        producer.channel.client.flushall()
    let_pass(6)
    assert continuation.send_due() == 1
    assert continuation.send_due() == 0


@pytest.mark.slow
def test_process_that_never_had_a_broker_does_not_wait_for_one() -> None:
    """A fresh process asks an address at which nobody listens, and is told at once."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = (
        "import time, django; django.setup()\n"
        "from tasks_app.engine import continuation\n"
        "began = time.monotonic(); waiting = continuation.count_waiting()\n"
        "print(waiting, time.monotonic() - began)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "runtime_project.settings_test",
            "REDIS_URL": f"redis://127.0.0.1:{port}/0",
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    waiting, seconds = said.stdout.splitlines()[-1].split()
    assert waiting == "None"
    assert float(seconds) < 2
