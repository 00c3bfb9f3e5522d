"""Workers of the model: an actor stands for a process that executes slices and may die."""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg
from django.db import connection
from typing_extensions import override

from tasks_app.engine import lease, slice_runner
from tests.model.actors import Actor


class LockSession:
    """The session that holds the locks by which workers of the model are known to live."""

    def __init__(self) -> None:
        parameters: Any = connection.get_connection_params()
        self._session = psycopg.connect(
            autocommit=True,
            **{
                k: v
                for k, v in parameters.items()
                if k in {"dbname", "host", "port", "user", "password"}
            },
        )

    def call(self, function: str, key: int) -> None:
        """Take or release one lock."""
        self._session.execute(f"SELECT {function}(%s)", [key])

    def close(self) -> None:
        """Release all of them."""
        self._session.close()


class WorkerKeeper(lease.Keeper):
    """Keeps the lease of one worker; its renewals are steps of the schedule, not of a thread."""

    def __init__(self, locks: LockSession) -> None:
        super().__init__()
        self._locks = locks

    @override
    def wait_locked(self) -> None:
        """Take the worker's lock, unless it is held."""
        if not self._holds:
            self._locks.call("pg_advisory_lock", self.lock_key)
            self._holds = True

    def lose_lock(self) -> None:
        """Lose the lock with the session that held it: a death, or a cut connection."""
        if self._holds:
            self._locks.call("pg_advisory_unlock", self.lock_key)
            self._holds = False

    @property
    def kept(self) -> lease.Lease | None:
        """Return the lease that wants renewal."""
        kept = self._lease
        return None if kept is None or kept.lost else kept

    def renew(self) -> None:
        """Renew as the keeper's thread would, with the lock held again."""
        kept = self.kept
        if kept is not None:
            self.wait_locked()
            self._renew(kept)


@dataclass
class Worker:
    """One process that executes slices; after a death the next one takes its place."""

    actor: Actor
    locks: LockSession
    keeper: WorkerKeeper = field(init=False)
    crashes: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.be_born()

    def be_born(self) -> None:
        """Begin a life: another lock, no lease."""
        self.keeper = WorkerKeeper(self.locks)
        self.actor.is_stopping = False

    def die(self) -> None:
        """End this life, as the operating system does: its lock falls free."""
        self.keeper.lose_lock()
        self.be_born()

    def work(self, task_id: UUID | None) -> None:
        """Run one slice; what goes wrong in it is kept, since a worker outlives it."""
        lease.own_keeper.set(self.keeper)
        try:
            slice_runner.run_slice(task_id)
        except Exception as error:  # noqa: BLE001 - judged with the rest of the seed
            self.crashes.append(error)
