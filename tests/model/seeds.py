"""Plays one seed: draws what happens next until the faults end, lets all settle, and judges."""

import random
import secrets
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from django.db import connection, transaction

from tasks_app.admission import principal, tasks
from tasks_app.domain.principal import Principal
from tasks_app.domain.states import TERMINAL
from tasks_app.engine import recovery
from tasks_app.models import Task
from tests import factories
from tests.model import workflow
from tests.model.actors import Actor
from tests.model.people import Approver, Operator
from tests.model.scheduler import Scheduler
from tests.model.seams import seeded
from tests.model.workers import LockSession, Worker
from tests.model.world import GRACE_SECONDS, LEASE_SECONDS, OtherSide, World, picture
from tests.support import outside_oracles
from tests.support.evidence import Evidence, collect
from tests.support.oracles import OracleViolation, check_evidence, demand

EXPIRY_SECONDS = LEASE_SECONDS + GRACE_SECONDS + 1
# A pause that ends timers and retries, and leaves leases to their renewal.
PAUSE_SECONDS = 1500.0
SETTLE_ROUNDS = 60
# A worker here has looked at its lease for the last time, and the other side has not acted:
# nobody can take a request back that is on its way, so no time passes meanwhile.
ON_THE_WAY = ("outside.request", "queryable")

# The passes of a sweeper, and how often a seed asks for each.
_PASSES = {
    "recover_lost": 6,
    "owe_due": 1,
    "expire_questions": 2,
    "fail_overdue": 1,
}

Option = tuple[float, Callable[[], None]]


