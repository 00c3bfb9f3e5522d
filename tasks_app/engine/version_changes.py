"""What a judgement does to a task: it takes the installed version, gets a new plan, or is paused."""

from collections.abc import Mapping
from typing import Any

from psycopg.types.json import Jsonb

from ledger_app.services import audit
from tasks_app.domain.errors import VersionHoldError
from tasks_app.domain.states import LEASED, TaskStatus
from tasks_app.engine import plans, replanning, steering, transitions
from tasks_app.engine.lease import Lease, database_now, owned_row
from tasks_app.engine.session import SliceSession
from tasks_app.engine.versions import Judgement, Verdict, judge
from tasks_app.events.catalogue import EventType
from tasks_app.models import Slice, Task

HOLD = "version_hold"


def settle(session: SliceSession, variables: Mapping[str, Any]) -> None:
    """Bring a task of another version under the installed code, before its slice does anything.

    Transaction: its own, when something is written. Locks: the task row, audit stream last.

    Raises:
        VersionHoldError: it does not fit; LeaseLost.
    """
    task = session.task
    judged = judge(task, variables)
    judged.raise_hold(task.workflow_version)
    source = task.workflow_version
    with session.owned():
        row = Task.objects.for_tenant(task.tenant_id).get(pk=task.id)
        if judged.migrated is None:
            row.workflow_version = session.definition.version
            row.save(update_fields=["workflow_version"])
        else:
            change = plans.compare(task.tenant_id, task.id, judged.migrated.plan)
            goal = dict(judged.migrated.goal)
            replanning.replace_plan(
                row, change, goal=goal, cause="migration", actor=transitions.ENGINE
            )
        _tell(row, source, judged)
    steering.refresh(session, row)


def _tell(task: Task, source: int, judged: Judgement) -> None:
    migrated = judged.verdict is Verdict.MIGRATE
    told = transitions.append_event(
        task.id,
        task.tenant_id,
        EventType.LOG,
        {"message": f"Goes on under version {judged.installed} of {task.workflow}, was {source}"},
        bump=int(migrated),
    )
    audit.append(
        stream=f"task:{task.id}",
        tenant_id=task.tenant_id,
        actor=transitions.ENGINE,
        action="workflow.migrated" if migrated else "workflow.upgraded",
        target=f"task:{task.id}",
        old_version=told.state_version - int(migrated),
        new_version=told.state_version,
        details={"workflow": task.workflow, "from": source, "to": judged.installed},
    )


def hold(lease: Lease, error: VersionHoldError, session: SliceSession | None) -> str:
    """Pause a task that the installed code does not fit; return how the slice ended.

    Commands that wait are applied first: a task that a person cancels needs no code.

    Transaction: its own. Locks: the task row, audit stream last. Raises: LeaseLost.
    """
    known = lease.task
    with owned_row(known) as task:
        if session is not None:
            session.commit(checkpoint=HOLD)
        steering.settle_pending(task)
        outcome = HOLD if TaskStatus(task.status) in LEASED else task.status
        if outcome == HOLD:
            _pause(task, error)
        Slice.objects.for_tenant(known.tenant_id).filter(pk=lease.slice_id).update(
            ended_at=database_now(), outcome=outcome
        )
    return outcome


def _pause(task: Task, error: VersionHoldError) -> None:
    facts = {"code": HOLD, "message": error.message, **error.fields}
    if TaskStatus(task.status) is TaskStatus.WORKING:
        transitions.move(
            task.id, task.tenant_id, TaskStatus.WORKING, TaskStatus.PAUSING, reason=HOLD
        )
    transitions.move(
        task.id,
        task.tenant_id,
        TaskStatus.PAUSING,
        TaskStatus.PAUSED,
        reason=HOLD,
        columns={"stop_reason": HOLD, "error": Jsonb(facts)},
        details=error.fields,
    )
