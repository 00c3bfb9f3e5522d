"""Steps that wait: approvals, questions and timers. A waiting task holds no process."""

from datetime import timedelta
from typing import Any

from tasks_app.engine import approvals, delivery, step_runner, transitions
from tasks_app.engine.lease import database_now
from tasks_app.engine.session import SliceDone, SliceSession
from tasks_app.models import Approval, ApprovalDecision, Step


def run_approval(session: SliceSession, step: Step) -> None:
    """Ask people, or take their answer as the step's result.

    Raises: SliceDone when the task now waits.
    """
    approval = approvals.find_open(session.task, step)
    if approval is None:
        _ask(session, step)
    elif approval.status == "pending" and approval.expires_at > database_now():
        _wait_again(session, approval)
    else:
        _take_answer(session, step, approval)


def act_of(session: SliceSession, approval_step: Step) -> tuple[str, dict[str, Any]]:
    """Return the act that an approval step lets through: the effect's name and exact arguments."""
    effect = (
        Step.objects.for_tenant(session.task.tenant_id)
        .filter(
            task_id=session.task.id,
            retired_in=None,
            kind="effect",
            options__approval=approval_step.key,
        )
        .order_by("position")
        .first()
    )
    if effect is None:
        return approval_step.options["name"], {}
    return effect.method, session.arguments.plain(effect)


def _ask(session: SliceSession, step: Step) -> None:
    task = session.task
    tool, arguments = act_of(session, step)
    show = session.arguments.value(step.arguments["args"][0])
    if not arguments and show is not None:
        # No act hangs on it: what people see is what they decide about.
        arguments = {"show": show}
    session.next_key, session.next_position = step.key, step.position
    session.phase = "Waiting for approval"
    session.hold_result(step, "waiting", finished=False)
    with session.owned(undisturbed=True):
        session.commit(checkpoint="approval")
        approval = approvals.ask(task, step, tool=tool, arguments=arguments, show=show)
        session.end("input_required")
        transitions.await_person(
            task.id,
            task.tenant_id,
            fence=task.fence,
            event={"reason": f"approve {tool}", "approvalId": str(approval.id)},
            wake_at=approval.expires_at,
        )
        approvals.audit_asked(task, approval)
    raise SliceDone("input_required")


def _wait_again(session: SliceSession, approval: Approval) -> None:
    task = session.task
    with session.owned(undisturbed=True):
        session.commit(checkpoint="approval")
        session.end("input_required")
        transitions.await_person(
            task.id,
            task.tenant_id,
            fence=task.fence,
            event={"reason": f"approve {approval.tool}", "approvalId": str(approval.id)},
            wake_at=approval.expires_at,
        )
    raise SliceDone("input_required")


def _take_answer(session: SliceSession, step: Step, approval: Approval) -> None:
    outcome = "expired" if approval.status == "pending" else approval.status
    if outcome == "expired" and approval.status == "pending":
        # It ran out while the task was paused, where the sweeper does not look.
        pending = Approval.objects.for_tenant(session.task.tenant_id)
        pending.filter(pk=approval.pk, status="pending").update(status="expired")
    granted = outcome == "approved"
    if not granted and step.options["on_timeout"] == "fail" and outcome == "expired":
        session.hold_result(step, "failed")
        with session.owned():
            session.commit(checkpoint="approval")
            ending = delivery.fail_task(
                session,
                {
                    "code": "approval_expired",
                    "message": f"Nobody answered {approval.tool} in time.",
                },
                stop_reason="approval_expired",
            )
        raise ending
    given = ApprovalDecision.objects.for_tenant(session.task.tenant_id)
    reason = given.filter(approval_id=approval.id).order_by("id").last()
    step_runner.succeed(
        session,
        step,
        {
            "approved": granted,
            "outcome": outcome,
            "approval_id": str(approval.id),
            "reason": reason.reason if reason else "",
        },
    )
    session.commit(checkpoint="approval")


def run_question(session: SliceSession, step: Step) -> None:
    """Ask a question that no act hangs on; an answer was stored as the step's result already.

    Raises: SliceDone when the task now waits.
    """
    task = session.task
    if step.wake_at is not None and step.wake_at <= database_now():
        session.hold_result(step, "failed")
        with session.owned():
            session.commit(checkpoint="question")
            ending = delivery.fail_task(
                session,
                {"code": "question_expired", "message": f"Nobody answered {step.key} in time."},
                stop_reason="question_expired",
            )
        raise ending
    session.next_key, session.next_position = step.key, step.position
    session.phase = "Waiting for an answer"
    session.hold_result(step, "waiting", finished=False)
    deadline = step.wake_at or database_now() + timedelta(seconds=step.options["deadline_seconds"])
    with session.owned(undisturbed=True):
        session.commit(checkpoint="question")
        _steps(session).filter(pk=step.pk).update(wake_at=deadline)
        session.end("input_required")
        transitions.await_person(
            task.id,
            task.tenant_id,
            fence=task.fence,
            event={"reason": step.options["prompt"][:200]},
            wake_at=deadline,
        )
    raise SliceDone("input_required")


def run_sleep(session: SliceSession, step: Step) -> None:
    """Wait by the database's clock; the task is queued for its time meanwhile.

    Raises: SliceDone when the time has not come.
    """
    now = database_now()
    if step.wake_at is not None and step.wake_at <= now:
        step_runner.succeed(session, step, None)
        session.commit()
        return
    task = session.task
    wake_at = step.wake_at or now + timedelta(seconds=step.options["seconds"])
    session.next_key, session.next_position = step.key, step.position
    session.phase = "Sleeping"
    session.hold_result(step, "waiting", finished=False)
    with session.owned(undisturbed=True):
        session.commit(checkpoint="sleep")
        _steps(session).filter(pk=step.pk).update(wake_at=wake_at)
        session.end("sleeping")
        transitions.hand_on(
            task.id, task.tenant_id, fence=task.fence, wake_at=wake_at, reason="timer"
        )
    raise SliceDone("sleeping")


def _steps(session: SliceSession) -> Any:
    return Step.objects.for_tenant(session.task.tenant_id).filter(task_id=session.task.id)
