"""The safe point: between two steps, where a slice looks up before it goes on (E43, E70)."""

from tasks_app.engine import continuation, shutdown, transitions
from tasks_app.engine.session import SafePointNeeded, SliceDone, SliceSession


def pass_by(session: SliceSession) -> None:
    """Go on, unless a command waits, the worker stops or the slice is used up.

    Raises:
        LeaseLost: the task is somebody else's.
        SafePointNeeded: apply the command, then come back.
        SliceDone: the task was handed on.
    """
    session.lease.check()
    if session.look_for_commands():
        raise SafePointNeeded
    if session.is_spent:
        _hand_on(session, "shutdown" if shutdown.requested() else "slice_spent")


def _hand_on(session: SliceSession, reason: str) -> None:
    task = session.task
    with session.owned(undisturbed=True):
        session.commit(checkpoint="hand_on")
        transitions.hand_on(
            task.id,
            task.tenant_id,
            fence=task.fence,
            wake_at=None,
            reason=reason,
            ended=session.ending(reason),
        )
        continuation.owe(task.id, task.tenant_id, reason)
    raise SliceDone(reason)
