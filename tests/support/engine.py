"""A tenant with its people and a worker that runs when told to: the set-up of engine tests."""

from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from django.db import connection, transaction

from ledger_app.services import audit
from tasks_app.admission import approvals, commands, principal, repairs, tasks
from tasks_app.domain.principal import Principal
from tasks_app.domain.states import TaskStatus
from tasks_app.engine import recovery, slice_runner, transitions
from tasks_app.models import Approval, Task, Tenant
from tests import factories


def lines(path: Path) -> list[str]:
    """Return the lines of a file that may not exist yet."""
    return path.read_text().splitlines() if path.exists() else []


class Engine:
    """One tenant with its people, and a worker that runs when told to."""

    def __init__(self) -> None:
        self.tenant: Tenant = factories.make_tenant()
        roles = ("submitter", "operator", "approver")
        # A thousand tests do this: few statements.
        self.submitter, self.operator, self.approver = (
            principal.from_user(member, self.tenant.id)
            for member in factories.make_members(self.tenant, roles)
        )

    def person(self, *roles: str) -> Principal:
        user = factories.make_member(self.tenant, roles)
        return principal.from_user(user, self.tenant.id)

    def submit(self, *script: dict[str, Any], **rest: Any) -> UUID:
        by = rest.pop("by", self.submitter)
        goal = {"script": list(script), **rest.pop("goal", {})}
        return tasks.admit_task(by, workflow="scripted", goal=goal, source="code", **rest).task_id

    def task(self, task_id: UUID) -> Task:
        found: Task = Task.objects.for_tenant(self.tenant.id).get(pk=task_id)
        return found

    def end_of(self, task_id: UUID) -> datetime:
        """Return when a task ended."""
        finished_at = self.task(task_id).finished_at
        assert finished_at is not None
        return finished_at

    def run(self, task_id: UUID) -> str:
        """Run one slice of the task."""
        return slice_runner.run_slice(task_id)

    def drive(self, task_id: UUID, slices: int = 50) -> Task:
        """Run slices until the task waits or has ended; timers and retries are made due."""
        for _ in range(slices):
            task = self.task(task_id)
            if task.status not in {"queued", "recovering"}:
                return task
            self.make_due(task_id)
            self.run(task_id)
        raise AssertionError(f"{task_id} did not come to rest")

    def make_due(self, task_id: UUID) -> None:
        """Move time by changing rows: timers of the task have ended."""
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE tasks_app_task SET next_wake_at = clock_timestamp() - interval '1 s'"
                " WHERE id = %s AND next_wake_at IS NOT NULL",
                [task_id],
            )
            cursor.execute(
                "UPDATE tasks_app_step SET wake_at = clock_timestamp() - interval '1 s'"
                " WHERE task_id = %s AND kind = 'sleep' AND wake_at IS NOT NULL",
                [task_id],
            )

    def steer(
        self, task_id: UUID, kind: str, by: Principal | None = None, **rest: Any
    ) -> commands.Submitted:
        version = rest.pop("expected_version", None) or self.task(task_id).state_version
        return commands.submit_command(
            by or self.operator,
            task_id=task_id,
            command_id=rest.pop("command_id", None) or uuid4(),
            type=kind,
            payload=rest.pop("payload", {}),
            expected_version=version,
            reason=rest.pop("reason", "because the test says so"),
            source="rest",
        )

    def approve(self, task_id: UUID, decision: str = "approve") -> None:
        """Decide the task's open approval as the approver."""
        asked = Approval.objects.for_tenant(self.tenant.id).get(task_id=task_id, status="pending")
        approvals.decide_approval(
            self.approver,
            approval_id=asked.id,
            decision=decision,
            args_sha256=asked.args_sha256,
            expected_version=asked.version,
            reason="seen",
            source="rest",
        )

    def requeue(self, task_id: UUID) -> None:
        """Give a held task back to the queue as it is."""
        with transaction.atomic():
            transitions.move(
                task_id,
                self.tenant.id,
                TaskStatus.DEAD_LETTERED,
                TaskStatus.QUEUED,
                actor=self.operator.actor,
                due="now",
            )

    def repair(
        self, task_id: UUID, verb: str, by: Principal | None = None, **rest: Any
    ) -> repairs.Repaired:
        version = rest.pop("expected_version", self.task(task_id).state_version)
        return repairs.repair_task(
            by or self.operator,
            task_id=task_id,
            repair_id=rest.pop("repair_id", None) or uuid4(),
            verb=verb,
            payload=rest,
            expected_version=version,
            reason="because the test says so",
            source="rest",
        )

    def lose_lease(self, task_id: UUID) -> None:
        """Make the task's lease look abandoned, as after a worker's death."""
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE tasks_app_task SET lease_expires_at = clock_timestamp() - interval '1 h'"
                " WHERE id = %s",
                [task_id],
            )
        recovery.recover_lost()

    def assert_audit_verifies(self, task_id: UUID) -> None:
        verdict = audit.verify(f"task:{task_id}")
        assert verdict.fault is None, verdict
