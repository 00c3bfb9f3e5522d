"""What one slice holds in its hands, and the one place where it commits.

Results of pure steps are held back and committed together; everything that people or the outside
world could notice flushes them first (E20). A commit is one statement under the fence.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from django.db import connection, transaction

from ledger_app.domain.canonical import clean_text
from ledger_app.services.effect_sql import EffectPart
from ledger_app.services.statements import fetch_row
from tasks_app import conf, syncpoints
from tasks_app.domain.checkpoint import KEEP_NEWEST, compress
from tasks_app.domain.errors import EngineSignal, LeaseLost
from tasks_app.domain.states import TaskStatus
from tasks_app.engine import checkpoints, commit_sql, queue, shutdown, sql, transitions
from tasks_app.engine.held import Held, is_new, storable
from tasks_app.engine.lease import ClaimedTask, Lease
from tasks_app.engine.spending import Spending
from tasks_app.engine.values import Arguments
from tasks_app.events.catalogue import EventType
from tasks_app.models import Step, Task
from tasks_app.workflows.definition import CheckpointPolicy, StepDefinition, Workflow

# Held results are committed after so long, so that a person's command never waits for more.
MAX_HOLD_SECONDS = 1.0
# Between quick steps a slice looks for commands at most this often; between slow ones every time.
LOOK_SECONDS = 0.05
# How often a slice that had its share of time looks whether somebody else waits (E47).
WAITING_LOOK_SECONDS = 0.5
# The journal tells of progress at most this often.
PROGRESS_PAUSE_SECONDS = 0.25
PHASE_MAX = 100


class SliceDone(EngineSignal):
    """The slice has given its task away in an orderly manner."""

    def __init__(self, outcome: str) -> None:
        super().__init__(outcome)
        self.outcome = outcome


class SafePointNeeded(EngineSignal):
    """A command arrived before the slice could go on: apply it, then come back."""


@dataclass(frozen=True, slots=True)
class BoundStep:
    """The author's code behind a step: what it declares, and what to call with (ctx, …)."""

    declared: StepDefinition
    call: Callable[..., Any]


