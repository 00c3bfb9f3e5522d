"""One run: work comes in, faults happen, people serve; then everything must settle."""

import random
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from django.db import DatabaseError, InterfaceError, connection

from runtime_project.local.processes import wait_until
from tasks_app.models import Task
from tests.faults import people, work
from tests.faults.kinds import SHARES, Scene, draw
from tests.faults.world import World
from tests.support.outside_oracles import HELD_BY_A_PERSON
from tests.support.workers import TIMES

ATTEND_SECONDS = 0.4
# A fault that finds nothing to hurt is tried again later, until so long after the last one.
LATE_SECONDS = 60.0
SETTLE_SECONDS = (
    30.0 + float(TIMES["RUNTIME_LEASE_SECONDS"]) + float(TIMES["RUNTIME_GRACE_SECONDS"])
)
STUCK_SECONDS = 240.0


@dataclass
class Outcome:
    """What happened in a run."""

    faults: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    fault_seconds: float = 0.0
    settle_seconds: float = 0.0
    settled: bool = False
    workers_ended: int = 0


class Run:
    """The loop of one run; everything happens in this one thread."""

    def __init__(
        self,
        world: World,
        *,
        count: int,
        kinds: list[str],
        seed: int,
        seconds: float,
        faults_a_second: float,
    ) -> None:
        self.world = world
        self.chance = random.Random(seed)  # noqa: S311 - a seed that can be given again
        self.scene = Scene(world, self.chance)
        self.outcome = Outcome()
        self._seconds = seconds
        self._pace = faults_a_second
        self._coming = deque(draw(count, kinds, self.chance))
        self._began = self._attended = time.monotonic()
        self._given = 0

    def go(self) -> Outcome:
        """Let the faults happen, then wait until everything rests."""
        wait_until(self._is_over, seconds=self._seconds)
        self.outcome.fault_seconds = time.monotonic() - self._began
        self.outcome.missed = Counter(self._coming)
        self.scene.do_due(everything=True)
        ended_at = time.monotonic()
        self.outcome.settled = wait_until(self._rests, seconds=STUCK_SECONDS)
        self.outcome.settle_seconds = time.monotonic() - ended_at
        return self.outcome

    def _is_over(self) -> bool:
        if not self._coming:
            return True
        self.scene.do_due()
        self._through_outages(self._live)
        if self._is_late():
            return True
        if time.monotonic() - self._began >= self._given / self._pace:
            self._through_outages(self._hurt)
        return False

    def _is_late(self) -> bool:
        planned = (self._given + len(self._coming)) / self._pace
        return time.monotonic() - self._began > 1.5 * planned + LATE_SECONDS

    def _hurt(self) -> None:
        name = self._coming.popleft()
        try:
            happened = SHARES[name][1](self.scene)
        except (DatabaseError, InterfaceError):
            self._coming.append(name)
            raise
        if happened:
            self._given += 1
            self.outcome.faults[name] += 1
        else:
            self._coming.append(name)

    def _live(self) -> None:
        """Keep so many tasks open, and serve those that wait for a person."""
        self._notice_ended_workers()
        if time.monotonic() - self._attended < ATTEND_SECONDS:
            return
        self._attended = time.monotonic()
        people.attend(self.world, self.scene.damaged)
        for _ in range(work.OPEN_TASKS - self._count_open()):
            script = work.script(self.world, self.chance)
            if self.chance.random() < 0.2:
                script.insert(len(script) // 2, work.question())
            if self.world.submit(script) is None:
                return

    def _rests(self) -> bool:
        self._through_outages(lambda: people.attend(self.world, self.scene.damaged))
        try:
            return not self._count_open() and not self._waiting()
        except (DatabaseError, InterfaceError):
            connection.close()
            return False

    def _count_open(self) -> int:
        rows = Task.objects.for_tenant(self.world.tenant_id)
        return rows.exclude(status__in=[str(status) for status in HELD_BY_A_PERSON]).count()

    def _waiting(self) -> int:
        rows = Task.objects.for_tenant(self.world.tenant_id)
        waiting = rows.filter(status__in=("input_required", "paused"))
        return waiting.exclude(id__in=self.scene.damaged).count()

    def _notice_ended_workers(self) -> None:
        fleet = self.world.fleet
        for worker in [worker for worker in fleet.workers if not worker.is_running()]:
            self.outcome.workers_ended += 1
            fleet.workers.remove(worker)
            fleet.add_worker(concurrency=self.world.children)

    def _through_outages(self, act: Callable[[], None]) -> None:
        try:
            act()
        except (DatabaseError, InterfaceError):
            connection.close()
