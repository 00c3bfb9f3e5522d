"""The bench that crash tests work on: one tenant, a fleet of real processes, the outside world."""

import os
import random
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import redis
from django.db import connection, transaction

from runtime_project.local.processes import ProcessIdentity, wait_until
from tasks_app.admission import approvals, commands, principal, tasks
from tasks_app.models import Approval, Task
from tests import factories
from tests.support import evidence, oracles, outside_oracles
from tests.support.outside import Outside
from tests.support.syncdir import Hit, SyncDir
from tests.support.workers import Fleet

REST = frozenset({"completed", "failed", "cancelled", "dead_lettered", "paused", "input_required"})
SETTLE_SECONDS = 45.0

# Every point that a slice passes, from its claim to its end.
SLICE_POINTS = (
    "claim.after",
    "step.before",
    "step.before_commit",
    "step.after_commit",
    "effect.before",
    "effect.after_begin",
    "effect.after_call",
    "effect.after",
    "finish.before_receipt",
    "finish.before_terminal",
    "finish.after_terminal",
)


class Bed:
    """What a crash test needs: tasks to submit, processes to hurt, the truth afterwards."""

    def __init__(self, fleet: Fleet, outside: Outside, folder: Path) -> None:
        self.fleet = fleet
        self.outside = outside
        self.folder = folder
        self.runs = folder / "runs"
        self.sync = SyncDir(fleet.folder / "sync")
        self.tenant = factories.make_tenant(slug=f"bed-{uuid4().hex[:12]}")
        self.submitter = self._person("submitter")
        self.operator = self._person("operator")
        self.approver = self._person("approver")

    def _person(self, role: str) -> Any:
        user = factories.make_user(username=f"{role}-{uuid4().hex[:12]}")
        factories.make_member(self.tenant, role, user)
        return principal.from_user(user, self.tenant.id)

    # --- tasks ---------------------------------------------------------------------------------

    def say(self, *, impure: bool = False) -> dict[str, Any]:
        """Return a step whose runs are counted."""
        return {"op": "say", "append": str(self.runs), "impure": impure}

    def effect(self, key: str) -> dict[str, Any]:
        """Return an act on the outside world."""
        return {"op": "effect", "key": key, "post": f"{self.outside.url}/{key}"}

    def submit(
        self,
        *script: dict[str, Any],
        held: Iterable[str] | str = (),
        held_at: Iterable[int] = (),
        **rest: Any,
    ) -> UUID:
        """Admit a task; the points named in `held` hold before any worker can reach them.

        With `held_at` they hold at those passes alone.
        """
        goal = {"script": list(script)}
        return self.admit("scripted", goal, held=held, held_at=held_at, **rest)

    def admit(
        self,
        workflow: str,
        goal: dict[str, Any],
        *,
        held: Iterable[str] | str = (),
        held_at: Iterable[int] = (),
        **rest: Any,
    ) -> UUID:
        """Admit a task of any workflow; points are held as by `submit`."""
        with transaction.atomic():
            admitted = tasks.admit_task(
                self.submitter,
                workflow=workflow,
                goal=goal,
                source="code",
                **rest,
            )
            self.sync.hold(held, admitted.task_id, at=held_at)
        return admitted.task_id

    def task(self, task_id: UUID) -> Task:
        """Return the task's row as it is now."""
        return Task.objects.for_tenant(self.tenant.id).get(pk=task_id)

    def progress(self, task_id: UUID) -> evidence.Progress:
        """Return what ran and what is committed now."""
        return evidence.Progress(self.task(task_id), self.runs)

    def steer(self, task_id: UUID, kind: str, **payload: Any) -> commands.Submitted:
        """Give a command as the operator."""
        return commands.submit_command(
            self.operator,
            task_id=task_id,
            command_id=uuid4(),
            type=kind,
            payload=payload,
            expected_version=self.task(task_id).state_version,
            reason="because the test says so",
            source="rest",
        )

    def approve(self, approval: Approval) -> None:
        """Approve an act as the approver."""
        approvals.decide_approval(
            self.approver,
            approval_id=approval.id,
            decision="approve",
            args_sha256=approval.args_sha256,
            expected_version=approval.version,
            reason="seen",
            source="rest",
        )

    def expire_lease(self, task_id: UUID) -> None:
        """Move time: the lease ended an hour ago."""
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE tasks_app_task SET lease_expires_at = clock_timestamp() - interval '1 h'"
                " WHERE id = %s AND lease_expires_at IS NOT NULL",
                [task_id],
            )

    def count_at(self, point: str, task_ids: list[UUID]) -> int:
        """Return how many of the tasks have reached a point."""
        return sum(bool(self.sync.hits(point, task_id)) for task_id in task_ids)

    # --- waiting -------------------------------------------------------------------------------

    def wait(
        self, condition: Callable[[], bool], what: str, *, seconds: float = SETTLE_SECONDS
    ) -> None:
        """Wait for something that must come; show the processes' logs when it does not."""
        if not wait_until(condition, seconds=seconds):
            logs = "\n".join(f"--- {p.name}\n{p.tail()}" for p in self.processes())
            raise AssertionError(f"{what} did not happen\n{logs}")

    def wait_rest(self, task_id: UUID) -> Task:
        """Wait until the task waits for a person or has ended; return it."""
        self.wait(lambda: self.task(task_id).status in REST, f"rest of {task_id}")
        return self.task(task_id)

    def wait_all_rest(self, task_ids: list[UUID]) -> list[Task]:
        """Wait until all of them rest."""
        self.wait(lambda: self.open_tasks(task_ids) == 0, "rest of all tasks")
        return list(Task.objects.for_tenant(self.tenant.id).filter(pk__in=task_ids))

    def open_tasks(self, task_ids: list[UUID]) -> int:
        """Return how many of the tasks have not come to rest."""
        rows = Task.objects.for_tenant(self.tenant.id).filter(pk__in=task_ids)
        return rows.exclude(status__in=REST).count()

    def wait_outcome(self, task_id: UUID, hit: Hit) -> str:
        """Wait until a worker's child says how its slice of a task ended."""
        record = self.fleet.owner_of(hit.pid).wait_record(
            lambda r: (
                r["event"] == "slice.finished"
                and (r["task_id"], r["pid"], r["fence"]) == (str(task_id), hit.pid, hit.fence)
            ),
            f"the end of the slice {hit}",
        )
        return str(record["outcome"])

    def check_alive(self) -> None:
        """Check that no process of the fleet has ended; show the log of one that has."""
        ended = [process for process in self.processes() if not process.is_running()]
        logs = "\n".join(f"--- {process.name} ended\n{process.tail()}" for process in ended)
        assert not ended, logs

    # --- faults --------------------------------------------------------------------------------

    def kill(self, pid: int) -> None:
        """SIGKILL one process and wait until it is gone."""
        identity = ProcessIdentity.of(pid)
        os.kill(pid, signal.SIGKILL)
        assert identity is None or wait_until(lambda: not identity.is_alive(), seconds=10)

    def kill_some_child(self, chance: random.Random) -> None:
        """SIGKILL any process that runs slices, in the middle of whatever it does."""
        children = [pid for worker in self.fleet.workers for pid in worker.children()]
        if children:
            with suppress(ProcessLookupError):
                self.kill(chance.choice(children))

    @contextmanager
    def frozen(self, pid: int) -> Iterator[None]:
        """Stop a process in the middle of whatever it does; let it go on afterwards."""
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def flush_redis(self) -> None:
        """Lose every message, as a FLUSHALL does."""
        with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
            client.flushall()

    def processes(self) -> list[Any]:
        """Return every process of the fleet."""
        return [*self.fleet.workers, *self.fleet.sweepers]

    # --- the truth -----------------------------------------------------------------------------

    def check_completed(self, task_id: UUID, *, effects: int) -> Task:
        """Wait for the task, and check every oracle on it."""
        task = self.wait_rest(task_id)
        assert task.status == "completed", task.error
        oracles.check_task(task)
        outside_oracles.check_outside(task, self.outside.counts(str(task_id)), expected=effects)
        return task
