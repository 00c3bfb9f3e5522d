"""Celery entry points; a few lines each. A job is a hint: the engine decides what is due."""

from typing import Any
from uuid import UUID

from celery import shared_task
from celery.signals import task_prerun, worker_process_shutdown, worker_shutting_down
from django.db import close_old_connections

from tasks_app.engine import lease, shutdown, slice_runner
from tasks_app.events import publisher


@shared_task(name="tasks_app.jobs.run_slice")
def run_slice(task_id: str, reason: str = "") -> str:
    """Work on this task or a more urgent one, then on what else is due."""
    return slice_runner.run_due(UUID(task_id))


@task_prerun.connect
def _drop_dead_connections(**_: Any) -> None:
    # Connections are kept between jobs; one that a database restart killed is replaced here.
    close_old_connections()


@worker_shutting_down.connect
def _ask_to_hand_on(**_: Any) -> None:
    shutdown.request()


@worker_process_shutdown.connect
def _stop_keeping(**_: Any) -> None:
    # A worker's child ends without atexit; what it published last is sent here.
    publisher.flush(1.0)
    lease.stop_keeper()
