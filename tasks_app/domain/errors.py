"""Errors with stable codes, and the signals that leave a slice on purpose.

Nothing here knows HTTP: each door holds one table from code to its own form.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One problem of one input field; `pointer` is a JSON pointer into the body."""

    pointer: str
    code: str
    detail: str


class RuntimeFault(Exception):  # noqa: N818 - the base; its subclasses end in Error
    """A refusal that a caller can act on.

    Attributes:
        code: stable, snake_case; documented in docs/reference/errors.md.
        retryable: whether the same request may succeed later without a change.
        fields: typed facts of this kind, shown to the caller.
    """

    code = "internal_error"
    retryable = False

    def __init__(self, message: str, **fields: object) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields


class InvalidInputError(RuntimeFault):
    """The request does not fit its schema; nothing was stored."""

    code = "invalid_input"

    def __init__(self, message: str, errors: Sequence[FieldProblem] = (), **fields: object) -> None:
        super().__init__(message, **fields)
        self.errors = tuple(errors)


class ReservedKeyError(InvalidInputError):
    """The request states a fact that only the server knows (S34)."""

    code = "reserved_key"


class UnknownWorkflowError(InvalidInputError):
    """No enabled workflow has this name."""

    code = "unknown_workflow"


class BudgetInsufficientError(RuntimeFault):
    """Less is left of the tenant's or the parent's budget than the task asks for (S74)."""

    code = "budget_insufficient"
    retryable = True

    def __init__(self, kind: str) -> None:
        super().__init__(f"Not enough is left of the budget for {kind}.", kind=kind)


class BudgetRequiredError(InvalidInputError):
    """A limit stands above the task, so the task must say how much it may use itself."""

    code = "budget_required"

    def __init__(self, kind: str) -> None:
        detail = f"There is a budget for {kind}: say how much of it this task may use."
        super().__init__(detail, [FieldProblem(f"/budget/{kind}", self.code, detail)], kind=kind)


class BudgetExceededError(RuntimeFault):
    """A task has used up a limit of its own; it ends with `budget_exceeded`."""

    code = "budget_exceeded"

    def __init__(self, kind: str, limit: int, needed: int) -> None:
        super().__init__(
            f"The task's limit of {kind} is used up.", kind=kind, limit=limit, needed=needed
        )


class PriceUnknownError(RuntimeFault):
    """Money is limited, and nobody has said what this model or tool costs (S73)."""

    code = "price_unknown"

    def __init__(self, subject: str) -> None:
        super().__init__(f"There is no price for {subject}.", subject=subject)


class NotFoundError(RuntimeFault):
    """Outside what the caller may see, or not there: the same answer for both."""

    code = "not_found"


class InvalidMessageError(RuntimeFault):
    """A message of a run's input is malformed; `index` tells which."""

    code = "invalid_message"


class UnknownModelError(RuntimeFault):
    """The installation offers no model of this name."""

    code = "unknown_model"

    def __init__(self, name: str) -> None:
        super().__init__(f"Model '{name}' is not offered here.", model=name)


class ThreadExistsError(RuntimeFault):
    """The name of the thread is taken, by one that was deleted perhaps."""

    code = "thread_exists"

    def __init__(self) -> None:
        super().__init__("A thread of this name exists or existed.")


class RunActiveError(RuntimeFault):
    """The act is for runs that have ended, and this one has not."""

    code = "run_active"

    def __init__(self) -> None:
        super().__init__("A run is active: cancel it or wait for its end.")


class RunFinishedError(RuntimeFault):
    """The run has ended, not by a cancel."""

    code = "run_finished"

    def __init__(self, status: str) -> None:
        super().__init__("The run has ended.", status=status)


class NoPendingInterruptError(RuntimeFault):
    """A resume came for a thread in which no run waits for an answer."""

    code = "no_pending_interrupt"

    def __init__(self) -> None:
        super().__init__("No run of this thread waits for an answer.")


class NothingToContinueError(RuntimeFault):
    """A run without input came for a thread that has nothing left to do."""

    code = "nothing_to_continue"

    def __init__(self) -> None:
        super().__init__("There is nothing to continue in this thread: send an input.")


class NameTakenError(RuntimeFault):
    """Another one of the tenant has this name."""

    code = "name_taken"

    def __init__(self, name: str) -> None:
        super().__init__("Another one has this name.", name=name)


