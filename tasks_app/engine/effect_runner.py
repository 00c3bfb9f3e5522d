"""Runs one act on the outside world: begin in the ledger, call with the key, settle with the result.

The order is what makes it happen once: the ledger knows of the call before it is made, and the
result is stored in the commit that moves the cursor (engine contract, section 3).
"""

from typing import Any, NamedTuple, NoReturn, TypedDict
from uuid import UUID

from ledger_app.domain.effects import DONE, EffectKind, EffectState
from ledger_app.domain.errors import EffectInDoubtError, EffectKeyReusedError
from ledger_app.queries import EffectRow, find_effect
from ledger_app.services import effects
from tasks_app import conf, syncpoints
from tasks_app.domain.errors import BudgetExceededError, EngineSignal, PriceUnknownError
from tasks_app.engine import approvals, budgets, compensation, holding, step_runner, values
from tasks_app.engine.held import storable
from tasks_app.engine.session import SafePointNeeded, SliceDone, SliceSession
from tasks_app.engine.step_context import effect_key
from tasks_app.models import Approval, Step
from tasks_app.workflows import EffectNotDoneError, Found
from tasks_app.workflows.definition import StepDefinition

# No effect starts unless a renewal came through lately: this share of the lease must be left, or
# the effect's own time-out if that is shorter (E42).
MARGIN_SHARE = 1 / 3


class Standing(NamedTuple):
    """Where the ledger has an act now."""

    state: EffectState
    attempts: int
    response: Any

    @classmethod
    def of(cls, row: EffectRow) -> "Standing":
        """Return what a row of the ledger says."""
        return cls(row.state, row.attempts, row.response)


def run_effect(session: SliceSession, step: Step) -> None:
    """Run an act once, whatever happened before.

    Raises:
        SafePointNeeded: a command waits; apply it and come back.
        SliceDone: the task ended or needs a person.
    """
    bound = session.bound(step)
    declared, method = bound.declared, bound.call
    session.commit()
    approval = _approval_of(session, step)
    if approval is not None and not approval["approved"]:
        step_runner.skip(session, step, f"the approval was {approval['outcome']}")
        session.commit()
        return
    # Bound before the ledger hears of the act: what cannot be called is never begun.
    positional, named = session.arguments.call(method, step)
    step_runner.begin(session, step, declared)
    session.next_key, session.next_position = step.key, step.position
    row = _begin(session, step, declared, approval)
    if row is None:
        return
    if row.state in DONE:
        # It happened before a crash that came between the act and its result.
        step_runner.succeed(session, step, row.response)
        with session.owned():
            _settle_compensated(session, step)
            session.commit()
        return
    task = session.task
    syncpoints.reach("effect.after_begin", task.id, task.fence)
    if declared.find and row.attempts > 1 and _is_found(session, step, declared):
        return
    try:
        result = step_runner.call(
            session,
            step,
            declared,
            lambda ctx: method(ctx, *positional, **named),
            margin_seconds=_margin_seconds(declared),
        )
        value = step_runner.stored_form(session, step, method, result)
    except EffectNotDoneError as error:
        _settle_failed(session, step, error)
    except Exception as error:  # noqa: BLE001 - the author's code may raise anything
        _unclear(session, step, declared, error)
    syncpoints.reach("effect.after_call", task.id, task.fence)
    _settle_succeeded(session, step, value)


def _is_found(session: SliceSession, step: Step, declared: StepDefinition) -> bool:
    """Ask the other side about a call that may have happened; settle the act when it has.

    Raises: SliceDone when the other side cannot tell, or when it has not happened and no try is
    left.
    """
    find = declared.find if callable(declared.find) else getattr(session.workflow, declared.find)
    positional, named = session.arguments.call(find, step)
    try:
        found = step_runner.call(
            session, step, declared, lambda ctx: find(ctx, *positional, **named)
        )
        if found is not None and not isinstance(found, Found):
            raise TypeError("find returned neither Found nor None")
        value = None if found is None else _found_value(session, step, found)
    except Exception as error:  # noqa: BLE001 - the author's code may raise anything
        _unclear(session, step, declared, error)
    if found is None:
        if step.attempts > declared.retry.max:
            last = (step.error or {}).get("message", "")
            _settle_failed(session, step, EffectNotDoneError("not_done", f"Never done: {last}"))
        return False
    _settle_succeeded(session, step, value)
    return True


def _found_value(session: SliceSession, step: Step, found: Found[Any]) -> Any:
    return step_runner.stored_form(session, step, session.bound(step).call, found.value)


