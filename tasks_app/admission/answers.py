"""A resume from the programs' door: the answer to the one thing that a thread's run waits for (R30).

It becomes the same command or decision that a page or REST would give, with the same checks. An
approval takes the digest of what was shown; a bare resume never answers one.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid4

from tasks_app.admission import approvals, commands
from tasks_app.domain.errors import (
    ApprovalDigestRequiredError,
    FieldProblem,
    InvalidInputError,
    NoPendingInterruptError,
)
from tasks_app.domain.principal import Principal
from tasks_app.domain.runs import Slot
from tasks_app.domain.states import TaskStatus
from tasks_app.engine import steering
from tasks_app.models import Approval, Run, Step, Task, Thread

_REASON = "resume of the run"


def answer_run(
    principal: Principal, thread: Thread, resume: Any, *, request_id: str | None = None
) -> tuple[UUID, int]:
    """Answer what the run at work waits for; return the run and the last event before.

    Args:
        resume: the answer; or an object of the interrupt's id to the answer. For an approval the
            answer is an object with `decision`, `args_sha256` and perhaps `reason`.

    Transaction: that of the command or decision.
    Raises: NoPendingInterruptError, ApprovalDigestRequiredError, VersionConflictError and what
    `submit_command` and `decide_approval` raise.
    """
    runs = Run.objects.visible_to(principal).filter(thread_id=thread.id, slot=Slot.HOLDING)
    run = runs.select_related("task").first()
    if run is None or run.task.status != TaskStatus.INPUT_REQUIRED:
        raise NoPendingInterruptError
    task = run.task
    question = steering.open_question(task.tenant_id, task.id)
    if question is not None:
        _answer_question(principal, task, question, resume, request_id)
    else:
        _decide(principal, task, resume, request_id)
    return task.id, task.event_seq


def _answer_question(
    principal: Principal, task: Task, question: Step, resume: Any, request_id: str | None
) -> None:
    if isinstance(resume, Mapping) and set(resume) == {question.key}:
        resume = resume[question.key]
    commands.submit_command(
        principal,
        task_id=task.id,
        command_id=uuid4(),
        type="provide_input",
        payload={"answer": resume},
        expected_version=task.state_version,
        reason=_REASON,
        source="rest",
        request_id=request_id,
    )


def _decide(principal: Principal, task: Task, resume: Any, request_id: str | None) -> None:
    rows = Approval.objects.for_tenant(task.tenant_id).filter(task_id=task.id, status="pending")
    approval = rows.first()
    if approval is None:
        raise NoPendingInterruptError
    given = resume.get(str(approval.id)) if isinstance(resume, Mapping) else None
    if not isinstance(given, Mapping) or not isinstance(given.get("args_sha256"), str):
        raise ApprovalDigestRequiredError(
            "An approval takes {<its id>: {decision, args_sha256}} from a person who may decide it."
        )
    decision, reason = given.get("decision"), given.get("reason", _REASON)
    if not isinstance(decision, str) or not isinstance(reason, str):
        problem = FieldProblem("/command/resume", "invalid_type", "decision and reason are text.")
        raise InvalidInputError("The decision does not fit.", [problem])
    approvals.decide_approval(
        principal,
        approval_id=approval.id,
        decision=decision,
        args_sha256=given["args_sha256"],
        expected_version=approval.version,
        reason=reason,
        source="rest",
        request_id=request_id,
    )
