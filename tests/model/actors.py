"""Threads that advance only when told: from one sync point to the next, one thread at a time.

An actor has a database connection of its own. It stops at each sync point, sometimes before a
statement, and after each commit that somebody waits for. Whoever lets it go on may kill it
instead: it then writes nothing more, as a process after SIGKILL.
"""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.db import DatabaseError, connection

from tests.support.oracles import OracleViolation

# Before so many statements an actor stops as well.
STATEMENT_SHARE = 0.04
# After so many statements that took a lock, with the lock in its hands.
LOCKED_SHARE = 0.15
# Nothing that an actor is given to do takes so many.
MAX_STATEMENTS = 3000


class Killed(BaseException):
    """Ends an actor wherever it stands."""


class Actor:
    """One thread that acts when it is given something to do and stops where the seed may choose."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.chance = random.Random(name)  # noqa: S311 - repeatable, not secret
        self.at = ""
        self.detail = ""
        self.is_idle = True
        self.is_blocked = False
        self.is_doomed = False
        # Its process was asked to end (SIGTERM).
        self.is_stopping = False
        self.fails: BaseException | None = None
        self.backend_pid = 0
        # Stops for the sake of those who wait for its locks; set by the scheduler.
        self.gives_way = False
        self.is_free = False
        # Stands inside a transaction: others may wait for its locks.
        self.holds_locks = False
        self.statements = 0
        self.last_stop = ""
        self._act: Callable[[], object] | None = None
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._stopped.acquire()

    # --- the scheduler's side ------------------------------------------------------------------

    def start(self, act: Callable[[], object]) -> None:
        """Give an idle actor something to do; it runs to its first stop."""
        assert self.is_idle, f"{self.name} is at {self.at}"
        self._act, self.is_idle, self.is_doomed, self.fails = act, False, False, None
        self.statements, self.last_stop = 0, ""
        self._go.release()

    def go_on(self) -> None:
        """Let it run from where it stopped to its next stop."""
        self._go.release()

    def kill(self) -> None:
        """Let it end where it stopped, without another statement."""
        self.is_doomed = True
        self._go.release()

    def wait_stopped(self, seconds: float) -> bool:
        """Wait until it has stopped, or come to its end."""
        return self._stopped.acquire(timeout=seconds)

    def end(self) -> None:
        """End the thread of an idle actor and close its connection."""
        self._act, self.is_idle = None, False
        self._go.release()
        self._thread.join(5)

    # --- the actor's side ----------------------------------------------------------------------

    def stop(self, at: str, detail: str = "") -> None:
        """Stand still until the scheduler lets it go on. Raises: Killed."""
        if self.is_doomed:
            raise Killed
        if self.is_free:
            return
        self.at, self.detail, self.holds_locks = at, detail, connection.in_atomic_block
        self._stopped.release()
        self._go.acquire()
        self.last_stop, self.at, self.holds_locks = at, "", False
        if self.is_doomed:
            raise Killed

    def count_statement(self) -> None:
        """Count; what never comes to its end is a violation. Raises: Killed."""
        self.statements += 1
        if self.statements > MAX_STATEMENTS:
            self.fails = OracleViolation("O12", f"{self.name} goes round in circles")
            self.is_doomed = True
            raise Killed

    def _run(self) -> None:
        _current.actor = self
        with _watched(self):
            self._connect()
            self._stopped.release()
            while self._wait_for_act():
                assert self._act is not None
                try:
                    self._act()
                except Killed:
                    pass
                except BaseException as error:  # noqa: BLE001 - judged by whoever gave the act
                    self.fails = error
                with unseen():
                    self._clean()
                self.at, self.is_idle = "", True
                self._stopped.release()
        connection.close()

    def _wait_for_act(self) -> bool:
        self._go.acquire()
        return self._act is not None

    def _connect(self) -> None:
        with connection.cursor() as cursor:
            # What is lost with a crash of the server is no part of this model, so do not wait.
            cursor.execute("SET synchronous_commit = off")
            cursor.execute("SET statement_timeout = '60s'")
            # Standing still is what an actor does.
            cursor.execute("SET idle_in_transaction_session_timeout = 0")
            cursor.execute("SELECT pg_backend_pid()")
            (self.backend_pid,) = cursor.fetchone()

    def _clean(self) -> None:
        """Leave the connection as a new process would have it."""
        self.is_doomed = False
        raw: Any = connection
        if raw.in_atomic_block or raw.needs_rollback or raw.run_on_commit or raw.connection is None:
            raw.run_on_commit = []
            connection.close()
        # An error of the slice may have closed it, too.
        is_same = raw.connection is not None and not raw.connection.closed
        if not is_same or raw.connection.info.backend_pid != self.backend_pid:
            connection.close()
            self._connect()
        raw.run_commit_hooks_on_set_autocommit_on = False


class _Current(threading.local):
    actor: Actor | None = None


_current = _Current()


def current() -> Actor | None:
    """Return the actor whose thread this is; None in a test's own thread."""
    return _current.actor


@contextmanager
def unseen() -> Iterator[None]:
    """Let a look of the test itself be no place to stop."""
    actor = current()
    if actor is None:
        yield
        return
    was, actor.is_free = actor.is_free, True
    try:
        yield
    finally:
        actor.is_free = was


@contextmanager
def _watched(actor: Actor) -> Iterator[None]:
    """Stop the actor at some statements, and after commits that others wait for."""
    raw: Any = connection
    commit, rollback = raw._commit, raw._rollback

    def commit_and_stop() -> None:
        if actor.is_doomed:
            raise Killed
        commit()
        _give_way(actor, "commit")

    def rollback_and_stop() -> None:
        with suppress(DatabaseError):
            rollback()
        if not actor.is_doomed:
            _give_way(actor, "rollback")

    def before_statement(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if actor.is_doomed:
            raise Killed
        if not actor.is_idle and actor.chance.random() < STATEMENT_SHARE:
            actor.stop("statement", sql.split(None, 1)[0])
        actor.count_statement()
        result = execute(sql, params, many, context)
        if not connection.in_atomic_block:
            _give_way(actor, "statement.after")
        elif "UPDATE" in sql[-40:] and not actor.is_idle and actor.chance.random() < LOCKED_SHARE:
            actor.stop("locked")
        return result

    raw._commit, raw._rollback = commit_and_stop, rollback_and_stop
    with connection.execute_wrapper(before_statement):
        yield


def _give_way(actor: Actor, at: str) -> None:
    if actor.gives_way and not actor.is_idle:
        actor.stop(at)
