"""One delivery = one slice: claim, verify, then step by step to a safe place to stop.

Readable top to bottom; the kinds of steps are in step_runner, map_runner, effect_runner and waits.
"""

import logging
import time
from collections import deque
from contextlib import suppress
from uuid import UUID

from django.db import DatabaseError, InterfaceError
from django.db.models.functions import Now

from tasks_app import syncpoints
from tasks_app.domain.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    LeaseLost,
    RuntimeFault,
    VersionHoldError,
)
from tasks_app.domain.states import TaskStatus
from tasks_app.engine import (
    checkpoints,
    child_events,
    child_runner,
    continuation,
    delivery,
    effect_runner,
    function_runner,
    holding,
    limits,
    map_runner,
    outage,
    plans,
    recovery_record,
    safe_point,
    shutdown,
    steering,
    step_runner,
    version_changes,
    versions,
    waits,
)
from tasks_app.engine import (
    lease as leases,
)
from tasks_app.engine.lease import ClaimedTask, Lease
from tasks_app.engine.session import SafePointNeeded, SliceDone, SliceSession
from tasks_app.models import Slice, Step
from tasks_app.workflows.functions import FunctionWorkflow

logger = logging.getLogger(__name__)

# A worker takes due tasks without a message for so long; then it ends its job, as Celery likes it.
AWAKE_SECONDS = 5.0

_DONE = frozenset({"succeeded", "skipped"})


def run_due(preferred: UUID | None = None) -> str:
    """Execute slices, the named task's first, until nothing is due or a while has passed.

    Messages only wake workers (`continuation`): a worker that finds work wakes the next one if
    there is more, and goes on while there is. Returns how the first slice ended.
    """
    until = time.monotonic() + AWAKE_SECONDS
    is_idle = False
    try:
        first = outcome = run_slice(preferred, wakes=True)
        while outcome != "idle" and time.monotonic() < until and not shutdown.requested():
            outcome = run_slice()
        is_idle = outcome == "idle"
    finally:
        if not is_idle:
            # What others left to this worker is somebody else's now.
            with suppress(DatabaseError, InterfaceError):
                continuation.wake_another()
    return first


def run_slice(preferred: UUID | None = None, *, wakes: bool = False) -> str:
    """Claim the fairest due task and work on it; return how the slice ended.

    "idle" means nothing was due, "lost" that somebody else owns the task now. An unexpected error
    of our own ends the lease: the task recovers, a row is never left half-written.

    Args:
        wakes: wake another worker if another task is due as well.
    """
    lease = leases.claim(preferred)
    if lease is None:
        return "idle"
    if wakes and lease.others_wait:
        continuation.wake_another()
    started = time.monotonic()
    outcome = "lost"
    try:
        outcome = _run(lease)
    except LeaseLost:
        logger.warning("slice.lease_lost", extra=_facts(lease))
        outage.give_up(lease, failed=False)
    except Exception:
        outcome = "crashed"
        outage.give_up(lease, failed=True)
        raise
    finally:
        leases.release(lease)
        logger.info(
            "slice.finished",
            extra={**_facts(lease), "outcome": outcome, "seconds": time.monotonic() - started},
        )
    if lease.is_limited:
        continuation.offer_place()
    return outcome


def _run(lease: Lease) -> str:
    session: SliceSession | None = None
    try:
        session = _open(lease)
        is_function = issubclass(session.definition, FunctionWorkflow)
        if is_function:
            function_runner.run(session)
        if session.task.closing_as or not is_function:
            # What undoes the acts of a function is a plan like any other.
            session.run_plan()
            _SliceRunner(session).run()
    except SliceDone as done:
        return done.outcome
    except VersionHoldError as error:
        return version_changes.hold(lease, error, session)
    except (CorruptCheckpointError, ConfigurationError) as error:
        return _park(lease, error)
    return "completed"


def _open(lease: Lease) -> SliceSession:
    """Load and verify what the slice continues from (mission M12, engine contract 7)."""
    task = lease.task
    if task.parent_id is not None:
        _begin_child(task)
    definition = versions.installed(task)
    document = checkpoints.load_newest(task.tenant_id, task.id, task.checkpoint_seq)
    session = SliceSession(lease, definition)
    if document is not None and document.plan_version == task.plan_version:
        session.next_position = document.next_position
    if lease.recovered:
        recovery_record.write(session, document)
    if definition.version != task.workflow_version:
        version_changes.settle(session, document.variables if document else {})
    return session


