"""Named points where a test may hold, fail or kill a process; nothing in production.

`reach` does nothing unless RUNTIME_SYNCPOINT_DIR is set. With it, files in that folder steer every
process that passes: `<name>.hold` or `<name>.<run>.hold` makes it wait (at every pass, or only
at those whose numbers the file names), `<name>.fail` holds a number of failures still to raise, and
each pass appends a line `<pid> <fence>` to `<name>.<run>.hit`. Files are used because they work
across processes that share nothing else.
A scheduler of threads in this process takes every pass itself instead.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

POINTS = frozenset(
    {
        "admit.before_insert",
        "admit.after_commit",
        "claim.before",
        "claim.after",
        "build.before",
        "step.before",
        "step.before_commit",
        "step.after_commit",
        "effect.before",
        "effect.after_begin",
        "effect.after_call",
        "effect.after",
        "child.before_start",
        "child.after_start",
        "child.before_wake",
        "sub.registered",
        "sub.before_run",
        "sub.after_terminal",
        "event.after_seq",
        "lease.before_renew",
        "reap.after_scan",
        "cancel.after_request",
        "repair.before_commit",
        "finish.before_receipt",
        "finish.before_terminal",
        "finish.after_terminal",
        "stream.after_snapshot",
        "stream.before_send",
        "webhook.after_call",
    }
)

_POLL_SECONDS = 0.005

# Takes every pass of this process (name, run, fence): set by tests that order threads.
scheduler: Callable[[str, UUID | None, int], None] | None = None


class SyncPointFailureError(Exception):
    """The failure that a test planted at a sync point."""


def reach(name: str, run_id: UUID | None = None, fence: int = 0) -> None:
    """Pass the named point: record it, fail if asked to, wait while held."""
    folder = os.environ.get("RUNTIME_SYNCPOINT_DIR")
    if folder is None and scheduler is None:
        return
    if name not in POINTS:
        raise ValueError(f"unknown sync point {name}")
    if scheduler is not None:
        scheduler(name, run_id, fence)
    elif folder is not None:
        _pass(Path(folder), name, str(run_id or "-"), fence)


def _pass(folder: Path, name: str, run: str, fence: int) -> None:
    passes = folder / f"{name}.{run}.hit"
    with passes.open("a") as hits:
        hits.write(f"{os.getpid()} {fence}\n")
        hits.flush()
        end = hits.tell()
    _fail_if_planted(folder / f"{name}.fail")
    holds = (folder / f"{name}.hold", folder / f"{name}.{run}.hold")
    while any(_is_held(hold, passes, end) for hold in holds):
        time.sleep(_POLL_SECONDS)


def _is_held(hold: Path, passes: Path, end: int) -> bool:
    """Tell whether the pass whose line ends there waits; lines are counted only if it matters."""
    try:
        wanted = hold.read_text()
    except FileNotFoundError:
        return False
    return not wanted or str(passes.read_bytes()[:end].count(b"\n")) in wanted.split()


def _fail_if_planted(plan: Path) -> None:
    try:
        left = int(plan.read_text() or 0)
    except FileNotFoundError:
        return
    if left > 0:
        plan.write_text(str(left - 1))
        raise SyncPointFailureError(f"planted failure at {plan.name}")
