"""The faults: each hurts something that is really there, or says that nothing fit to be hurt."""

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import redis
from django.db import connection

from tasks_app.models import Approval, Checkpoint, Task
from tests.faults import people
from tests.faults.weights import WEIGHTS
from tests.faults.world import World
from tests.support.workers import TIMES

# A frozen process wakes after its lease has certainly passed to another.
FREEZE_SECONDS = float(TIMES["RUNTIME_LEASE_SECONDS"]) + 1.5
WINDOW_SECONDS = 1.0
AWAY_SECONDS = 5.0


@dataclass
class Scene:
    """One run as the faults see it.

    Attributes:
        undo: what must be done later, and when: thaw a process, close a window.
        damaged: tasks whose newest checkpoint was changed, with its true text.
    """

    world: World
    chance: random.Random
    undo: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    frozen: set[int] = field(default_factory=set)
    windows: dict[str, float] = field(default_factory=dict)
    damaged: dict[UUID, tuple[int, str]] = field(default_factory=dict)
    redis_is_away: bool = False
    answers: dict[str, int] = field(default_factory=dict)

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Do something after so many seconds."""
        self.undo.append((time.monotonic() + seconds, act))

    def do_due(self, *, everything: bool = False) -> None:
        """Do what is due, or all that is left."""
        now = time.monotonic()
        due = [act for at, act in self.undo if everything or at <= now]
        self.undo = [(at, act) for at, act in self.undo if not everything and at > now]
        for act in due:
            act()

    def open_window(self, name: str) -> None:
        """Switch a fault of all processes on for a moment."""
        self.windows[name] = until = time.monotonic() + WINDOW_SECONDS
        self.world.switch(name, on=True)

        def close() -> None:
            if self.windows[name] == until:
                self.world.switch(name, on=False)

        self.later(WINDOW_SECONDS, close)

    def busy_process(self) -> int | None:
        """Return the pid of a process that executes a task now and is not frozen."""
        rows = Task.objects.for_tenant(self.world.tenant_id).filter(status="working")
        owners = [owner for owner in rows.values_list("lease_owner", flat=True) if owner]
        pids = {int(owner.split(":")[1]) for owner in owners} - self.frozen
        return self.chance.choice(sorted(pids)) if pids else None

    def heard(self, fault: str, answers: list[str]) -> None:
        """Count what people were told."""
        for answer in answers:
            name = f"{fault}: {answer}"
            self.answers[name] = self.answers.get(name, 0) + 1


Fault = Callable[[Scene], bool]


def kill_worker(scene: Scene) -> bool:
    """SIGKILL a process in the middle of a task."""
    pid = scene.busy_process()
    if pid is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return True


def freeze_worker(scene: Scene) -> bool:
    """SIGSTOP a process in the middle of a task, SIGCONT after somebody else owns the task."""
    pid = scene.busy_process()
    if pid is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        scene.frozen.add(pid)
        scene.later(FREEZE_SECONDS, lambda: _thaw(scene, pid))
    return True


def _thaw(scene: Scene, pid: int) -> None:
    scene.frozen.discard(pid)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def change_clock(scene: Scene) -> bool:
    """Let a process believe that it is an hour later or earlier."""
    pid = scene.busy_process()
    if pid is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGUSR2)
    return True


def kill_machine(scene: Scene) -> bool:
    """SIGKILL a worker with all its children, as a machine's end would; start another."""
    fleet = scene.world.fleet
    worker = scene.chance.choice(fleet.workers)
    worker.kill_group()
    fleet.workers.remove(worker)
    fleet.add_worker(concurrency=scene.world.children)
    return True


def kill_sweeper(scene: Scene) -> bool:
    """SIGKILL the sweeper; start another."""
    fleet = scene.world.fleet
    sweeper = fleet.sweepers[0]
    sweeper.kill_group()
    fleet.replace_sweeper(sweeper.pid)
    return True


def cut_session(scene: Scene) -> bool:
    """End the database session of a worker or of the sweeper."""
    rows = scene.world.as_superuser(
        "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity"
        " WHERE application_name ~ '^(worker|sweep)' ORDER BY random() LIMIT 1) AS one"
    )
    return bool(rows)


def restart_postgres(scene: Scene) -> bool:
    """Shut the database down, in order or as a crash would, and start it again."""
    server = scene.world.services.postgres
    connection.close()
    if scene.chance.random() < 0.5 and server.process is not None:
        server.process.send_signal(signal.SIGQUIT)
        server.process.wait()
    server.stop()
    server.start()
    return True