def _begin_child(task: ClaimedTask) -> None:
    if task.fence == 1:
        child_events.tell_running(task.id, task.tenant_id, task.fence)
    syncpoints.reach("sub.before_run", task.id, task.fence)


def _park(lease: Lease, error: RuntimeFault) -> str:
    """Hold a task that cannot be trusted or understood for a person; execute nothing.

    Transaction: its own. Locks: the task row, then the audit stream.
    """
    task = lease.task
    logger.error("slice.dead_letter", extra={**_facts(lease), "code": error.code})
    with leases.owned_row(task) as row:
        Slice.objects.for_tenant(task.tenant_id).filter(pk=lease.slice_id).update(
            ended_at=Now(), outcome="dead_lettered"
        )
        holding.hold(
            task.id,
            task.tenant_id,
            TaskStatus(row.status),
            fence=task.fence,
            code=error.code,
            evidence={"message": error.message, **error.fields},
        )
    return "dead_lettered"


class _SliceRunner:
    """The loop: safe point, next step, run it, again."""

    def __init__(self, session: SliceSession) -> None:
        self.session = session
        self._window: deque[Step] = deque()
        # The position behind the plan's last step, once the plan was read to its end.
        self._plan_end: int | None = None
        session.key_at = self._key_at

    def run(self) -> None:
        """Work until the plan is done. Raises: SliceDone, LeaseLost."""
        while True:
            try:
                safe_point.pass_by(self.session)
                step = self._next_step()
                if step is None and self.session.task.closing_as:
                    delivery.finish_closing(self.session)
                if step is None:
                    delivery.complete_task(self.session, delivery.planned_result(self.session))
                    return
                self._run_step(step)
            except SafePointNeeded:
                self._window.clear()
                self._plan_end = None
                steering.apply_pending(self.session)

    def _next_step(self) -> Step | None:
        """Return the step at the cursor, passing over what is done already."""
        session = self.session
        while True:
            step = self._at_cursor()
            if step is None or step.status not in _DONE:
                return step
            session.next_position = step.position + 1

    def _at_cursor(self) -> Step | None:
        position = self.session.next_position
        while self._window and self._window[0].position < position:
            self._window.popleft()
        if position == self._plan_end:
            return None
        if not self._window or self._window[0].position != position:
            task = self.session.task
            steps = plans.read_window(task.tenant_id, task.id, position)
            self._window = deque(steps)
            if steps and len(steps) < plans.WINDOW:
                self._plan_end = steps[-1].position + 1
        if not self._window or self._window[0].position != position:
            return None
        return self._window[0]

    def _key_at(self, position: int) -> str:
        return next((step.key for step in self._window if step.position == position), "")

    def _run_step(self, step: Step) -> None:
        session = self.session
        versions.require_step(session.definition, step.kind, step.method)
        session.step_began_at = time.monotonic()
        limits.check(session, step)
        if step.status == "failed":
            self._fail_again(step)
        if not all(session.arguments.is_true(c) for c in step.options.get("when", ())):
            step_runner.skip(session, step, "its condition does not hold")
            if session.flush_due:
                session.commit()
            return
        match step.kind:
            case "step":
                step_runner.run_step(session, step)
            case "map":
                map_runner.run_map(session, step)
            case "effect":
                effect_runner.run_effect(session, step)
            case "approval":
                waits.run_approval(session, step)
            case "question":
                waits.run_question(session, step)
            case "sleep":
                waits.run_sleep(session, step)
            case "child":
                child_runner.run_child(session, step)
            case _:
                raise ConfigurationError(f"unknown kind of step {step.kind}")

    def _fail_again(self, step: Step) -> None:
        """A step failed for good, but a command came before the task could."""
        with self.session.owned():
            ending = delivery.fail_task(
                self.session, {"step": step.key, **(step.error or {})}, stop_reason="step_failed"
            )
        raise ending


def _facts(lease: Lease) -> dict[str, object]:
    task = lease.task
    return {"task_id": str(task.id), "tenant_id": str(task.tenant_id), "fence": task.fence}
