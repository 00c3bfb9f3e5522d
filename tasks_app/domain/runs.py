"""What a thread lets its runs do, and how a run's status is told to clients of the run door.

Plain rules: the engine applies them, the door renders them (runs contract, sections 1 and 3).
"""

from enum import StrEnum
from typing import assert_never

from tasks_app.domain.states import TERMINAL, TaskStatus

# More runs than this do not wait in one thread.
MAX_WAITING = 50


class Slot(StrEnum):
    """Where a run stands in its thread: one at a time is at work, the others wait in order."""

    WAITING = "waiting"
    HOLDING = "holding"
    RELEASED = "released"


class Strategy(StrEnum):
    """What a new run does about the one that is at work."""

    REJECT = "reject"
    ENQUEUE = "enqueue"
    INTERRUPT = "interrupt"
    ROLLBACK = "rollback"


class CancelAction(StrEnum):
    """What a cancelled run leaves in its thread: what it did so far, or what was before it."""

    INTERRUPT = "interrupt"
    ROLLBACK = "rollback"


class RunStatus(StrEnum):
    """The words that clients of the run door know."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    ERROR = "error"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"


class ThreadStatus(StrEnum):
    """The words that clients of the thread door know; derived, never stored."""

    IDLE = "idle"
    BUSY = "busy"
    INTERRUPTED = "interrupted"
    ERROR = "error"


def run_status(
    status: TaskStatus, cancel_action: str, stop_reason: str, *, has_started: bool
) -> RunStatus:
    """Return the run's status for a task's; between two slices it is running."""
    match status:
        case TaskStatus.QUEUED if has_started:
            return RunStatus.RUNNING
        case TaskStatus.QUEUED | TaskStatus.PAUSED:
            return RunStatus.PENDING
        case TaskStatus.WORKING | TaskStatus.PAUSING | TaskStatus.RECOVERING:
            return RunStatus.RUNNING
        case TaskStatus.INPUT_REQUIRED | TaskStatus.DEAD_LETTERED:
            return RunStatus.INTERRUPTED
        case TaskStatus.COMPLETED:
            return RunStatus.SUCCESS
        case TaskStatus.FAILED:
            return RunStatus.TIMEOUT if stop_reason == "max_duration" else RunStatus.ERROR
        case TaskStatus.CANCELLED:
            rolled_back = cancel_action == CancelAction.ROLLBACK
            return RunStatus.ERROR if rolled_back else RunStatus.INTERRUPTED
        case _:
            assert_never(status)


def thread_status(newest: TaskStatus | None, cancel_action: str) -> ThreadStatus:
    """Return the thread's status for the run that holds its slot, waits, or came last."""
    match newest:
        case None | TaskStatus.COMPLETED | TaskStatus.CANCELLED:
            return ThreadStatus.IDLE
        case TaskStatus.INPUT_REQUIRED | TaskStatus.DEAD_LETTERED:
            return ThreadStatus.INTERRUPTED
        case TaskStatus.FAILED:
            return ThreadStatus.ERROR
        case _:
            return ThreadStatus.BUSY


def is_over(status: TaskStatus) -> bool:
    """Tell whether a stream of the run has nothing more to wait for."""
    return status in TERMINAL or status in {TaskStatus.INPUT_REQUIRED, TaskStatus.DEAD_LETTERED}
