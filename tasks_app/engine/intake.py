"""The rows of a new task, whoever asks for it: admission for people, a step for its child.

Who may ask and whether the goal fits is decided before; nothing else inserts tasks.
"""

from ledger_app.domain.canonical import digest_of
from ledger_app.services import audit
from tasks_app.engine import budget_grants, continuation, plans
from tasks_app.models import Task
from tasks_app.workflows.planning import Plan


def store_task(
    task: Task, plan: Plan, *, actor: str, via: str = "", request_id: str | None = None
) -> None:
    """Store a new task with its plan and owe its first slice.

    Transaction: the caller's. Locks: budget rows above the task; the task's audit stream.
    Raises: BudgetRequiredError, BudgetInsufficientError; the caller must store nothing.
    """
    task.plan_result = plan.result
    # A function's steps are known when they are reached.
    task.progress_total = len(plan.steps) or None
    task.save(force_insert=True)
    budget_grants.open_task(task)
    plans.store_plan(task.tenant_id, task.id, plan)
    continuation.owe(task.id, task.tenant_id, "admitted")
    audit.append(
        stream=f"task:{task.id}",
        tenant_id=task.tenant_id,
        actor=actor,
        action="task.admitted",
        target=f"task:{task.id}",
        via=via,
        new_version=1,
        request_id=request_id,
        details={
            "workflow": f"{task.workflow}@{task.workflow_version}",
            "goal_sha256": digest_of({"goal": task.goal}),
            "steps": len(plan.steps),
            "source": task.source,
            "forked_from": None if task.forked_from_id is None else str(task.forked_from_id),
            "budget": task.budget,
            "parent": None if task.parent_id is None else str(task.parent_id),
        },
    )
