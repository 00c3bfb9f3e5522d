"""What a step must not begin without: time before the deadline, and room in the task's limits."""

from tasks_app.domain.errors import BudgetExceededError, PriceUnknownError
from tasks_app.engine import budgets, delivery, step_runner
from tasks_app.engine.session import SliceSession
from tasks_app.models import Step


def check(session: SliceSession, step: Step) -> None:
    """End the task instead of its next step when its time is over or a limit is used up (S75).

    What is to be undone is undone, whatever it takes.

    Raises: SliceDone, or SafePointNeeded when a command comes first.
    """
    if session.task.closing_as:
        return
    deadline = session.task.deadline_at
    if deadline is not None and session.lease.now >= deadline:
        with session.owned():
            session.commit(checkpoint="deadline")
            ending = delivery.fail_task(
                session, delivery.DEADLINE_PASSED, stop_reason="max_duration"
            )
        raise ending
    try:
        budgets.check_limits(session)
    except (BudgetExceededError, PriceUnknownError) as error:
        step_runner.out_of_budget(session, step, error)
