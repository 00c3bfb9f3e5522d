"""The demo's crash: kill the worker that holds the task, then see from the journal who goes on."""

import os
import time
from collections.abc import Iterable
from contextlib import suppress

from runtime_project.local.demo_checks import Facts
from runtime_project.local.demo_client import DemoClient, Json
from runtime_project.local.demo_screen import Screen
from runtime_project.local.processes import LocalStackError
from runtime_project.local.stack import WORKERS, LocalStack

KILL_AT = 0.4
TAKE_OVER_SECONDS = 60.0
# Nobody holds a task in these: whoever held it before has finished with it.
SETTLED = {"completed", "failed", "cancelled", "dead_lettered", "input_required", "paused"}


class WorkerCrash:
    """Kills one worker in the middle of one task; `facts.killed` names it when it was so."""

    def __init__(self, stack: LocalStack, client: DemoClient, facts: Facts, screen: Screen) -> None:
        self._stack = stack
        self._client = client
        self._facts = facts
        self._screen = screen
        self._came_late = False

    def try_at(self, snapshot: Json) -> None:
        """Kill the holder and tell who takes over, if the task is far enough on for it."""
        if self._facts.killed or not _is_worth_killing(snapshot):
            return
        worker = self._find_worker((snapshot["lease"] or {}).get("pid"))
        held = self._kill_holder(worker) if worker else None
        if held is not None:
            self._tell_kill(worker, held)
            self._see_take_over(worker, held)

    def tell_if_none(self) -> None:
        """Say why no worker was killed, when none was."""
        if not self._facts.killed:
            nothing = "" if self._came_late else "; nothing was killed"
            self._screen.say(f"- too few documents to kill a worker in the middle{nothing}")

    def _kill_holder(self, worker: str) -> Json | None:
        """Kill a worker if it holds the task; return the snapshot that proves it, or None.

        The worker stands still while we look: it cannot hand the task on between look and kill.
        """
        with self._stack.supervisor.standing_still(worker):
            snapshot = self._client.snapshot(self._facts.task_id)
            lease = snapshot["lease"] or {}
            if not _is_worth_killing(snapshot) or self._find_worker(lease.get("pid")) != worker:
                return None
            self._facts.sample_memory(self._stack)
            self._stack.supervisor.kill(worker)
        return snapshot

    def _tell_kill(self, worker: str, held: Json) -> None:
        self._screen.say(
            f"✗ {worker} killed with SIGKILL at {held['progress']:.0%}, while it held the task "
            f"(pid {held['lease']['pid']}{self._fence(held['lease']['fence'])})"
        )

    def _see_take_over(self, worker: str, held: Json) -> None:
        """Wait for the next claim, and tell it; a job that ends at once is read afterwards."""
        killed = time.monotonic()
        claim: Json | None = None
        latest = held

        def is_decided() -> bool:
            nonlocal claim, latest
            latest = self._client.snapshot(self._facts.task_id)
            events = self._client.list_of(self._facts.task_id, "journal", after=held["seq"])
            claim = find_next_claim(events)
            return claim is not None or latest["status"] in SETTLED

        if not self._stack.supervisor.wait(is_decided, seconds=TAKE_OVER_SECONDS):
            raise LocalStackError(
                "nobody took the task over after its worker was killed",
                cause="the sweeper or the other worker does not run",
                log=self._stack.supervisor.log("sweep"),
            )
        # The journal is read after the snapshot and may know of a recovery that the latter does not.
        is_recovery = claim is not None and claim["source"] == "recovering"
        if not is_recovery and latest["recoveries"] == held["recoveries"]:
            # Its last commit was on the way to the database when it stood still.
            self._came_late = True
            self._screen.say(f"  too late: the task had just left {worker}")
            return
        self._facts.killed = worker
        self._tell_take_over(claim, latest, held, time.monotonic() - killed)

    def _tell_take_over(self, claim: Json | None, latest: Json, held: Json, seconds: float) -> None:
        pid = pid_of_owner(claim["reason"]) if claim else None
        taker = self._find_worker(pid)
        self._facts.expect("another worker process takes the task over", holds=bool(taker))
        fence = self._fence((latest["lease"] or {}).get("fence", "given back"))
        self._screen.say(
            f"{'✓' if taker else '✗'} taken over by {taker or 'nobody'} (pid {pid}{fence}) "
            f"after {seconds:.1f} s, from checkpoint #{held['lastCheckpoint']['seq']}"
        )

    def _find_worker(self, pid: int | None) -> str:
        """Return the name of the worker to whose process group a process belongs, or ""."""
        if pid is None:
            return ""
        with suppress(ProcessLookupError):
            group = os.getpgid(pid)
            return next((n for n in WORKERS if self._stack.supervisor.pid(n) == group), "")
        return ""

    def _fence(self, fence: object) -> str:
        return f", fence {fence}" if self._stack.options.verbose else ""


def find_next_claim(events: Iterable[Json]) -> Json | None:
    """Return the first change of status by which a worker took a task, or None."""
    changes = (event["data"] for event in events if event["type"] == "status")
    return next((change for change in changes if change["target"] == "working"), None)


def pid_of_owner(owner: str) -> int | None:
    """Return the pid in a lease's owner, which reads `host:pid:lock`."""
    parts = owner.rsplit(":", 2)
    return int(parts[1]) if len(parts) == 3 and parts[1].isdecimal() else None


def _is_worth_killing(snapshot: Json) -> bool:
    is_far_enough = (snapshot["progress"] or 0) >= KILL_AT and snapshot["lastCheckpoint"]
    return bool(snapshot["status"] == "working" and snapshot["lease"] and is_far_enough)
