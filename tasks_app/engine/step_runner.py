"""Runs one plan step: calls the author's method, stores the outcome, decides about another try."""

import logging
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, NoReturn

import psycopg
from django.db import DatabaseError, connection, transaction
from psycopg.pq import TransactionStatus

from ledger_app.domain.redaction import redact
from tasks_app import syncpoints
from tasks_app.domain.errors import (
    BudgetExceededError,
    ConfigurationError,
    LeaseLost,
    PriceUnknownError,
    RuntimeFault,
)
from tasks_app.engine import budgets, delivery, holding, secret_values, transitions, values
from tasks_app.engine.held import storable
from tasks_app.engine.lease import Lease, database_now
from tasks_app.engine.session import (
    BoundStep,
    SafePointNeeded,
    SliceDone,
    SliceSession,
)
from tasks_app.engine.step_context import RunningStep, effect_key
from tasks_app.events.catalogue import EventType
from tasks_app.models import Attempt, Step
from tasks_app.workflows.definition import StepDefinition
from tasks_app.workflows.values import StepFailedError

logger = logging.getLogger(__name__)

_TRACE_LINES = 12
_MESSAGE_MAX = 1000
_CANCEL_SECONDS = 2.0
# A timer of nought would never fire.
_SOON_SECONDS = 0.001


class StepTimeoutError(Exception):
    """A try of a step took longer than its time-out."""


def run_step(session: SliceSession, step: Step) -> None:
    """Run a plain step; a pure one's result may wait for the next commit (E20)."""
    bound = session.bound(step)
    declared, method = bound.declared, bound.call
    positional, named = session.arguments.call(method, step)
    if declared.atomic:
        _run_atomic(session, step, bound, lambda ctx: method(ctx, *positional, **named))
        return
    begin(session, step, declared)
    if declared.estimate is not None:
        reserve(session, step, effect_key(step), declared)
    try:
        result = call(session, step, declared, lambda ctx: method(ctx, *positional, **named))
        value = stored_form(session, step, method, result)
    except Exception as error:  # noqa: BLE001 - the author's code may raise anything
        fail_try(session, step, declared, error)
        return
    succeed(session, step, value)
    if budgets.is_concerned(session, declared.estimate):
        with session.owned():
            budgets.settle(session, effect_key(step), declared.estimate)
            session.commit(checkpoint="expensive" if declared.expensive else "")
        syncpoints.reach("step.after_commit", session.task.id, session.task.fence)
    elif not declared.pure or declared.expensive or session.flush_due:
        session.commit(checkpoint="expensive" if declared.expensive else "")


def stored_form(session: SliceSession, step: Step, method: Any, result: Any) -> Any:
    """Return a result as JSON data; the journal tells when a row takes only something near it.

    Raises: ResultInvalidError.
    """
    data, changed = values.to_json(method, result)
    if changed:
        message = f"{step.key}: its result is stored in another form: {changed}"
        session.hold_event(EventType.LOG, {"message": message})
    return data


class _BodyError(Exception):
    """The author's part of an atomic step failed; the database has undone it."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _run_atomic(
    session: SliceSession, step: Step, bound: BoundStep, body: Callable[[RunningStep], Any]
) -> None:
    """Run a body whose own rows, result and cursor are one commit under the fence.

    Nothing of the session changes before the body is done but what a failed try keeps as well: its
    log. An error from there on, also of the commit, ends the slice: the rows tell how it went.

    Transaction: its own. Locks: what the body locks; the task row only at the very end, so that the
    lease is renewed meanwhile.
    """
    declared = bound.declared
    session.commit()
    begin(session, step, declared)
    ctx = RunningStep(session, step, atomic=True)
    try:
        with transaction.atomic(durable=True):
            value = _atomic_value(session, step, bound, ctx, body)
            ctx.write_artifacts()
            succeed(session, step, value)
            session.commit(checkpoint="expensive" if declared.expensive else "")
            if session.spending.reports:
                # Behind the commit, which locks the task: budget rows come later in the order.
                budgets.charge(session)
    except _BodyError as failed:
        fail_try(session, step, declared, failed.cause)
    else:
        syncpoints.reach("step.after_commit", session.task.id, session.task.fence)


def _atomic_value(
    session: SliceSession,
    step: Step,
    bound: BoundStep,
    ctx: RunningStep,
    body: Callable[[RunningStep], Any],
) -> Any:
    """Return the body's result as JSON, after the database has accepted all that it wrote."""
    declared = bound.declared
    milliseconds = round(declared.timeout_seconds * 1000)
    try:
        with connection.cursor() as cursor:
            # The server ends transactions that idle; this one may compute as long as its body may.
            cursor.execute(f"SET LOCAL idle_in_transaction_session_timeout = {milliseconds}")
        result = call(session, step, declared, body, ctx=ctx)
        value = stored_form(session, step, bound.call, result)
        with connection.cursor() as cursor:
            # What is checked at the commit is checked here, where it is the body's failure.
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout TO DEFAULT")
    except Exception as error:
        raise _BodyError(error) from error
    return value


