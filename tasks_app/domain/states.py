"""Statuses of a task, the only list of allowed edges, and what the outside is told.

The CHECK constraint, the database trigger, the page in docs and the tests are made from this
table (engine contract E30).
"""

from enum import StrEnum


class TaskStatus(StrEnum):
    """Where a task stands."""

    QUEUED = "queued"
    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    PAUSING = "pausing"
    PAUSED = "paused"
    RECOVERING = "recovering"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DEAD_LETTERED = "dead_lettered"


_S = TaskStatus

EDGES: dict[TaskStatus, frozenset[TaskStatus]] = {
    _S.QUEUED: frozenset({_S.WORKING, _S.PAUSED, _S.CANCELLED, _S.FAILED}),
    _S.WORKING: frozenset(
        {
            _S.QUEUED,
            _S.INPUT_REQUIRED,
            _S.PAUSING,
            _S.COMPLETED,
            _S.FAILED,
            _S.CANCELLED,
            _S.RECOVERING,
            _S.DEAD_LETTERED,
        }
    ),
    _S.PAUSING: frozenset({_S.PAUSED, _S.CANCELLED, _S.RECOVERING, _S.FAILED}),
    _S.PAUSED: frozenset({_S.QUEUED, _S.CANCELLED, _S.FAILED, _S.DEAD_LETTERED, _S.INPUT_REQUIRED}),
    _S.INPUT_REQUIRED: frozenset({_S.QUEUED, _S.CANCELLED, _S.FAILED, _S.DEAD_LETTERED, _S.PAUSED}),
    _S.RECOVERING: frozenset(
        {
            _S.WORKING,
            _S.INPUT_REQUIRED,
            _S.PAUSED,
            _S.CANCELLED,
            _S.DEAD_LETTERED,
            _S.FAILED,
        }
    ),
    _S.DEAD_LETTERED: frozenset({_S.QUEUED, _S.FAILED, _S.CANCELLED}),
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
}

TERMINAL = frozenset(status for status, targets in EDGES.items() if not targets)

# Statuses under which a worker holds a lease and may write with its fence.
LEASED = frozenset({_S.WORKING, _S.PAUSING})

# Edges that only move a task between the queue and a worker. They do not change what a person
# would decide, so they leave `state_version` alone (E31, docs/decisions/state-version.md).
SCHEDULING_EDGES = frozenset({(_S.QUEUED, _S.WORKING), (_S.WORKING, _S.QUEUED)})

# What MCP clients and other outside readers see (mission M4).
OUTSIDE: dict[TaskStatus, str] = {
    _S.QUEUED: "working",
    _S.WORKING: "working",
    _S.PAUSING: "working",
    _S.PAUSED: "working",
    _S.RECOVERING: "working",
    _S.INPUT_REQUIRED: "input_required",
    _S.DEAD_LETTERED: "working",
    _S.COMPLETED: "completed",
    _S.FAILED: "failed",
    _S.CANCELLED: "cancelled",
}


def is_allowed(source: TaskStatus, target: TaskStatus) -> bool:
    """Tell whether a task may move from one status to the other."""
    return target in EDGES[source]


def bumps_version(source: TaskStatus, target: TaskStatus) -> bool:
    """Tell whether the edge is visible to a person who decides, and so grows `state_version`."""
    return (source, target) not in SCHEDULING_EDGES


def check_edge(source: TaskStatus, target: TaskStatus) -> None:
    """Refuse an edge that is not in the table: a fault of our own code, never of a user."""
    if not is_allowed(source, target):
        raise ValueError(f"no edge {source} -> {target}")


def progress_of(status: TaskStatus, done: int, total: int | None) -> float | None:
    """Return 0 to 1, or None while nobody knows how much there is to do."""
    if status is TaskStatus.COMPLETED:
        return 1.0
    if not total:
        return None
    return min(done / total, 1.0)
