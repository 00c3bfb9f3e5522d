"""Lets one actor at a time run to its next stop, in an order that a seed decides.

An actor that waits in the database for a lock of another is blocked, which only the database
knows. It goes on by itself when the other commits; so whoever commits while somebody is blocked
stops right there, until the blocked one has come to a stop of its own. Nothing ever runs at the
same time, and the same seed gives the same order.
"""

import time
from collections.abc import Iterable
from typing import Any

from django.db import connections

from tests.model.actors import Actor
from tests.support.oracles import OracleViolation

# A stop comes within this time, or the actor waits for a lock.
FIRST_LOOK_SECONDS = 0.004
HANG_SECONDS = 30.0


class Scheduler:
    """Whose turn it is, who waits for whom, and what happened so far."""

    def __init__(self, actors: Iterable[Actor]) -> None:
        self.actors = list(actors)
        self.trace: list[str] = []

    @property
    def stopped(self) -> list[Actor]:
        """Return the actors that stand at a stop and may go on."""
        return [a for a in self.actors if not a.is_idle and not a.is_blocked]

    def note(self, line: str) -> None:
        """Add a line to the schedule."""
        self.trace.append(line)

    def start(self, actor: Actor, act: Any, what: str) -> None:
        """Give an actor something to do, up to its first stop."""
        self.note(f"{actor.name}: {what}")
        actor.start(act)
        self.settle(actor)

    def go_on(self, actor: Actor) -> None:
        """Let an actor run from its stop to the next one."""
        self.note(_line(actor))
        actor.go_on()
        self.settle(actor)

    def kill(self, actor: Actor) -> None:
        """Kill an actor where it stands."""
        self.note(f"{_line(actor)} KILLED")
        actor.kill()
        self.settle(actor)

    def settle(self, actor: Actor) -> None:
        """Wait until the actor, and everybody it let go, has stopped or waits for a lock."""
        self._wait(actor)
        while True:
            waiting = [a for a in self.actors if a.is_blocked]
            if not any(self._wait_if_freed(a) for a in waiting):
                break
        self._tell_whether_to_give_way()
        _check_error(actor)

    def _tell_whether_to_give_way(self) -> None:
        is_somebody_blocked = any(a.is_blocked for a in self.actors)
        for actor in self.actors:
            actor.gives_way = is_somebody_blocked

    def _wait_if_freed(self, actor: Actor) -> bool:
        """Wait for a blocked actor whose lock has come; tell whether it had."""
        if self._blockers(actor):
            return False
        self._wait(actor)
        if not actor.is_blocked:
            _check_error(actor)
        return not actor.is_blocked

    def _wait(self, actor: Actor) -> None:
        """Wait until an actor that runs has stopped, or is found to wait for a lock."""
        since = time.monotonic()
        is_alone = not any(other.holds_locks for other in self.actors if other is not actor)
        while not actor.wait_stopped(1.0 if is_alone else FIRST_LOOK_SECONDS):
            blockers = self._blockers(actor)
            if blockers:
                if not actor.is_blocked:
                    self.note(f"{actor.name} waits for a lock of {', '.join(blockers)}")
                actor.is_blocked = True
                self._check_cycle(actor, blockers)
                return
            if time.monotonic() - since > HANG_SECONDS:
                raise OracleViolation("O12", f"{actor.name} hangs")
        actor.is_blocked = False

    def _blockers(self, actor: Actor) -> list[str]:
        with connections["default"].cursor() as cursor:
            cursor.execute("SELECT pg_blocking_pids(%s)", [actor.backend_pid])
            pids = set(cursor.fetchone()[0])
        return [other.name for other in self.actors if other.backend_pid in pids]

    def _check_cycle(self, actor: Actor, blockers: list[str]) -> None:
        by_name = {other.name: other for other in self.actors}
        seen, front = {actor.name}, list(blockers)
        while front:
            other = by_name[front.pop()]
            if other is actor:
                raise OracleViolation("O12", f"a deadlock: {actor.name} waits for itself")
            if other.name not in seen and other.is_blocked:
                seen.add(other.name)
                front += self._blockers(other)

    def cancel_blocked(self) -> None:
        """End the waiting of those who wait for locks: the run is over."""
        for actor in self.actors:
            if actor.is_blocked:
                actor.is_doomed = True
                with connections["default"].cursor() as cursor:
                    cursor.execute("SELECT pg_cancel_backend(%s)", [actor.backend_pid])


def _line(actor: Actor) -> str:
    detail = f" {actor.detail}" if actor.detail else ""
    return f"{actor.name} @ {actor.at}{detail}"


def _check_error(actor: Actor) -> None:
    error, actor.fails = actor.fails, None
    if error is not None:
        raise error