def reserve(
    session: SliceSession, step: Step, source: str, declared: StepDefinition, *, calls: int = 1
) -> None:
    """Take out of the task's budget what so many calls may use at most, before the first of them.

    Transaction: its own; nothing is written where nothing is limited.
    Raises: SafePointNeeded, or SliceDone when it is too much or has no price.
    """
    if declared.estimate is None or not session.spending.is_limited:
        return
    try:
        with session.owned(undisturbed=True):
            budgets.reserve(session, source, declared.estimate, calls=calls)
    except (BudgetExceededError, PriceUnknownError) as error:
        out_of_budget(session, step, error)


def out_of_budget(session: SliceSession, step: Step, error: RuntimeFault) -> NoReturn:
    """End a task that may not go on with this step. Transaction: its own."""
    with session.owned():
        session.commit(checkpoint="budget")
        ending = delivery.fail_task(
            session,
            {"step": step.key, "code": error.code, "message": error.message, **error.fields},
            stop_reason=error.code,
        )
    raise ending


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
    ctx: RunningStep | None = None,
    margin_seconds: float = 0,
) -> Any:
    """Call the author's code within its time-out, outside any transaction unless it is atomic.

    With a margin the code acts on the outside world, and is interrupted when the lease ends: a
    process that froze in the middle of it must not act when it wakes, since another may have acted.

    Raises: LeaseLost when no more than `margin_seconds` of the lease are left, or when it ended.
    """
    syncpoints.reach("step.before", session.task.id, session.task.fence)
    # The last look before the author's code: a process that froze on its way here must not act.
    session.lease.check(margin_seconds)
    try:
        with _timeout(declared.timeout_seconds, session.lease if margin_seconds else None):
            return body(ctx or RunningStep(session, step))
    except (StepTimeoutError, LeaseLost):
        _drop_interrupted_query()
        raise


def succeed(
    session: SliceSession,
    step: Step,
    value: Any,
    *,
    status: str = "succeeded",
    error: dict[str, Any] | None = None,
) -> None:
    """Hold the step's result and move the cursor behind it."""
    packed = values.pack(session.task.tenant_id, value)
    session.arguments.remember(step.key, value)
    session.hold_result(step, status, result=packed, error=error)
    advance(session, step)


def advance(session: SliceSession, step: Step) -> None:
    """Move the cursor behind a finished step."""
    session.count_units(1)
    session.next_position = step.position + 1
    session.next_key = ""
    session.variables = {}