def flush_redis(scene: Scene) -> bool:
    """Empty Redis of every message and event."""
    if scene.redis_is_away:
        return False
    with redis.Redis.from_url(scene.world.services.redis_url) as client:
        client.flushall()
    return True


def restart_redis(scene: Scene) -> bool:
    """SIGKILL Redis and start it again."""
    return _end_redis(scene, 0.0)


def redis_away(scene: Scene) -> bool:
    """SIGKILL Redis and start it again after a while."""
    return _end_redis(scene, AWAY_SECONDS)


def _end_redis(scene: Scene, seconds: float) -> bool:
    if scene.redis_is_away:
        return False
    server = scene.world.services.redis
    assert server.process is not None
    server.process.kill()
    server.process.wait()

    def come_back() -> None:
        server.start()
        scene.redis_is_away = False

    scene.redis_is_away = True
    if seconds:
        scene.later(seconds, come_back)
    else:
        come_back()
    return True


def lose_messages(scene: Scene) -> bool:
    """Lose every message for a moment."""
    scene.open_window("lost")
    return True


def triple_messages(scene: Scene) -> bool:
    """Send every message three times for a moment."""
    scene.open_window("tripled")
    return True


def fill_disk(scene: Scene) -> bool:
    """Let the disk of artifacts be full for a moment."""
    scene.open_window("full")
    return True


def flip_bit(scene: Scene) -> bool:
    """Change one bit of the newest checkpoint of a task that waits, then let the task go on."""
    task = _waiting(scene)
    if task is None:
        return False
    rows = Checkpoint.objects.for_tenant(task.tenant_id).filter(task_id=task.id)
    newest = rows.order_by("seq").last()
    if newest is None:
        return False
    text: str = newest.document
    at = scene.chance.randrange(len(text))
    # The lowest bit of a letter: still text, another document.
    changed = text[:at] + chr(ord(text[at]) ^ 1) + text[at + 1 :]
    scene.world.as_superuser(
        "UPDATE tasks_app_checkpoint SET document = %s WHERE id = %s", (changed, newest.pk)
    )
    scene.damaged[task.id] = (newest.pk, text)
    people.serve(scene.world, task)
    return True


def race_for_approval(scene: Scene) -> bool:
    """Have three people decide one approval at the same moment."""
    rows = Approval.objects.for_tenant(scene.world.tenant_id).filter(status="pending")
    approval = rows.exclude(task_id__in=scene.damaged).order_by("?").first()
    if approval is None:
        return False
    answers = people.race_for_approval(scene.world, scene.chance, approval)
    scene.heard("race_for_approval", answers)
    return True


def storm_of_steering(scene: Scene) -> bool:
    """Have two people give many commands to one task at the same moment."""
    rows = Task.objects.for_tenant(scene.world.tenant_id)
    live = rows.filter(status__in=("queued", "working", "input_required", "paused"))
    task = live.exclude(id__in=scene.damaged).order_by("?").first()
    if task is None:
        return False
    scene.heard("storm_of_steering", people.storm(scene.world, scene.chance, task))
    return True


def _waiting(scene: Scene) -> Task | None:
    rows = Task.objects.for_tenant(scene.world.tenant_id).filter(status="input_required")
    found: Task | None = rows.exclude(id__in=scene.damaged).order_by("?").first()
    return found


ACTS: tuple[Fault, ...] = (
    kill_worker,
    freeze_worker,
    cut_session,
    change_clock,
    lose_messages,
    triple_messages,
    flush_redis,
    fill_disk,
    flip_bit,
    race_for_approval,
    storm_of_steering,
    kill_sweeper,
    kill_machine,
    restart_redis,
    redis_away,
    restart_postgres,
)
SHARES = {act.__name__: (WEIGHTS[act.__name__], act) for act in ACTS}


def draw(count: int, names: list[str], chance: random.Random) -> list[str]:
    """Return the names of so many faults in a random order, each named kind at least once."""
    drawn = names[:count]
    weights = [SHARES[name][0] for name in names]
    drawn += chance.choices(names, weights, k=max(0, count - len(drawn)))
    chance.shuffle(drawn)
    return drawn


def facts_of(name: str) -> dict[str, Any]:
    """Return what a kind of fault is, for the report."""
    return {"share": SHARES[name][0], "what": (SHARES[name][1].__doc__ or "").strip()}