def _settle_succeeded(session: SliceSession, step: Step, value: Any) -> None:
    step_runner.succeed(session, step, value)
    _note(session, step, EffectState.SUCCEEDED)
    if not _is_settled_at_once(session, step, value):
        with session.owned():
            # The ledger first (E21). A checkpoint only when the policy wants one: a recovery passes
            # over finished steps anyway, and asks the ledger about the others.
            effects.succeed(**_entry(session, step), response=value)
            budgets.settle(session, effect_key(step), session.bound(step).declared.estimate)
            _settle_compensated(session, step)
            session.commit()
    syncpoints.reach("effect.after", session.task.id, session.task.fence)


def _is_settled_at_once(session: SliceSession, step: Step, value: Any) -> bool:
    """Settle the act in the statement of the step's commit, where it changes nothing else.

    False leaves it to several statements, which also tell why it cannot be settled.
    """
    is_more = compensation.compensated_key(step) is not None or budgets.is_concerned(
        session, session.bound(step).declared.estimate
    )
    return not is_more and session.commit_settled(
        effects.succeeded_part(**_entry(session, step), response=value)
    )


def _settle_compensated(session: SliceSession, step: Step) -> None:
    """Let the ledger tell of the act that a compensation has undone. Transaction: the caller's."""
    key = compensation.compensated_key(step)
    if key is None:
        return
    task = session.task
    effects.compensate(
        tenant_id=task.tenant_id,
        task_id=task.id,
        key=key,
        fence=task.fence,
        by_key=effect_key(step),
    )
    session.references.note_effect(key, EffectState.COMPENSATED.value)


def _approval_of(session: SliceSession, step: Step) -> dict[str, Any] | None:
    key = step.options.get("approval")
    if key is None:
        return None
    # An approval that was itself skipped lets nothing through.
    answer = session.arguments.value({"ref": key, "path": []})
    return answer or {"approved": False, "outcome": "skipped"}


def _begin(
    session: SliceSession,
    step: Step,
    declared: StepDefinition,
    approval: dict[str, Any] | None,
) -> Standing | None:
    """Enter the act in the ledger, using its approval; None when it must be approved anew.

    Raises: SliceDone when it may have happened already and only a person can settle that.

    Transaction: its own, committed before the call. Locks: task, approval, effect, audit stream.
    """
    task = session.task
    arguments = session.arguments.plain(step)
    digest = approvals.digest_of_act(step.method, arguments)
    act = effects.Act(
        tenant_id=task.tenant_id,
        task_id=task.id,
        step_key=step.key,
        key=effect_key(step),
        kind=declared.effect_kind,
        tool=step.method,
        target=_target(arguments),
        args_sha256=digest,
    )
    syncpoints.reach("effect.before", task.id, task.fence)
    session.lease.check(_margin_seconds(declared))
    is_limited = declared.estimate is not None and session.spending.is_limited
    try:
        if approval is None and not is_limited:
            standing = _begin_at_once(session, act, arguments)
            _note(session, step, standing.state)
            return standing
        with session.owned(undisturbed=True):
            if approval is not None and not _let_through(session, step, approval, digest):
                return None
            stored = effects.begin(
                act,
                fence=task.fence,
                approval_id=None if approval is None else approval["approval_id"],
                request=arguments,
            )
            _note(session, step, stored.state)
            if is_limited and declared.estimate is not None:
                budgets.reserve(session, effect_key(step), declared.estimate)
            return Standing.of(stored)
    except (BudgetExceededError, PriceUnknownError) as error:
        step_runner.out_of_budget(session, step, error)
    except EffectInDoubtError as error:
        _doubt(session, step, {"code": error.code, "message": error.message})
    except EffectKeyReusedError as error:
        dead_letter(session, step, error.code, error.message)


def _begin_at_once(session: SliceSession, act: effects.Act, arguments: dict[str, Any]) -> Standing:
    """Begin an act that needs nothing else in one statement. Raises: as `effects.begin` does."""
    fence = session.task.fence
    # Read before: nothing stands between the commit and the call.
    _ = session.references
    attempts = session.begin_act(effects.begun_part(act, fence=fence, request=arguments))
    if attempts is None:
        return Standing.of(effects.why_not_begun(act, fence=fence))
    return Standing(EffectState.BEGUN, attempts, None)


def _note(session: SliceSession, step: Step, state: EffectState) -> None:
    """Let the next checkpoint tell where the act stands."""
    session.references.note_effect(effect_key(step), state.value)


def _let_through(session: SliceSession, step: Step, approval: dict[str, Any], digest: str) -> bool:
    """Use the approval for this act; after a crash it is found used by the same key, by no other."""
    task = session.task
    if approvals.consume(task, approval["approval_id"], digest):
        return True
    row = find_effect(tenant_id=task.tenant_id, key=effect_key(step))
    if row is not None and str(row.approval_id) == approval["approval_id"]:
        return True
    # Expired, superseded or other arguments: the question must be asked anew.
    _ask_again(session, step)
    return False


