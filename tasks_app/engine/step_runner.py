"""Runs one plan step: calls the author's method, stores the outcome, decides about another try."""

import logging
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, NoReturn

from ledger_app.domain.redaction import redact
from tasks_app import syncpoints
from tasks_app.domain.errors import ConfigurationError
from tasks_app.engine import delivery, transitions, values
from tasks_app.engine.lease import database_now
from tasks_app.engine.session import SafePointNeeded, SliceDone, SliceSession
from tasks_app.engine.step_context import RunningStep
from tasks_app.events.catalogue import EventType
from tasks_app.models import Attempt, Step
from tasks_app.workflows.definition import StepDefinition

logger = logging.getLogger(__name__)

_TRACE_LINES = 12
_MESSAGE_MAX = 1000


class StepTimeoutError(Exception):
    """A try of a step took longer than its time-out."""


def run_step(session: SliceSession, step: Step) -> None:
    """Run a plain step; a pure one's result may wait for the next commit (E20)."""
    bound = session.bound(step)
    declared, method = bound.declared, bound.call
    begin(session, step, declared)
    positional, named = session.arguments.call(method, step)
    try:
        result = call(session, step, declared, lambda ctx: method(ctx, *positional, **named))
        value = values.to_json(method, result)
    except Exception as error:  # noqa: BLE001 - the author's code may raise anything
        fail_try(session, step, declared, error)
        return
    succeed(session, step, value)
    if not declared.pure or declared.expensive or session.flush_due:
        session.commit(checkpoint="expensive" if declared.expensive else "")


def begin(session: SliceSession, step: Step, declared: StepDefinition) -> None:
    """Note that a try begins; nothing is written yet."""
    session.phase = declared.title
    session.step_began_at = time.monotonic()
    step.attempts += 1


def call(
    session: SliceSession,
    step: Step,
    declared: StepDefinition,
    body: Callable[[RunningStep], Any],
    *,
    margin_seconds: float = 0,
) -> Any:
    """Call the author's code outside any transaction, within its time-out.

    Raises: LeaseLost when no more than `margin_seconds` of the lease are left.
    """
    syncpoints.reach("step.before", session.task.id, session.task.fence)
    # The last look before the author's code: a process that froze on its way here must not act.
    session.lease.check(margin_seconds)
    with _timeout(declared.timeout_seconds):
        return body(RunningStep(session, step))


def succeed(session: SliceSession, step: Step, value: Any, *, status: str = "succeeded") -> None:
    """Hold the step's result and move the cursor behind it."""
    packed = values.pack(session.task.tenant_id, value)
    session.arguments.remember(step.key, value)
    session.hold_result(step, status, result=packed)
    advance(session, step)


def advance(session: SliceSession, step: Step) -> None:
    """Move the cursor behind a finished step."""
    session.count_units(1)
    session.next_position = step.position + 1
    session.next_key = ""
    session.variables = {}


def fail_try(session: SliceSession, step: Step, declared: StepDefinition, error: Exception) -> None:
    """Record a failed try: wait for the next one, or fail the task when none is left.

    Raises: SliceDone, or SafePointNeeded when a command came meanwhile.
    """
    if not isinstance(error, ConfigurationError) and step.attempts < declared.retry.max:
        try_again(session, step, declared, error)
    facts = _hold_failure(session, step, declared, error)
    session.hold_result(step, "failed", error=facts)
    with session.owned():
        session.commit(checkpoint="failure")
        add_attempt(session, step, facts)
        delivery.fail_task(session, {"step": step.key, **facts}, stop_reason="step_failed")
    raise SliceDone("failed")


def try_again(
    session: SliceSession, step: Step, declared: StepDefinition, error: Exception
) -> NoReturn:
    """Record a failed try and wait for the next one.

    Raises: SliceDone, or SafePointNeeded when a command came meanwhile.
    """
    facts = _hold_failure(session, step, declared, error)
    again = "running" if step.kind == "map" else "planned"
    session.hold_result(step, again, error=facts, finished=False)
    task = session.task
    with session.owned():
        session.commit(checkpoint="failure")
        retry_at = database_now() + _pause(declared, step.attempts)
        add_attempt(session, step, facts, retry_at=retry_at)
        if not session.command_waits:
            session.end("retry")
            transitions.hand_on(
                task.id,
                task.tenant_id,
                fence=task.fence,
                wake_at=retry_at,
                reason=f"retry of {step.key}",
            )
    if session.command_waits:
        raise SafePointNeeded
    raise SliceDone("retry")


def _hold_failure(
    session: SliceSession, step: Step, declared: StepDefinition, error: Exception
) -> dict[str, Any]:
    """Tell journal and log of a failed try; return its facts."""
    facts = describe(error)
    logger.info(
        "step.failed",
        extra={"task_id": str(session.task.id), "step": step.key, "code": facts["code"]},
    )
    session.hold_event(
        EventType.LOG,
        {"message": f"{declared.title}: try {step.attempts} failed", "facts": facts},
    )
    return facts


def add_attempt(
    session: SliceSession, step: Step, facts: dict[str, Any], *, retry_at: datetime | None = None
) -> None:
    """Store the diagnostics of a failed try. Transaction: the caller's, which owns the task."""
    task = session.task
    earlier = Attempt.objects.for_tenant(task.tenant_id).filter(step_id=step.id)
    Attempt.objects.create(
        tenant_id=task.tenant_id,
        task_id=task.id,
        step_id=step.id,
        number=earlier.count() + 1,
        fence=task.fence,
        error=facts,
        started_at=database_now() - timedelta(seconds=time.monotonic() - session.step_began_at),
        retry_at=retry_at,
    )


def describe(error: Exception) -> dict[str, Any]:
    """Return an error as redacted facts: class, message, the newest lines of its trace."""
    trace = traceback.format_exception(error)[-_TRACE_LINES:]
    facts = {
        "type": type(error).__name__,
        "code": getattr(error, "code", "") or type(error).__name__,
        "message": str(error)[:_MESSAGE_MAX],
        "trace": "".join(trace)[-4000:],
    }
    redacted = redact(facts)
    return redacted if isinstance(redacted, dict) else facts


def _pause(declared: StepDefinition, attempts: int) -> timedelta:
    """Return the pause before the next try: doubling, capped, with jitter (E23)."""
    seconds = min(declared.retry.max_seconds, declared.retry.first_seconds * 2 ** (attempts - 1))
    return timedelta(seconds=seconds * random.uniform(0.5, 1.0))  # noqa: S311 - jitter


@contextmanager
def _timeout(seconds: float) -> Iterator[None]:
    """Interrupt the body after so many seconds; only a process's main thread can be interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(number: int, frame: object) -> None:
        raise StepTimeoutError(f"no result after {seconds:g} seconds")

    previous = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