def fail_try(session: SliceSession, step: Step, declared: StepDefinition, error: Exception) -> None:
    """Record a failed try: wait for the next one, or do what the step asks for after the last.

    Returns when the step is skipped: the plan goes on behind it.

    Raises: SliceDone, or SafePointNeeded when a command came meanwhile.
    """
    if not isinstance(error, ConfigurationError) and step.attempts < declared.retry.max:
        try_again(session, step, declared, error)
    facts = _hold_failure(session, step, declared, error)
    if declared.on_failure == "skip":
        skip(session, step, "it failed", error=facts)
        with session.owned():
            budgets.settle(session, effect_key(step), declared.estimate)
            session.commit(checkpoint="failure")
            add_attempt(session, step, facts)
        return
    if declared.on_failure == "ask":
        # Whoever orders the step to be run again means with all its tries.
        step.attempts = 0
        again = "running" if step.kind == "map" else "planned"
        session.hold_result(step, again, error=facts, finished=False)
        with session.owned():
            budgets.settle(session, effect_key(step), declared.estimate)
            add_attempt(session, step, facts)
            holding.hold_at(session, step, "step_failed", facts["message"])
        raise SliceDone("dead_lettered")
    session.hold_result(step, "failed", error=facts)
    with session.owned():
        budgets.settle(session, effect_key(step), declared.estimate)
        session.commit(checkpoint="failure")
        add_attempt(session, step, facts)
        ending = fail_for_good(session, step, facts, "step_failed")
    raise ending


def fail_for_good(
    session: SliceSession, step: Step, facts: dict[str, Any], stop_reason: str
) -> BaseException:
    """Fail the task of a step that failed for good; the code of a function may go on instead.

    Returns what the caller raises after its transaction: StepFailedError into the function, or what
    `delivery.fail_task` says.
    """
    if session.raises_failures:
        return StepFailedError(step.key, facts)
    return delivery.fail_task(session, {"step": step.key, **facts}, stop_reason=stop_reason)


def skip(
    session: SliceSession, step: Step, why: str, *, error: dict[str, Any] | None = None
) -> None:
    """Hold that a step is left out: its result is None, and the journal says why."""
    session.hold_event(EventType.LOG, {"message": f"{step.key} was skipped: {why}"})
    succeed(session, step, None, status="skipped", error=error)


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
        budgets.charge(session)
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
    session.store(step, undisturbed=False)
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
    """Return an error as redacted facts: class, message, the newest lines of its trace.

    An exception of an author's code may say anything, and may fail to say it: what is returned can
    be stored.
    """
    trace = traceback.format_exception(error)[-_TRACE_LINES:]
    evidence, code = getattr(error, "evidence", None), getattr(error, "code", None)
    facts = {
        **(evidence if isinstance(evidence, Mapping) else {}),
        "type": type(error).__name__,
        "code": code if isinstance(code, str) and code else type(error).__name__,
        "message": secret_values.scrub(_said(error))[:_MESSAGE_MAX],
        "trace": secret_values.scrub("".join(trace))[-4000:],
    }
    redacted = redact(facts)
    return storable(redacted if isinstance(redacted, dict) else facts)


def _said(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the author's code may raise anything
        return f"{type(error).__name__} that cannot say what it means"


def _pause(declared: StepDefinition, attempts: int) -> timedelta:
    """Return the pause before the next try: doubling, capped, with jitter (E23)."""
    seconds = min(declared.retry.max_seconds, declared.retry.first_seconds * 2 ** (attempts - 1))
    return timedelta(seconds=seconds * random.uniform(0.5, 1.0))  # noqa: S311 - jitter


def _drop_interrupted_query() -> None:
    """Have the server stop a query that a time-out interrupted; the session is of no use then."""
    raw = connection.connection
    if raw is None or raw.info.transaction_status is not TransactionStatus.ACTIVE:
        return
    with suppress(DatabaseError, psycopg.Error):
        raw.cancel_safe(timeout=_CANCEL_SECONDS)
    connection.close()


@contextmanager
def _timeout(seconds: float, lease: Lease | None) -> Iterator[None]:
    """Interrupt the body after so many seconds, or when the lease is not renewed any more.

    Only a process's main thread can be interrupted. The timer goes on while a process is frozen, so
    that it fires before anything else when the process wakes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ends_at = time.monotonic() + seconds

    def set_timer() -> None:
        left = ends_at - time.monotonic()
        held = left if lease is None else lease.remaining_seconds
        signal.setitimer(signal.ITIMER_REAL, max(_SOON_SECONDS, min(left, held)))

    def expire(number: int, frame: object) -> None:
        if time.monotonic() >= ends_at:
            raise StepTimeoutError(f"no result after {seconds:g} seconds")
        if lease is not None:
            lease.check()
        set_timer()

    previous = signal.signal(signal.SIGALRM, expire)
    set_timer()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
