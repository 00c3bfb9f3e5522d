"""The project's Celery application in a world where things go wrong; nothing imports it.

Workers of crash tests and of `manage.py faults` are started with it. While a file of the name lies
in the folder of sync points:

- `tripled`: every message that the process sends is sent three times;
- `lost`: no message is sent, and nobody is told;
- `full`: the disk of artifacts is full, in the middle of a write;
- `literal`: a worker takes the task of its message alone, and none that is due besides.

A process that gets SIGUSR2 believes from then on that it is an hour later, at the next one that it
is an hour earlier, then the truth again.
"""

import errno
import functools
import itertools
import os
import signal
import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from celery.signals import task_prerun, worker_process_init
from django.utils import timezone

from runtime_project.celery import app
from tasks_app.tools import artifact_store

_FOLDER = Path(os.environ["RUNTIME_SYNCPOINT_DIR"])
_HOUR = 3600.0

_send_once = app.send_task
_put_blocks = artifact_store.put_blocks
_true_time = time.time
_true_now = timezone.now
_offsets = itertools.cycle((_HOUR, -_HOUR, 0.0))
_offset_seconds = 0.0
_AWAKE_SECONDS = 5.0


def _send(*args: Any, **options: Any) -> Any:
    if (_FOLDER / "lost").exists():
        return None
    if (_FOLDER / "tripled").exists():
        _send_once(*args, **options)
        _send_once(*args, **options)
    return _send_once(*args, **options)


def _put(tenant_id: UUID, blocks: Iterable[bytes]) -> artifact_store.StoredBlob:
    return _put_blocks(tenant_id, _filling(blocks))


def _filling(blocks: Iterable[bytes]) -> Iterator[bytes]:
    for block in blocks:
        yield block[: len(block) // 2]
        if (_FOLDER / "full").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        yield block[len(block) // 2 :]


def _change_clock(*_: Any) -> None:
    global _offset_seconds
    _offset_seconds = next(_offsets)


@worker_process_init.connect
def _listen_for_clock_changes(**_: Any) -> None:
    signal.signal(signal.SIGUSR2, _change_clock)


@task_prerun.connect
def _take_messages_literally(**_: Any) -> None:
    # Imported here: the engine needs the applications that Celery has loaded by now.
    from tasks_app.engine import queue_sql, slice_runner

    is_literal = (_FOLDER / "literal").exists()
    slice_runner.AWAKE_SECONDS = 0.0 if is_literal else _AWAKE_SECONDS
    setattr(queue_sql, "CLAIM", _claims()[is_literal])  # noqa: B010


@functools.cache
def _claims() -> tuple[str, str]:
    """Return the statement of a claim, and one that takes the preferred task or none."""
    from tasks_app.engine import queue_sql

    of_anybody = "WHERE t.tenant_id = o.tenant_id AND "
    assert queue_sql.CLAIM.count(of_anybody) == 1
    literally = queue_sql.CLAIM.replace(of_anybody, f"{of_anybody}t.id = %(preferred)s AND ")
    return queue_sql.CLAIM, literally


# The faults that are injected: a method and functions, which mypy guards.
setattr(app, "send_task", _send)  # noqa: B010
setattr(artifact_store, "put_blocks", _put)  # noqa: B010
setattr(time, "time", lambda: _true_time() + _offset_seconds)  # noqa: B010
setattr(timezone, "now", lambda: _true_now() + timedelta(seconds=_offset_seconds))  # noqa: B010