def _ask_again(session: SliceSession, step: Step) -> None:
    """Send the plan back to the approval step, whose old answer no longer counts."""
    task = session.task
    key = step.options["approval"]
    steps = Step.objects.for_tenant(task.tenant_id).filter(task_id=task.id, retired_in=None)
    asked = steps.get(key=key)
    Approval.objects.for_tenant(task.tenant_id).filter(
        step_id=asked.id, status__in=("pending", "approved")
    ).update(status="superseded")
    steps.filter(pk=asked.id).update(status="planned", result=None, finished_at=None)
    session.arguments.forget_all()
    session.next_position, session.next_key = asked.position, asked.key
    # With the question itself: a worker that dies now must not leave it behind the cursor.
    session.commit(checkpoint="approval")


class _Entry(TypedDict):
    """Names an act in the ledger, and on whose fence it is written."""

    tenant_id: UUID
    task_id: UUID
    key: str
    fence: int


def _entry(session: SliceSession, step: Step) -> _Entry:
    task = session.task
    return {
        "tenant_id": task.tenant_id,
        "task_id": task.id,
        "key": effect_key(step),
        "fence": task.fence,
    }


def _margin_seconds(declared: StepDefinition) -> float:
    return min(declared.timeout_seconds, conf.runtime().lease_seconds * MARGIN_SHARE)


def _target(arguments: dict[str, Any]) -> str:
    """Return the first plain text among the arguments: where the act goes, for people."""
    values_in_order = [*arguments["args"], *arguments["kwargs"].values()]
    found = next((value for value in reversed(values_in_order) if isinstance(value, str)), "")
    return found[:500]


def _settle_failed(session: SliceSession, step: Step, error: EffectNotDoneError) -> NoReturn:
    """The other side certainly did not do it: the effect fails, and the task with it.

    An act that cannot be undone holds the task for a person, who may have it tried again.
    """
    facts = storable({"code": error.code, "message": error.message})
    undoes = compensation.compensated_key(step) is not None
    if undoes:
        step.attempts = 0
    session.hold_result(step, "planned" if undoes else "failed", error=facts, finished=not undoes)
    ending: BaseException = SliceDone("dead_lettered")
    with session.owned():
        effects.fail(**_entry(session, step), error=facts)
        estimate = session.bound(step).declared.estimate
        if estimate is not None:
            budgets.release(session, effect_key(step), estimate)
        budgets.charge(session)
        _note(session, step, EffectState.FAILED)
        if undoes:
            holding.hold_at(session, step, "compensation_failed", facts["message"])
        else:
            session.commit(checkpoint="effect")
            ending = step_runner.fail_for_good(session, step, facts, "effect_failed")
    raise ending


def _unclear(
    session: SliceSession, step: Step, declared: StepDefinition, error: Exception
) -> NoReturn:
    """The call may have happened: go on as the effect's kind allows, never blindly (E23).

    A keyed act is called again. A queryable one is asked for first, and asked for once more after
    its last call. An opaque one is in doubt at once, the others when no try is left, or when the
    act has given a result that it does not promise: calling again would not mend that.
    """
    kind = EffectKind(declared.effect_kind)
    tries = {
        EffectKind.KEYED: declared.retry.max,
        EffectKind.QUERYABLE: declared.retry.max + 1,
        EffectKind.OPAQUE: 1,
    }[kind]
    if step.attempts < tries and not isinstance(error, values.ResultInvalidError):
        step_runner.try_again(session, step, declared, error)
    facts = step_runner.describe(error)
    _doubt(session, step, facts, tried=True)


def _doubt(
    session: SliceSession, step: Step, facts: dict[str, Any], *, tried: bool = False
) -> NoReturn:
    """Put the act in doubt and the task before a person, who alone can settle it (E60).

    A command that waits comes first: a person who cancels knows what he wants.

    Raises: SliceDone or SafePointNeeded.
    """
    session.hold_result(step, "running", error=facts, finished=False)
    ending: EngineSignal = SliceDone("dead_lettered")
    with session.owned():
        effects.mark_in_doubt(**_entry(session, step), error=facts)
        budgets.charge(session)
        _note(session, step, EffectState.IN_DOUBT)
        if tried:
            step_runner.add_attempt(session, step, facts)
        if session.command_waits:
            session.commit(checkpoint="effect")
            ending = SafePointNeeded()
        else:
            holding.hold_at(session, step, EffectInDoubtError.code, facts["message"])
    raise ending


def dead_letter(session: SliceSession, step: Step, code: str, message: str) -> NoReturn:
    """Park the task for a person. Transaction: its own."""
    with session.owned():
        holding.hold_at(session, step, code, message)
    raise SliceDone("dead_lettered")
