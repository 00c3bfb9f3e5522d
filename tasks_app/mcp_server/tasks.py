"""`tasks/get`, `tasks/update` and `tasks/cancel`: the Tasks extension (SEP-2663)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from django.utils import timezone
from mcp.server.context import HandlerResult
from mcp.shared.exceptions import MCPError
from mcp_types import HEADER_MISMATCH, INVALID_PARAMS, RequestParams
from pydantic import ConfigDict, Field

from tasks_app.admission import commands
from tasks_app.domain.errors import (
    CommandRejectedError,
    NotFoundError,
    RuntimeFault,
    TaskTerminalError,
    VersionConflictError,
)
from tasks_app.domain.principal import Principal
from tasks_app.mcp_server import offers, wire
from tasks_app.mcp_server.caller import (
    UNKNOWN_TASK,
    Context,
    as_error,
    caller_of,
    elicitation_modes,
    name_header,
    require_tasks,
    visit,
)
from tasks_app.policy.capabilities import require
from tasks_app.queries.artifacts import ArtifactRow, list_outputs
from tasks_app.queries.snapshot import TaskSnapshot, get_snapshot

SEEN_KEY = "perdure.seen"
# How often a task may move on while one cancel is given.
_TRIES = 5


class TaskParams(RequestParams):
    """The task that a request is about."""

    model_config = ConfigDict(extra="allow")

    task_id: str = Field(alias="taskId")


class UpdateParams(TaskParams):
    """Answers by the key of what was asked."""

    input_responses: dict[str, Any] = Field(alias="inputResponses")


@dataclass(frozen=True, slots=True)
class Seen:
    """All that is read of a task to tell a caller of it."""

    snapshot: TaskSnapshot
    offers: Sequence[offers.Offer]
    outputs: Sequence[ArtifactRow]


async def get_task(ctx: Context, params: TaskParams) -> HandlerResult:
    """Answer `tasks/get` with what the door has read together with the credential."""
    task_id = _named(ctx, params)
    try:
        seen = seen_at_the_door(ctx)
        if seen is None:
            seen = await visit(look, caller_of(ctx).principal, task_id)
    except RuntimeFault as fault:
        raise as_error(fault) from None
    return tell(seen, elicitation_modes(ctx))


def look_early(principal: Principal, message: Any) -> Seen | RuntimeFault | None:
    """Return what a message asks for that is one look at a task; None for any other message.

    A fault is returned, to be told in the order that the protocol wants.
    """
    if not isinstance(message, Mapping) or message.get("method") != "tasks/get":
        return None
    params = message.get("params")
    text = params.get("taskId") if isinstance(params, Mapping) else None
    try:
        return look(principal, UUID(text)) if isinstance(text, str) else None
    except ValueError:
        return None
    except RuntimeFault as fault:
        return fault


def seen_at_the_door(ctx: Context) -> Seen | None:
    """Return what the door has read for this request, if anything. Raises: what it met there."""
    found = None if ctx.request is None else ctx.request.scope.get(SEEN_KEY)
    if isinstance(found, RuntimeFault):
        raise found
    return found if isinstance(found, Seen) else None


async def update_task(ctx: Context, params: UpdateParams) -> HandlerResult:
    """Answer `tasks/update`: all given answers are applied, or none."""
    task_id = _named(ctx, params)
    modes = elicitation_modes(ctx) or frozenset({offers.FORM, offers.URL})
    principal = caller_of(ctx).principal
    try:
        await visit(answer, principal, task_id, params.input_responses, modes)
    except RuntimeFault as fault:
        raise as_error(fault) from None
    return {"resultType": "complete"}


async def cancel_task(ctx: Context, params: TaskParams) -> HandlerResult:
    """Answer `tasks/cancel`; a task that has ended, or is ending, takes it as well."""
    task_id = _named(ctx, params)
    try:
        await visit(cancel, caller_of(ctx).principal, task_id, "cancelled by an MCP client")
    except RuntimeFault as fault:
        raise as_error(fault) from None
    return {"resultType": "complete"}


def find(principal: Principal, task_id: UUID) -> TaskSnapshot:
    """Return a task that is still answered over MCP.

    Raises: NotFoundError when it is unknown, not the caller's to see, or kept no longer.
    """
    require(principal, "tasks:read")
    snapshot = get_snapshot(principal, task_id)
    until = wire.expires_at(snapshot)
    if until is not None and until < timezone.now():
        raise NotFoundError("Not found.")
    return snapshot


def look(principal: Principal, task_id: UUID) -> Seen:
    """Read a task with what it asks this caller, or with what it made.

    Raises: NotFoundError, NotAllowedError.
    """
    return look_at(principal, find(principal, task_id))


def look_at(principal: Principal, snapshot: TaskSnapshot) -> Seen:
    """Read what belongs to a snapshot."""
    asked = offers.list_offers(principal, snapshot)
    is_done = wire.status_of(snapshot, asked) == "completed"
    sees = is_done and principal.can("artifacts:read")
    outputs = list_outputs(principal, snapshot.task_id, presented_only=True) if sees else []
    return Seen(snapshot, asked, outputs)


def tell(seen: Seen, modes: Collection[str]) -> wire.Json:
    """Return a task as `tasks/get` tells it to a client that can ask in these modes."""
    return wire.detailed(seen.snapshot, offers.in_modes(seen.offers, modes), seen.outputs)


def answer(
    principal: Principal, task_id: UUID, responses: Mapping[str, Any], modes: Collection[str]
) -> None:
    """Check all answers, then apply them; keys that are not asked of this caller are passed over.

    Raises: MCPError with `data.errors` by key, when nothing was applied; NotFoundError and what
    commands and decisions raise.
    """
    snapshot = find(principal, task_id)
    asked = {
        offer.key: offer
        for offer in offers.in_modes(offers.list_offers(principal, snapshot), modes)
        if offer.key in responses
    }
    wrong = {key: offers.check(offer, responses[key]) for key, offer in asked.items()}
    wrong = {key: problems for key, problems in wrong.items() if problems}
    if wrong:
        raise MCPError(INVALID_PARAMS, "An answer does not fit what was asked.", {"errors": wrong})
    for key, offer in asked.items():
        offers.apply(principal, offer, responses[key])


def cancel(principal: Principal, task_id: UUID, reason: str) -> None:
    """Ask for a task's cancel, whatever its version; nothing happens when it has ended.

    Raises: NotFoundError, NotAllowedError.
    """
    command_id = uuid4()
    for _ in range(_TRIES):
        snapshot = find(principal, task_id)
        require(principal, "tasks:cancel", snapshot)
        try:
            commands.submit_command(
                principal,
                task_id=task_id,
                command_id=command_id,
                type="cancel",
                payload={},
                expected_version=snapshot.state_version,
                reason=reason,
                source="mcp",
            )
        except VersionConflictError:
            continue
        except (TaskTerminalError, CommandRejectedError):
            return
        return
    raise VersionConflictError("The task moves on faster than it can be cancelled.")


def _named(ctx: Context, params: TaskParams) -> UUID:
    """Return the task that a request names. Raises: MCPError in the order that mcp.md asks for."""
    require_tasks(ctx)
    name = name_header(ctx)
    if name is not None and name != params.task_id:
        raise MCPError(HEADER_MISMATCH, "Mcp-Name and taskId are not the same.")
    try:
        return UUID(params.task_id)
    except ValueError:
        raise MCPError(INVALID_PARAMS, UNKNOWN_TASK) from None
