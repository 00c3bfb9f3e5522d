"""Threads that act at the same time, and locks that decide in which order they are served."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import QuerySet

from runtime_project.local.processes import wait_until
from tasks_app.models import Task

PATIENCE_SECONDS = 30.0


class Actor:
    """One thread with a database connection of its own; it starts at once."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._act = act
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def result(self) -> Any:
        """Return what the act returned, or the exception or signal that it ended with."""
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive(), "the actor never ended"
        return self._value if self._error is None else self._error

    def _run(self) -> None:
        try:
            self._value = self._act()
        except BaseException as error:  # noqa: BLE001 - signals of the engine are results here
            self._error = error
        finally:
            connection.close()


def together(acts: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run the acts in threads that all stand at one barrier first; return their results."""
    barrier = threading.Barrier(len(acts))

    def start(act: Callable[[], Any]) -> Any:
        # Connected before the barrier, so that nobody is late for lack of a session.
        connection.ensure_connection()
        barrier.wait(PATIENCE_SECONDS)
        return act()

    actors = [Actor(lambda act=act: start(act)) for act in acts]  # type: ignore[misc]
    return [actor.result() for actor in actors]


def row_held(task_id: UUID, *, until_waiting: int) -> AbstractContextManager[None]:
    """Hold a task's row; let go when so many sessions wait for a lock."""
    rows = Task.objects.all_tenants("a test holds the row").filter(pk=task_id)
    return rows_held(rows, until_waiting=until_waiting)


@contextmanager
def rows_held(rows: QuerySet[Any], *, until_waiting: int) -> Iterator[None]:
    """Hold rows; let go when so many sessions wait for a lock.

    What the waiting ones read before they asked for the row is old by then: the worst order.
    """
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            list(rows.select_for_update(no_key=True))
            held.set()
            done.wait(PATIENCE_SECONDS)

    holder = Actor(hold)
    assert held.wait(PATIENCE_SECONDS)
    try:
        yield
        waited = wait_until(lambda: waiting() >= until_waiting, seconds=PATIENCE_SECONDS)
        assert waited, f"only {waiting()} wait"
    finally:
        done.set()
        assert holder.result() is None


def waiting() -> int:
    """Return how many sessions of this database wait for a lock."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return int(cursor.fetchone()[0])
