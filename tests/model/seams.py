"""Puts the engine into a world that a seed decides about: messages, frames, time, ids, stops.

Only what lies around the engine is replaced, at its seams; the engine and the database are real.
"""

import logging
import pkgutil
import random
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock
from uuid import UUID

from django.conf import settings
from django.test import override_settings

from tasks_app import engine, syncpoints
from tasks_app.engine import continuation, lease, session, shutdown, step_runner
from tasks_app.events import publisher
from tests.model import world as worlds
from tests.model.actors import Actor, current
from tests.model.world import GRACE_SECONDS, LEASE_SECONDS, Ids, VirtualTime, world


@contextmanager
def model_world(artifacts: Path) -> Iterator[None]:
    """Replace what lies around the engine for the seeds that run inside."""
    values = {
        **settings.RUNTIME,
        "lease_seconds": LEASE_SECONDS,
        "heartbeat_seconds": LEASE_SECONDS / 3,
        "grace_seconds": GRACE_SECONDS,
        "outbox_retry_seconds": 1800.0,
        "slice_steps": 3,
        "slice_seconds": 1e9,
        "max_wall_seconds": 500_000.0,
        "artifact_root": artifacts,
    }
    with ExitStack() as stack:
        stack.enter_context(override_settings(RUNTIME=values))
        for target, name, value in _REPLACED:
            stack.enter_context(mock.patch.object(target, name, value))
        for module in _engine_modules():
            if getattr(module, "time", None) is time:
                stack.enter_context(mock.patch.object(module, "time", _Now()))
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


@contextmanager
def seeded(new: worlds.World, chance: random.Random) -> Iterator[None]:
    """Make a world the present one, with ids and jitter of its seed."""
    ids = Ids(random.Random(chance.random()), _urandom)  # noqa: S311 - repeatable, not secret
    jitter = random.Random(chance.random())  # noqa: S311 - likewise
    worlds.enter(new)
    with (
        mock.patch.object(uuid, "os", SimpleNamespace(urandom=ids.urandom)),
        mock.patch.object(step_runner, "random", jitter),
    ):
        try:
            yield
        finally:
            worlds.enter(None)


def _engine_modules() -> list[Any]:
    names = [name for _, name, _ in pkgutil.iter_modules(engine.__path__)]
    return [import_module(f"tasks_app.engine.{name}") for name in names]


class _Now:
    """The module `time` of the engine, by the clock of the present world."""

    def __getattr__(self, name: str) -> Any:
        return getattr(world().time if worlds.is_entered() else VirtualTime(), name)


# Here something has just been committed under the fence.
_AFTER_COMMIT = frozenset(
    {"step.after_commit", "effect.after_begin", "effect.after", "finish.after_terminal"}
)


def _reach(name: str, run_id: UUID | None, fence: int) -> None:
    actor = current()
    if actor is not None:
        if name in _AFTER_COMMIT and actor.last_stop not in {"commit", "statement.after"}:
            world().witness(run_id, fence, f"{actor.name} committed at {name}")
        detail = world().name(run_id) + (f" fence {fence}" if fence else "")
        actor.stop(name, detail)


class _Broker:
    def send_task(self, name: str, **rest: Any) -> None:
        world().send_task(name, **rest)


def _publish(*args: Any) -> None:
    world().publish(*args)


def _is_stopping() -> bool:
    actor: Actor | None = current()
    return actor is not None and actor.is_stopping


_urandom = uuid.os.urandom  # type: ignore[attr-defined]

_REPLACED: tuple[tuple[Any, str, Any], ...] = (
    (syncpoints, "scheduler", _reach),
    (continuation, "current_app", _Broker()),
    # Never enough: a worker of the model ends after each slice.
    (continuation, "count_waiting", lambda: min(1, len(world().messages))),
    (publisher, "publish", _publish),
    (publisher, "publish_piece", lambda *_: None),
    (shutdown, "requested", _is_stopping),
    # Real time decides nothing: look for commands every time, hold results until a step says so.
    (session, "LOOK_SECONDS", 0.0),
    (session, "MAX_HOLD_SECONDS", 600.0),
    (lease, "LOCK_WAIT_SECONDS", 50),
)