class SliceSession:
    """State of one slice; made at the claim, thrown away at its end."""

    def __init__(self, lease: Lease, definition: type[Workflow[Any, Any]]) -> None:
        self.lease = lease
        self.task: ClaimedTask = lease.task
        self.definition = definition
        self._workflow: Workflow[Any, Any] | None = None
        # A function is told of steps that failed for good; a plan fails with them.
        self.raises_failures = False
        # Steps of functions, whose code no method name leads to; by key.
        self.bound_steps: dict[str, BoundStep] = {}
        self.arguments = Arguments(self.task.tenant_id, self.task.id)
        self.policy = _checkpoint_policy(definition, self.task.checkpoint_policy)
        self.next_position = self.task.next_position
        self.next_key = ""
        # Names the step at a position, as far as the runner has read the plan.
        self.key_at: Callable[[int], str] = lambda _position: ""
        self.variables: dict[str, Any] = {}
        # Tells a checkpoint what is done; a function has a way of its own.
        self.completed_steps: Callable[[], list[str]] = self._completed_plan
        self._phase = ""
        self.step_began_at = time.monotonic()
        self.spending = Spending(self.task)
        self._references: checkpoints.References | None = None
        self._held = Held()
        self._units_since_checkpoint = 0
        self._checkpoint_at = time.monotonic()
        # The claim was the first look; whatever came between it and this slice's start is seen.
        self._looked_at = lease.claimed_at
        self._somebody_waits = False
        self._asked_who_waits_at = self.spending.started_at
        self._told_at, self._told_done = time.monotonic(), self.task.progress_done

    @property
    def workflow(self) -> Workflow[Any, Any]:
        """Return the author's object: made when its code is first needed, behind a safe point."""
        if self._workflow is None:
            syncpoints.reach("build.before", self.task.id, self.task.fence)
            self._workflow = self.definition()
        return self._workflow

    def run_plan(self) -> None:
        """Go by the stored plan from here on, whatever ran before."""
        self.raises_failures = False
        self.bound_steps.clear()
        self.completed_steps = self._completed_plan

    def bound(self, step: Step) -> BoundStep:
        """Return the author's code behind a step.

        Raises: ConfigurationError when the workflow has no such step.
        """
        found = self.bound_steps.get(step.key)
        if found is not None:
            return found
        declared = self.definition.step_definition(step.method)
        return BoundStep(declared, self.workflow.callable_of(step.method))

    @property
    def phase(self) -> str:
        """Return what people see that the task is at."""
        return self._phase

    @phase.setter
    def phase(self, text: str) -> None:
        self._phase = clean_text(text)[:PHASE_MAX]

    @property
    def references(self) -> checkpoints.References:
        """Return what checkpoints name; nothing is there to be read when a task first begins."""
        if self._references is None:
            task = self.task
            is_new = task.fence == 1 and task.checkpoint_seq == 0
            self._references = (
                checkpoints.References()
                if is_new
                else checkpoints.References.load(task.tenant_id, task.id)
            )
        return self._references

    # --- what the slice wants to have written --------------------------------------------------

    def hold_result(
        self,
        step: Step,
        status: str,
        *,
        result: dict[str, Any] | None = None,
        error: Mapping[str, Any] | None = None,
        finished: bool = True,
    ) -> None:
        """Hold a step's outcome for the next commit."""
        step.status = status
        step.error = error = None if error is None else storable(error)
        outcome = {
            "id": step.id,
            "status": status,
            "result": result,
            "error": error,
            "attempts": step.attempts,
            "next_item": step.next_item,
            "items_failed": step.items_failed,
            # How long ago the try began; the database turns it into its own time.
            "seconds": time.monotonic() - self.step_began_at,
            "finished": finished,
        }
        self._held.add_result(step, outcome)

    def store(self, *steps: Step, undisturbed: bool = True) -> None:
        """Store steps of a function that have no row yet, and what is held before them (E20).

        Args:
            undisturbed: refuse when a command waits.

        Transaction: its own. Locks: the task row. Raises: LeaseLost, SafePointNeeded.
        """
        new = [step for step in steps if is_new(step)]
        if not new:
            return
        with self.owned(undisturbed=undisturbed):
            self.commit()
            Step.objects.for_tenant(self.task.tenant_id).bulk_create(new)

    def hold_range(self, row: dict[str, Any], units: int) -> None:
        """Hold the results of a range of items."""
        self._held.add_range(row)
        self.count_units(units)

    def hold_event(self, event_type: str, data: Mapping[str, object]) -> None:
        """Hold a journal event; it becomes visible with the commit that it tells of."""
        self._held.add_event(event_type, data)

    def count_units(self, units: int) -> None:
        """Count finished work: one for a step, one for an item of a map."""
        self._held.units += units
        self.task.progress_done += units
        self._units_since_checkpoint += units
        self.spending.steps += units

    def grow_total(self, units: int) -> None:
        """Count work that became known: the items of a map."""
        self.task.progress_total = (self.task.progress_total or 0) + units

    # --- when to write it ----------------------------------------------------------------------

    @property
    def flush_due(self) -> bool:
        """Tell whether held results have waited long enough."""
        if self._held.is_empty:
            return False
        held_seconds = time.monotonic() - self._held.since
        return self.checkpoint_due or held_seconds >= MAX_HOLD_SECONDS

    @property
    def checkpoint_due(self) -> bool:
        """Tell whether the policy asks for a checkpoint with the next commit."""
        if self._units_since_checkpoint == 0:
            return False
        age = time.monotonic() - self._checkpoint_at
        return (
            self._units_since_checkpoint >= self.policy.every_steps
            or age >= self.policy.max_seconds
        )

    def commit(self, *, checkpoint: str = "") -> None:
        """Write everything held, and a checkpoint if one is due or asked for by reason.

        Transaction: one statement; joins the caller's transaction if there is one.
        Locks: the task row, then step rows.
        Raises: LeaseLost when a newer fence owns the task; nothing was written.
        """
        reason = checkpoint or ("policy" if self.checkpoint_due else "")
        if self._held.is_empty and not reason:
            return
        if not self._write(reason):
            self.lease.lost = True
            raise LeaseLost(self.task.id, self.task.fence)

    def commit_settled(self, act: EffectPart) -> bool:
        """Write everything held together with the end of the act whose result is among it.

        Transaction: one statement. Locks: the task row, the effect, the audit stream.

        Returns: False when the task is somebody else's or the act cannot end like that; nothing was
            written then, and all is still held.
        """
        held = replace(self._held, events=list(self._held.events))
        told = self._told_at, self._told_done
        if self._write("policy" if self.checkpoint_due else "", act):
            return True
        self._held = held
        self._told_at, self._told_done = told
        return False

    def _write(self, reason: str, act: EffectPart | None = None) -> bool:
        """Write everything held, with a checkpoint if there is a reason; False for no row."""
        self.lease.check()
        syncpoints.reach("step.before_commit", self.task.id, self.task.fence)
        held, self._held = self._held, Held()
        held.active_seconds, active_until = self.spending.active_until_now()
        document = self._checkpoint_row(reason, held) if reason else None
        self._tell_progress(held, is_last=reason not in {"", "policy"})
        for notice in self.spending.notices(held.units, held.active_seconds):
            held.events.append({"type": EventType.BUDGET, "data": notice})
        row = fetch_row(*self._statement(held, document, act))
        if row is None:
            return False
        self.spending.stored(held.active_seconds, active_until)
        self._committed(row[:4], held, is_checkpoint=document is not None)
        # An act's own point follows at once.
        if act is None and not connection.in_atomic_block:
            syncpoints.reach("step.after_commit", self.task.id, self.task.fence)
        return True

    def commit_progress(self) -> None:
        """Let people see how far a long step is; also writes what is held."""
        self.hold_event(EventType.PROGRESS, self._progress_told(time.monotonic()))
        self.commit()

    def _committed(self, row: tuple[Any, ...], held: Held, *, is_checkpoint: bool) -> None:
        task = self.task
        task.event_seq, task.checkpoint_seq, command_seq, task.status = row
        self.lease.command_seq = max(self.lease.command_seq, command_seq)
        self._looked_at = time.monotonic()
        if is_checkpoint:
            self._units_since_checkpoint = 0
            self._checkpoint_at = time.monotonic()
        first = task.event_seq - len(held.events) + 1
        for number, event in enumerate(held.events):
            transitions.tell(
                task.tenant_id,
                task.id,
                first + number,
                event["type"],
                self.progress,
                self.phase,
                task.state_version,
            )

    def _checkpoint_row(self, reason: str, held: Held) -> dict[str, Any]:
        document = checkpoints.build(
            self.task,
            self.references,
            next_step=self.next_key or self.key_at(self.next_position),
            next_position=self.next_position,
            completed=self.completed_steps(),
            variables=self.variables,
            now=self.lease.now.isoformat(),
        )
        held.events.append(
            {"type": EventType.CHECKPOINT, "data": {"checkpoint": document.checkpoint_seq}}
        )
        return checkpoints.row_of(document, reason)

    def _completed_plan(self) -> list[str]:
        done = compress(range(self.next_position))
        if not self.variables.get("next_item"):
            return done
        return [*done, f"{self.next_key}[0..{self.variables['next_item'] - 1}]"]

    def _statement(
        self, held: Held, document: dict[str, Any] | None, act: EffectPart | None
    ) -> tuple[str, dict[str, Any]]:
        """Return the commit of what is held as a statement with its parameters."""
        task = self.task
        return commit_sql.build(
            {
                "task_id": task.id,
                "fence": task.fence,
                "next_position": self.next_position,
                "units_done": held.units,
                "active_seconds": held.active_seconds,
                "progress_done": task.progress_done,
                "progress_total": task.progress_total,
                "phase": self.phase,
            },
            steps=list(held.steps.values()),
            added=list(held.added.values()),
            ranges=held.ranges,
            events=held.events,
            checkpoint=document,
            prunes=self.task.checkpoint_seq >= KEEP_NEWEST,
            settled=act,
        )

    def _tell_progress(self, held: Held, *, is_last: bool) -> None:
        """Add an event about finished work: at most four a second, and one before a rest (E13)."""
        now = time.monotonic()
        is_time = is_last or now - self._told_at >= PROGRESS_PAUSE_SECONDS
        if self.task.progress_done != self._told_done and is_time:
            held.events.append({"type": EventType.PROGRESS, "data": self._progress_told(now)})

    def _progress_told(self, now: float) -> dict[str, object]:
        self._told_at, self._told_done = now, self.task.progress_done
        return {"progress": self.progress, "phase": self.phase}

    @property
    def progress(self) -> float | None:
        """Return the finished share of the known work."""
        total = self.task.progress_total
        return min(1.0, self.task.progress_done / total) if total else None

    def take_over(self, task: Task) -> None:
        """Go on from a row that was changed under this slice's lock: by a command, or by an end."""
        known = self.task
        known.goal, known.status = task.goal, task.status
        known.workflow_version = task.workflow_version
        known.state_version, known.plan_version = task.state_version, task.plan_version
        known.plan_result, known.steering_cursor = task.plan_result, task.steering_cursor
        known.progress_done, known.progress_total = task.progress_done, task.progress_total
        known.event_seq, known.closing_as = task.event_seq, task.closing_as
        if self.next_position != task.next_position:
            self.next_position, self.next_key = task.next_position, ""
            self.variables = {}
        self.arguments.forget_all()

    # --- how it ends ---------------------------------------------------------------------------

    def end(self, outcome: str) -> None:
        """Note how the slice ended. Transaction: the one that gives the task away."""
        task = self.task
        ended = {"tenant_id": task.tenant_id, "slice_id": self.lease.slice_id, "outcome": outcome}
        fetch_row(sql.END_SLICE, {**ended, "steps": self.spending.steps})

    def ending(self, outcome: str) -> transitions.SliceEnd:
        """Return the same for a move that ends the slice in its own statement."""
        return transitions.SliceEnd(self.lease.slice_id, outcome, self.spending.steps)

    @property
    def is_spent(self) -> bool:
        """Tell whether the slice has used up its steps or seconds, or the worker stops (E43).

        It has fewer seconds while others wait that no worker serves (E47).
        """
        limits = conf.runtime()
        seconds = time.monotonic() - self.spending.started_at
        return (
            shutdown.requested()
            or self.spending.steps >= limits.slice_steps
            or seconds >= limits.slice_seconds
            or (seconds >= limits.busy_slice_seconds and self._has_to_share())
        )

    def _has_to_share(self) -> bool:
        """Look whether another task could use this worker, unless that was seen just now.

        Only with a step done: tasks that give way to each other must not do so for ever.
        """
        if not self.spending.steps:
            return False
        now = time.monotonic()
        if now - self._asked_who_waits_at >= WAITING_LOOK_SECONDS:
            self._asked_who_waits_at = now
            self._somebody_waits = queue.is_anybody_waiting(besides=self.task.id)
        return self._somebody_waits

    @contextmanager
    def owned(self, *, undisturbed: bool = False) -> Iterator[None]:
        """Open a transaction that holds the task's row under this slice's fence.

        Args:
            undisturbed: refuse when a command waits or the task is pausing.

        Locks: the task row, first. What is held stays held when the transaction is refused.

        Raises:
            LeaseLost: a newer fence owns the task.
            SafePointNeeded: only with `undisturbed`.
        """
        task = self.task
        with transaction.atomic(durable=True):
            row = fetch_row(sql.OWN, {"task_id": task.id, "fence": task.fence})
            self._take(row, undisturbed=undisturbed)
            yield

    def begin_act(self, act: EffectPart) -> int | None:
        """Begin an act in one statement under the fence, unless a command waits.

        Returns: which try of the act it is; None when the ledger does not let it begin.

        Transaction: its own, committed. Locks: the task row, the effect, the audit stream.
        Raises: LeaseLost, SafePointNeeded; nothing was written then.
        """
        task = self.task
        statement = sql.BEGIN_ACT.format(begun=act.text, audit=act.audit)
        cursor = {"task_id": task.id, "fence": task.fence, "steering_cursor": task.steering_cursor}
        row = fetch_row(statement, cursor | act.parameters)
        self._take(row and row[:3], undisturbed=True)
        return None if row is None else row[3]

    def _take(self, row: tuple[Any, ...] | None, *, undisturbed: bool) -> None:
        """Take down what a statement has read of the task under its fence."""
        task = self.task
        if row is None:
            self.lease.lost = True
            raise LeaseLost(task.id, task.fence)
        task.status, self.lease.command_seq, task.state_version = row
        if undisturbed and self.command_waits:
            raise SafePointNeeded

    def look_for_commands(self) -> bool:
        """Read whether a person told the task something, unless that was read just now.

        Raises: LeaseLost when the task is somebody else's.
        """
        now = time.monotonic()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            row = fetch_row(sql.LOOK, {"task_id": self.task.id, "fence": self.task.fence})
            if row is None:
                self.lease.lost = True
                raise LeaseLost(self.task.id, self.task.fence)
            self.task.status, self.lease.command_seq = row
        return self.command_waits

    @property
    def command_waits(self) -> bool:
        """Tell whether a person's command is to be applied at the next safe point."""
        return (
            self.task.status != TaskStatus.WORKING
            or self.lease.command_seq > self.task.steering_cursor
        )


def _checkpoint_policy(
    definition: type[Workflow[Any, Any]], stored: Mapping[str, Any]
) -> CheckpointPolicy:
    return CheckpointPolicy(
        every_steps=int(stored.get("every_steps", definition.checkpoint.every_steps)),
        max_seconds=float(stored.get("max_seconds", definition.checkpoint.max_seconds)),
    )