class ThreadBusyError(RuntimeFault):
    """Another task of the thread is at work or waits, and the new one does not want to wait."""

    code = "thread_busy"
    retryable = True

    def __init__(self) -> None:
        super().__init__("The thread is busy with another run.")


class QueueFullError(RuntimeFault):
    """So many tasks wait in the thread that no further one is let in."""

    code = "queue_full"
    retryable = True

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} runs wait in this thread already.", limit=limit)


class TooManyRequestsError(RuntimeFault):
    """The caller, or all callers of the tenant, asked too often; `rate` is the kind of request."""

    code = "too_many_requests"
    retryable = True

    def __init__(self, rate: str, retry_after_seconds: int) -> None:
        super().__init__(
            f"Too many requests of the kind {rate}: wait for {retry_after_seconds} s.",
            rate=rate,
            retry_after_seconds=retry_after_seconds,
        )


class UnauthenticatedError(RuntimeFault):
    """No valid credential; one message for every cause (S5)."""

    code = "unauthenticated"


class IssuerUnavailableError(RuntimeFault):
    """A token cannot be judged now, since the keys of its issuer cannot be read."""

    code = "issuer_unavailable"
    retryable = True


class NotAllowedError(RuntimeFault):
    """Seen, but the caller lacks the capability that `capability` names."""

    code = "capability_required"

    def __init__(self, capability: str, message: str = "") -> None:
        super().__init__(
            message or f"This needs the capability {capability}.", capability=capability
        )
        self.capability = capability


class SelfApprovalError(RuntimeFault):
    """Four eyes: who asked for an act, or shaped it, may not decide it (S59)."""

    code = "approval_self"


class SelfGrantError(RuntimeFault):
    """Nobody grants a role to themselves (S2)."""

    code = "self_grant"


class LastAdminError(RuntimeFault):
    """The last active admin of a tenant cannot be removed (S2)."""

    code = "last_admin"


class TenantSuspendedError(RuntimeFault):
    """A suspended tenant can be read, not written (S1)."""

    code = "tenant_suspended"


class VersionRequiredError(RuntimeFault):
    """A write on a live task must say which version it acts on (U38)."""

    code = "version_required"


class VersionConflictError(RuntimeFault):
    """The task moved on since the caller looked; fields tell where it stands now."""

    code = "version_conflict"


class TaskTerminalError(RuntimeFault):
    """The task has ended; nothing changes it any more."""

    code = "task_terminal"


class CommandRejectedError(RuntimeFault):
    """The command cannot apply to the task as it stands; `code` says why (E74)."""

    code = "command_not_applicable"

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class RepairRejectedError(RuntimeFault):
    """The repair cannot apply to the task as it stands; `code` says why (E61)."""

    code = "repair_not_applicable"

    def __init__(self, code: str, message: str, **fields: object) -> None:
        super().__init__(message, **fields)
        self.code = code


class ApprovalChangedError(RuntimeFault):
    """What the person saw is not what waits now (S58)."""

    code = "approval_changed"


class ApprovalDecidedError(RuntimeFault):
    """Decisions are final (S62)."""

    code = "approval_decided"


class ApprovalDigestRequiredError(RuntimeFault):
    """An approval is answered with the digest of what was shown (S64)."""

    code = "approval_digest_required"


class IdempotencyMismatchError(RuntimeFault):
    """The key was used before with another payload."""

    code = "idempotency_mismatch"


class IdempotencyInProgressError(RuntimeFault):
    """The first request with this key has not been answered yet."""

    code = "idempotency_in_progress"


class CorruptCheckpointError(RuntimeFault):
    """The newest checkpoint cannot be trusted; the task needs a person."""

    code = "checkpoint_damaged"


class ConfigurationError(RuntimeFault):
    """A workflow or setting is wrong in a way only a developer can mend."""

    code = "configuration_error"


class WorkflowFailedError(ConfigurationError):
    """The code of a workflow raised while it checked a goal or made a plan; nothing was stored."""

    code = "workflow_failed"


class VersionHoldError(RuntimeFault):
    """The installed code does not fit what a live task has left to do; it is paused (E80)."""

    code = "version_hold"


class EngineSignal(BaseException):
    """Leaves a slice on purpose; workflow code's `except Exception` cannot swallow it."""


class LeaseLost(EngineSignal):
    """A newer fence owns the task or its status moved on: write nothing more."""

    def __init__(self, task_id: UUID, fence: int) -> None:
        super().__init__(f"lease of {task_id} with fence {fence} is gone")
        self.task_id = task_id
        self.fence = fence