class Bench:
    """What all seeds of one test run share: threads, sessions, a tenant and its people."""

    def __init__(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET synchronous_commit = off")
            # Nobody may make the seed itself wait.
            cursor.execute("SET lock_timeout = '5s'")
        self.tenant = factories.make_tenant(slug=f"model-{secrets.token_hex(4)}")
        # Made at the first admission otherwise, which would give the first seed other ids.
        factories.make_agent(self.tenant)
        self.submitter = self._person("submitter")
        self.locks = LockSession()
        self.workers = [Worker(Actor(f"worker{n}"), self.locks) for n in (1, 2)]
        self.sweeper, self.renewer = Actor("sweeper"), Actor("renewer")
        self.operators = [Operator(self._person("operator"), Actor(f"operator{n}")) for n in (1, 2)]
        self.approvers = [Approver(self._person("approver"), Actor(f"approver{n}")) for n in (1, 2)]

    def _person(self, role: str) -> Principal:
        return principal.from_user(factories.make_member(self.tenant, role), self.tenant.id)

    @property
    def people(self) -> list[Operator | Approver]:
        """Return everybody who acts through a door."""
        return [*self.operators, *self.approvers]

    @property
    def actors(self) -> list[Actor]:
        """Return all of them in a fixed order."""
        return [
            *(worker.actor for worker in self.workers),
            self.sweeper,
            self.renewer,
            *(person.actor for person in self.people),
        ]

    def close(self) -> None:
        """End the threads and close every session."""
        for actor in self.actors:
            actor.end()
        self.locks.close()


@dataclass
class Played:
    """What came of a seed."""

    seed: int
    trace: list[str]
    violation: OracleViolation | None = None
    crashes: list[BaseException] = field(default_factory=list)
    statuses: tuple[str, ...] = ()

    def report(self) -> str:
        """Return what a person needs to find the fault: schedule, oracle, how to replay."""
        lines = [f"seed {self.seed}", *self.trace, "", str(self.violation)]
        lines += [f"crashed: {error!r}" for error in self.crashes]
        return "\n".join([*lines, f"Replay: python3 manage.py schedules --seed {self.seed}"])


def play(bench: Bench, seed: int) -> Played:
    """Play one seed on a bench where nothing runs."""
    run = _Run(bench, seed)
    with seeded(run.world, run.chance):
        try:
            run.begin()
            run.disturb()
            run.settle()
            run.judge()
        except Exception as error:  # noqa: BLE001 - whatever an actor ended with is a finding
            run.played.violation = _violation_of(error)
            run.abandon()
        finally:
            run.end()
    return run.played


def _violation_of(error: Exception) -> OracleViolation:
    if isinstance(error, OracleViolation):
        return error
    trace = "".join(traceback.format_exception(error)[-6:])
    return OracleViolation("O12", f"somebody ended by an error of our own: {trace}")


class _Run:
    """One seed in the making."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench = bench
        self.chance = random.Random(f"schedule {seed}")  # noqa: S311 - repeatable, not secret
        self.scheduler = Scheduler(bench.actors)
        outside = random.Random(f"outside {seed}")  # noqa: S311 - likewise
        self.world = World(seed, bench.tenant.id, OtherSide(outside))
        self.played = Played(seed, self.scheduler.trace)
        self.task_ids: list[UUID] = []
        self.asks = False
        # Seeds differ in what goes wrong most: one kind of fault must meet itself to hurt.
        self.people, self.faults = self.chance.choice([(1, 1), (4, 1), (3, 3), (0.3, 4)])
        self.kills = self.cuts = self.edits = self.turn = 0
        self.frozen: tuple[Worker | None, int] = (None, 0)

    def begin(self) -> None:
        """Admit the tasks of the seed."""
        for actor in self.bench.actors:
            actor.chance = random.Random(f"{actor.name} {self.world.seed}")  # noqa: S311 - likewise
        for worker in self.bench.workers:
            worker.crashes.clear()
        for number in range(self.chance.choice([1, 1, 2])):
            script = workflow.draw_script(self.chance)
            admitted = tasks.admit_task(
                self.bench.submitter,
                workflow=workflow.NAME,
                goal={"script": script},
                source="code",
                checkpoint_policy={"every_steps": self.chance.randint(1, 4)},
            )
            self.task_ids.append(admitted.task_id)
            self.world.names[str(admitted.task_id)] = f"task{number + 1}"
            self.scheduler.note(f"task{number + 1}: {[o['op'] for o in script]}")
            self.asks = self.asks or any(o["op"] == "asked" for o in script)
        for operator in self.bench.operators:
            operator.begin(self.task_ids)
        for approver in self.bench.approvers:
            approver.begin(self.task_ids)

    # --- faults ----------------------------------------------------------------------------------

    def disturb(self) -> None:
        """Let the seed decide, turn by turn, who goes on and what goes wrong."""
        for turn in range(self.chance.randint(30, 90)):
            self.turn = turn
            options = self._options()
            weights = [weight for weight, _ in options]
            self.chance.choices(options, weights)[0][1]()
            self._check_witness()

    def _check_witness(self) -> None:
        if self.world.violation is not None:
            raise self.world.violation

    def _options(self) -> list[Option]:
        options: list[Option] = []
        frozen, until = self.frozen
        for actor in self.scheduler.stopped:
            if frozen is not None and actor is frozen.actor and self.turn < until:
                continue
            options.append((4.0, partial(self.scheduler.go_on, actor)))
        for worker in self.bench.workers:
            options += self._options_of(worker)
        if self.bench.sweeper.is_idle:
            options.append((1.0, self._sweep))
        for person in self.bench.people:
            if person.actor.is_idle:
                options.append((0.2 * self.people, partial(self._person_acts, person)))
        return options + self._faults()

    def _options_of(self, worker: Worker) -> list[Option]:
        actor, options = worker.actor, list[Option]()
        if actor.is_idle:
            weight = 5.0 if self.world.messages else 0.3
            return [(weight, lambda: self._deliver(worker))]
        # Where a call to the outside is open, a death matters most.
        risk = 4 if actor.at.startswith(("effect.", "outside.")) else 1
        if not actor.is_blocked:
            if self.kills < 3:
                options.append((0.15 * self.faults * risk, lambda: self._kill(worker)))
            options.append((0.03, lambda: self._terminate(worker)))
            if worker.keeper.kept is not None and not self._is_on_the_way():
                options.append((0.1 * self.faults * risk, lambda: self._freeze(worker)))
        if worker.keeper.kept is not None and self.bench.renewer.is_idle:
            options.append((0.4, lambda: self._renew(worker)))
        if worker.keeper.kept is not None and self.cuts < 1 and not self._is_on_the_way():
            options.append((0.05 * self.faults, lambda: self._cut(worker)))
        return options

    def _faults(self) -> list[Option]:
        options: list[Option] = []
        if self.world.messages:
            options.append((0.2, self._double))
            options.append((0.1, self._lose))
        if self.edits < 1 and self.asks:
            options.append((0.3, self._edit))
        if not self._is_on_the_way():
            pause = 0.5 if self.asks else 0.15
            options.append((pause, lambda: self._pass_time(PAUSE_SECONDS)))
            options.append((0.05 * self.faults, lambda: self._pass_time(EXPIRY_SECONDS)))
        return options

    def _is_on_the_way(self) -> bool:
        return any((a.at, a.detail) == ON_THE_WAY for a in self.bench.actors)

    def _person_acts(self, person: Operator | Approver) -> None:
        self._start(person.actor, person.act, "acts")

    def _start(self, actor: Actor, act: Callable[[], object], what: str) -> None:
        self.scheduler.start(actor, act, what)

    def _sweep(self) -> None:
        name = self.chance.choices(list(_PASSES), list(_PASSES.values()))[0]
        self._start(self.bench.sweeper, getattr(recovery, name), name)

    def _sweep_all(self) -> None:
        self._start(self.bench.sweeper, recovery.sweep, "sweeps")

    def _deliver(self, worker: Worker) -> None:
        messages = self.world.messages
        task_id = messages.pop(self.chance.randrange(len(messages))) if messages else None
        what = f"gets a message about {self.world.name(task_id)}" if task_id else "polls"
        self._start(worker.actor, lambda: worker.work(task_id), what)

    def _renew(self, worker: Worker) -> None:
        self._start(self.bench.renewer, worker.keeper.renew, f"renews for {worker.actor.name}")

    def _kill(self, worker: Worker) -> None:
        self.kills += 1
        self.scheduler.kill(worker.actor)
        worker.die()

    def _terminate(self, worker: Worker) -> None:
        self.scheduler.note(f"{worker.actor.name} is told to stop")
        worker.actor.is_stopping = True

    def _cut(self, worker: Worker) -> None:
        self.cuts += 1
        self.scheduler.note(f"{worker.actor.name} loses the session of its keeper")
        kept = worker.keeper.kept
        if kept is not None:
            self.world.cut.add(kept.task.id)
        worker.keeper.lose_lock()

    def _freeze(self, worker: Worker) -> None:
        """Stop a worker for longer than its lease, and let another one go on."""
        self.scheduler.note(f"{worker.actor.name} freezes")
        self.frozen = worker, self.turn + 15
        self._pass_time(EXPIRY_SECONDS)
        if self.bench.sweeper.is_idle:
            self._start(self.bench.sweeper, recovery.recover_lost, "recover_lost")

    def _edit(self) -> None:
        """Somebody with rights on the database changes the act that an approval is about."""
        self.scheduler.note("the arguments of an approved act are edited")
        with connection.cursor() as cursor:
            cursor.execute(_EDIT, [self.task_ids])
            self.edits += cursor.rowcount

    def _double(self) -> None:
        self.scheduler.note("a message is sent twice")
        self.world.messages.append(self.chance.choice(self.world.messages))

    def _lose(self) -> None:
        self.scheduler.note("a message is lost")
        self.world.messages.pop(self.chance.randrange(len(self.world.messages)))

    def _pass_time(self, seconds: float) -> None:
        self.scheduler.note(f"{seconds:.0f} seconds pass")
        self.world.pass_time(seconds, self.task_ids)

    # --- rest ------------------------------------------------------------------------------------

    def settle(self) -> None:
        """End all faults: everybody goes on, sweepers sweep, messages come, until all rests."""
        self.scheduler.note("the faults end")
        self._let_all_finish()
        for _ in range(SETTLE_ROUNDS):
            if not self._work_off():
                break
        self._check_witness()
        open_tasks = [t.status for t in self._tasks() if t.status not in _RESTING]
        demand(not open_tasks, "O12", f"after {SETTLE_ROUNDS} rounds still {open_tasks}")

    def _let_all_finish(self) -> None:
        while self.scheduler.stopped:
            self.scheduler.go_on(self.scheduler.stopped[0])
        for actor in self.bench.actors:
            demand(actor.is_idle, "O12", f"{actor.name} waits for a lock that nobody holds")

    def _work_off(self) -> bool:
        """Do what is due; return whether anything was left to be done."""
        for actor in self.bench.actors:
            actor.is_free = True
        try:
            worker = self.bench.workers[0]
            if worker.actor.is_stopping:
                worker.die()
            self._sweep_all()
            while self.world.messages:
                self._deliver(worker)
                self._check_witness()
            states = {task.status for task in self._tasks()}
            if states <= _RESTING:
                return False
            self._pass_time(EXPIRY_SECONDS)
            return True
        finally:
            for actor in self.bench.actors:
                actor.is_free = False

    def _tasks(self) -> list[Task]:
        rows = Task.objects.for_tenant(self.bench.tenant.id).filter(pk__in=self.task_ids)
        return list(rows.order_by("created_at"))

    # --- the truth -------------------------------------------------------------------------------

    def judge(self) -> None:
        """Ask every oracle. Raises: OracleViolation."""
        crashes = [repr(error) for worker in self.bench.workers for error in worker.crashes]
        demand(not crashes, "O12", f"slices ended by errors of our own: {crashes}")
        for evidence in collect(self._tasks()):
            check_evidence(evidence, at_rest=True)
            self._judge_outside(evidence)
        self.played.statuses = tuple(task.status for task in self._tasks())

    def _judge_outside(self, evidence: Evidence) -> None:
        task, other_side = evidence.task, self.world.other_side
        outside_oracles.check_acts(evidence, other_side.counts(task.id))
        calls = [c for o in self.bench.operators for c in o.calls if c.task_id == task.id]
        outside_oracles.check_answers(evidence, calls)
        certain = {
            source
            for source in other_side.used[task.id]
            for step in evidence.steps
            if step.status == "succeeded" and source.startswith(f"{step.key}:")
        }
        outside_oracles.check_usage(evidence, other_side.used[task.id], certain=certain)
        _, final = picture(task.id)
        outside_oracles.check_frames(
            evidence,
            self.world.frames[task.id],
            final,
            self.chance,
            lossless=self.kills == 0,
        )
        if self.world.seed % 20 == 0:
            outside_oracles.check_edit_is_found(task.id, self.chance)

    # --- end -------------------------------------------------------------------------------------

    def abandon(self) -> None:
        """Kill everybody after a violation, so that the next seed finds an empty bench."""
        self.scheduler.cancel_blocked()
        for actor in self.bench.actors:
            if not actor.is_idle:
                if not actor.is_blocked:
                    actor.kill()
                actor.wait_stopped(10)
                actor.is_blocked = False
                actor.fails = None
        _remove(self.task_ids)

    def end(self) -> None:
        """Leave the bench as the next seed expects it."""
        for worker in self.bench.workers:
            self.played.crashes += worker.crashes
            worker.die()


# Like the passing of time it waits for nobody who holds a task.
_EDIT = """
WITH free AS MATERIALIZED (
    SELECT id FROM tasks_app_task WHERE id = ANY(%s) FOR UPDATE SKIP LOCKED
)
UPDATE tasks_app_step s SET arguments = jsonb_set(arguments, '{args,0,v}', '"edited"')
FROM free WHERE s.task_id = free.id AND s.kind = 'effect' AND s.options ? 'approval'
    AND s.status = 'planned' AND EXISTS (
        SELECT FROM tasks_app_approval a
        WHERE a.task_id = free.id AND a.status IN ('pending', 'approved'))
"""


def _remove(task_ids: list[UUID]) -> None:
    """Take broken tasks out of the way of later seeds, whatever the database's guards say."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE tasks_app_task DISABLE TRIGGER USER")
        cursor.execute("DELETE FROM tasks_app_outbox WHERE task_id = ANY(%s)", [task_ids])
        cursor.execute(
            "UPDATE tasks_app_task SET status = 'cancelled', next_wake_at = NULL,"
            " lease_owner = NULL, lease_lock = NULL, lease_expires_at = NULL WHERE id = ANY(%s)",
            [task_ids],
        )
        cursor.execute("ALTER TABLE tasks_app_task ENABLE TRIGGER USER")


_RESTING = TERMINAL | {"dead_lettered", "paused", "input_required"}
