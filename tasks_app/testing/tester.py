"""Runs a workflow to its end in a test, and again for every point at which a worker can be hurt."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from django.contrib.auth import get_user_model
from django.db import connection
from pydantic import BaseModel
from typing_extensions import override

from ledger_app.queries import list_effects
from ledger_app.services import audit
from tasks_app import syncpoints
from tasks_app.admission import approvals, principal
from tasks_app.admission.tasks import admit_task
from tasks_app.domain.principal import Principal
from tasks_app.domain.states import TERMINAL, TaskStatus
from tasks_app.engine import slice_runner
from tasks_app.models import Approval, Membership, Task, Tenant
from tasks_app.models.access import ROLES
from tasks_app.testing import faults
from tasks_app.testing.faults import Fault, WorkerDied
from tasks_app.workflows import Workflow

_MAX_SLICES = 1_000
# Points of the engine's own processes, where no worker of this task stands.
_NOT_A_WORKERS = (
    "admit.",
    "lease.",
    "reap.",
    "cancel.",
    "repair.",
    "stream.",
    "event.",
    "claim.before",
)


@dataclass(frozen=True, slots=True)
class Act:
    """One act on the outside world as the ledger tells it."""

    key: str
    name: str
    state: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where a task came to rest."""

    task_id: UUID
    status: str
    result: Any
    error: Mapping[str, Any] | None
    stop_reason: str
    acts: tuple[Act, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """The n-th pass of a sync point in the undisturbed run."""

    name: str
    number: int

    @override
    def __str__(self) -> str:
        """Return how a report names it."""
        return f"{self.name} #{self.number}"


class WeakPointError(AssertionError):
    """At these points the workflow does not keep its promise; the first cause is chained."""


class DurableTester:
    """One tenant, one person with every role, and a worker that runs when told to.

    Every run is real: rows, commits, ledger and audit of the test database. Time moves by changing
    rows, so timers and pauses between tries cost nothing.
    """

    def __init__(self) -> None:
        mark = uuid4().hex[:12]
        self.tenant = Tenant.objects.create(slug=f"test-{mark}", name="Test")
        self.person = self._member(f"author-{mark}")
        # Nobody decides on what they asked for themselves.
        self.approver = self._member(f"approver-{mark}")

    def run(
        self, workflow: type[Workflow[Any, Any]], goal: BaseModel | Mapping[str, Any]
    ) -> Outcome:
        """Run a workflow until it has ended or waits; approvals that it asks for are given."""
        task_id = self._submit(workflow, goal)
        self._drive(task_id)
        return self.outcome(task_id)

    def crash_everywhere(self, workflow: Any, goal: Any, **more: Any) -> list[Point]:
        """Run the workflow once for each point, and kill the worker there.

        Args:
            workflow: a registered workflow.
            goal: its goal, as for `run`.
            more: `check`, called with each `Outcome`: assert there what must hold, such as how
                often the outside world was asked. `arrange`, called before each run: reset the
                outside world there.

        Returns: the points that were tried.
        Raises: WeakPointError naming every point after which `check` or the engine failed.
        """
        return self._everywhere(workflow, goal, faults.die, **more)

    def freeze_everywhere(self, workflow: Any, goal: Any, **more: Any) -> list[Point]:
        """As `crash_everywhere`: the worker freezes past its lease, another one does the rest."""
        return self._everywhere(workflow, goal, faults.freeze, **more)

    def deliver_twice_everywhere(self, workflow: Any, goal: Any, **more: Any) -> list[Point]:
        """As `crash_everywhere`: the task's message comes a second time at each point."""
        return self._everywhere(workflow, goal, faults.deliver_twice, **more)

    def steer_everywhere(self, workflow: Any, goal: Any, **more: Any) -> list[Point]:
        """As `crash_everywhere`: a person pauses and resumes the task at each point."""
        return self._everywhere(workflow, goal, faults.pause_and_resume(self.person), **more)

    def outcome(self, task_id: UUID) -> Outcome:
        """Return where a task stands, after verifying its audit chain."""
        verdict = audit.verify(f"task:{task_id}")
        assert verdict.fault is None, verdict  # noqa: S101 - this is for tests
        task = Task.objects.for_tenant(self.tenant.id).get(pk=task_id)
        rows = list_effects(tenant_id=self.tenant.id, task_id=task_id)
        return Outcome(
            task_id=task_id,
            status=task.status,
            result=task.result,
            error=task.error,
            stop_reason=task.stop_reason,
            acts=tuple(Act(row.key, row.tool, row.state.value, row.attempts) for row in rows),
        )

    # --- one run after the other ---------------------------------------------------------------

    def _everywhere(
        self,
        workflow: type[Workflow[Any, Any]],
        goal: Any,
        fault: Fault,
        *,
        check: Callable[[Outcome], None],
        arrange: Callable[[], None] = lambda: None,
    ) -> list[Point]:
        arrange()
        task_id = self._submit(workflow, goal)
        with _watched(task_id) as points:
            self._drive(task_id)
        check(self.outcome(task_id))
        weak: list[str] = []
        cause: Exception | None = None
        for point in points:
            arrange()
            try:
                check(self._hurt(workflow, goal, point, fault))
            except Exception as error:  # noqa: BLE001 - the author's check may raise anything
                cause = cause or error
                weak.append(f"{point}: {error}")
        if weak:
            raise WeakPointError("\n".join(weak)) from cause
        return points

    def _hurt(self, workflow: Any, goal: Any, point: Point, fault: Fault) -> Outcome:
        task_id = self._submit(workflow, goal)
        with _fault_at(task_id, point, fault):
            self._drive(task_id)
        return self.outcome(task_id)

    def _drive(self, task_id: UUID) -> None:
        """Run slices until the task rests; a worker that dies is replaced by the next one."""
        for _ in range(_MAX_SLICES):
            task = Task.objects.for_tenant(self.tenant.id).get(pk=task_id)
            match TaskStatus(task.status):
                case TaskStatus.QUEUED | TaskStatus.RECOVERING:
                    self._run_children(task)
                    faults.make_due(task_id)
                    self._run_slice(task_id)
                case TaskStatus.WORKING | TaskStatus.PAUSING:
                    faults.lose_lease(task_id)
                case TaskStatus.INPUT_REQUIRED if self._approve(task_id):
                    pass
                case _:
                    return
        raise AssertionError(f"{task_id} did not come to rest in {_MAX_SLICES} slices")

    def _run_children(self, task: Task) -> None:
        children = Task.objects.for_tenant(self.tenant.id).filter(parent_id=task.id)
        live = children.exclude(status__in=TERMINAL).values_list("id", flat=True)
        if task.next_wake_at is None:
            for child_id in list(live):
                self._drive(child_id)

    def _run_slice(self, task_id: UUID) -> None:
        try:
            slice_runner.run_slice(task_id)
        except WorkerDied:
            faults.lose_lease(task_id)

    def _approve(self, task_id: UUID) -> bool:
        """Give the approval that the task waits for; False when it waits for something else."""
        waiting = Approval.objects.for_tenant(self.tenant.id)
        found = waiting.filter(task_id=task_id, status="pending").first()
        if found is None:
            return False
        approvals.decide_approval(
            self.approver,
            approval_id=found.id,
            decision="approve",
            args_sha256=found.args_sha256,
            expected_version=found.version,
            reason="a test approves",
            source="code",
        )
        return True

    def _submit(self, workflow: type[Workflow[Any, Any]], goal: Any) -> UUID:
        data = goal.model_dump(mode="json") if isinstance(goal, BaseModel) else dict(goal)
        admitted = admit_task(
            self.person, workflow=workflow.workflow_name, goal=data, source="code"
        )
        return admitted.task_id

    def _member(self, name: str) -> Principal:
        user = get_user_model().objects.create_user(username=name)
        Membership.objects.create(tenant_id=self.tenant.id, user_id=user.pk, roles=list(ROLES))
        return principal.from_user(user, self.tenant.id)


@contextmanager
def _scheduled(take: Callable[[str, UUID | None, int], None]) -> Iterator[None]:
    before = syncpoints.scheduler
    syncpoints.scheduler = take
    try:
        yield
    finally:
        syncpoints.scheduler = before


@contextmanager
def _watched(task_id: UUID) -> Iterator[list[Point]]:
    """Collect the points that workers of the task pass outside a transaction."""
    passed: list[Point] = []
    counts: dict[str, int] = {}

    def take(name: str, run: UUID | None, _fence: int) -> None:
        if _is_worker_at(task_id, name, run):
            counts[name] = counts.get(name, 0) + 1
            passed.append(Point(name, counts[name]))

    with _scheduled(take):
        yield passed


@contextmanager
def _fault_at(task_id: UUID, point: Point, fault: Fault) -> Iterator[None]:
    """Let the fault happen once, at the given pass of the task's worker."""
    left = [point.number]

    def take(name: str, run: UUID | None, _fence: int) -> None:
        if name != point.name or not _is_worker_at(task_id, name, run) or left[0] == 0:
            return
        left[0] -= 1
        if left[0] == 0:
            fault(task_id)

    with _scheduled(take):
        yield


def _is_worker_at(task_id: UUID, name: str, run: UUID | None) -> bool:
    # Inside a transaction a dead worker and one that was killed a moment before are the same.
    return run == task_id and not name.startswith(_NOT_A_WORKERS) and not connection.in_atomic_block
