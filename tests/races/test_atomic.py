"""An atomic body against the lease: renewed while it runs, and undone when another took over."""

import threading

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from tasks_app.engine import sql
from tasks_app.engine.step_context import RunningStep
from tests.races.actors import PATIENCE_SECONDS, Actor
from tests.support import oracles
from tests.support.engine import Engine
from tests.support.syncdir import SyncDir


def test_overtaken_body_is_undone(engine: Engine, sync: SyncDir) -> None:
    """The guarded commit is the last statement: with an old fence the author's rows go too (E3)."""
    task_id = engine.submit({"op": "atomic"})
    sync.hold("step.before_commit")
    worker = Actor(lambda: engine.run(task_id))
    sync.wait_hit("step.before_commit", task_id)
    # The body has written its row; nobody but its own transaction sees it.
    assert not Group.objects.filter(name__startswith=str(task_id)).exists()
    engine.lose_lease(task_id)
    assert engine.task(task_id).status == "recovering"
    sync.release("step.before_commit")
    assert worker.result() == "lost"
    assert not Group.objects.filter(name__startswith=str(task_id)).exists()
    task = engine.drive(task_id)
    assert task.status == "completed"
    assert Group.objects.filter(name__startswith=str(task_id)).count() == 1
    oracles.check_task(task)


def test_lease_is_renewed_while_the_body_runs(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After progress, an artifact and a log line the body still holds no lock on the task's row."""
    original, at_the_end, go_on = RunningStep.write_artifacts, threading.Event(), threading.Event()

    def wait(ctx: RunningStep) -> None:
        at_the_end.set()
        go_on.wait(PATIENCE_SECONDS)
        original(ctx)

    monkeypatch.setattr(RunningStep, "write_artifacts", wait)
    task_id = engine.submit({"op": "atomic", "write": "a.txt"})
    worker = Actor(lambda: engine.run(task_id))
    assert at_the_end.wait(PATIENCE_SECONDS)
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '2s'")
        cursor.execute(
            sql.RENEW,
            {"task_id": task_id, "fence": engine.task(task_id).fence, "lease_seconds": 30},
        )
        assert cursor.fetchone() is not None
        cursor.execute("SET lock_timeout = 0")
    go_on.set()
    assert worker.result() == "completed"
