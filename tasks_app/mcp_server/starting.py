"""A call of a workflow's tool: admit the task, then answer as this client can take it."""

import asyncio
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    ProgressNotification,
    ProgressNotificationParams,
)
from pydantic import Field, ValidationError

from tasks_app.admission.tasks import admit_task
from tasks_app.api.base import Input, field_problems
from tasks_app.api.inputs import (
    ApprovalPolicyInput,
    BudgetInput,
    CheckpointPolicyInput,
    WholeNumber,
)
from tasks_app.conf import runtime
from tasks_app.domain.errors import (
    IdempotencyMismatchError,
    InvalidInputError,
    NotFoundError,
    RuntimeFault,
)
from tasks_app.domain.principal import Principal
from tasks_app.domain.states import TERMINAL, TaskStatus
from tasks_app.domain.tracing import Trace, received
from tasks_app.events import listening
from tasks_app.events.wakes import Waker
from tasks_app.mcp_server import preflight, tasks, wire
from tasks_app.mcp_server.caller import (
    Context,
    as_error,
    caller_of,
    is_modern,
    knows_tasks,
    meta_of,
    missing_extension,
    visit,
)
from tasks_app.mcp_server.quick import invalid
from tasks_app.queries.snapshot import TaskSnapshot, get_snapshot
from tasks_app.workflows.definition import Workflow

Json = dict[str, Any]

KEY_MAX = 255
PROGRESS_SECONDS = 1.0
# A wake-up may be lost, so the database is looked at by the clock as well.
RECHECK_SECONDS = 10.0


class Options(Input):
    """What a caller may set of a task besides its goal; the workflow's own limits stay."""

    priority: WholeNumber = Field(5, ge=0, le=9)
    checkpoint_policy: CheckpointPolicyInput | None = None
    approval_policy: ApprovalPolicyInput | None = None
    budget: BudgetInput | None = None


async def call(
    ctx: Context, definition: type[Workflow[Any, Any]], params: CallToolRequestParams
) -> Json:
    """Answer the call of a workflow's tool."""
    declares = knows_tasks(ctx)
    if not declares and definition.mcp.sync == "refuse":
        raise missing_extension()
    asked = preflight.ask(ctx, params, definition().preflight)
    if asked.result is not None:
        return asked.result
    principal = caller_of(ctx).principal
    key = _key(ctx) or (f"mcp-state:{asked.nonce}" if asked.nonce else None)
    options = _options(ctx)
    try:
        # Whoever hangs up in the middle has still made the task: it must be known here.
        with anyio.CancelScope(shield=True):
            snapshot = await visit(
                _admit, principal, definition, asked.arguments, key, options, _trace(ctx)
            )
    except InvalidInputError as fault:
        listed = [f"{problem.pointer}: {problem.detail}" for problem in fault.errors]
        return invalid(listed or [fault.message])
    except IdempotencyMismatchError:
        raise MCPError(
            INVALID_PARAMS,
            "The idempotency key stands for another call.",
            {"reason": "idempotency_conflict"},
        ) from None
    except NotFoundError as fault:
        raise as_error(fault) from None
    except RuntimeFault as fault:
        return wire.refused(fault.code, fault.message)
    if declares:
        return wire.created(snapshot)
    if definition.mcp.sync == "handle":
        return wire.handle(snapshot)
    return await _wait(ctx, principal, snapshot)


def _admit(
    principal: Principal,
    definition: type[Workflow[Any, Any]],
    arguments: Mapping[str, Any],
    key: str | None,
    options: Mapping[str, Any],
    trace: Trace | None,
) -> TaskSnapshot:
    admitted = admit_task(
        principal,
        workflow=definition.workflow_name,
        goal=arguments,
        source="mcp",
        idempotency_key=key,
        trace=trace,
        **options,
    )
    return get_snapshot(principal, admitted.task_id)


def _trace(ctx: Context) -> Trace | None:
    meta = meta_of(ctx)
    return received(meta.get("traceparent"), meta.get("tracestate", ""))


def _key(ctx: Context) -> str | None:
    key = meta_of(ctx).get(wire.meta_key("idempotency-key"))
    if key is None:
        return None
    if not isinstance(key, str) or not 1 <= len(key.strip()) <= KEY_MAX:
        raise MCPError(INVALID_PARAMS, f"The idempotency key is text of 1 to {KEY_MAX} characters.")
    return key


def _options(ctx: Context) -> dict[str, Any]:
    try:
        options = Options.model_validate(meta_of(ctx).get(wire.meta_key("options")) or {})
    except ValidationError as error:
        problems = {problem.pointer: problem.detail for problem in field_problems(error)}
        raise MCPError(INVALID_PARAMS, "The options do not fit.", {"errors": problems}) from None
    return options.model_dump(exclude_none=True)


async def _wait(ctx: Context, principal: Principal, snapshot: TaskSnapshot) -> Json:
    """Wait a while for the result; a client that goes away meanwhile has cancelled (2026-07-28)."""
    try:
        return await _result(ctx, principal, snapshot.task_id)
    except asyncio.CancelledError:
        # The SDK ends the handler of a client that has gone in every revision, and of all clients
        # when this server stops.
        if is_modern(ctx) and not listening.manager().is_ending:
            with anyio.CancelScope(shield=True):
                await visit(_leave, principal, snapshot.task_id)
        raise


def _leave(principal: Principal, task_id: UUID) -> None:
    try:
        tasks.cancel(principal, task_id, "the MCP client left while it waited")
    except RuntimeFault:
        # Whoever may not cancel cannot do it by hanging up (security S14).
        return


async def _result(ctx: Context, principal: Principal, task_id: UUID) -> Json:
    now = asyncio.get_running_loop().time
    ends_at = now() + runtime().mcp_sync_wait_seconds
    told = -1.0
    pause = PROGRESS_SECONDS if "progressToken" in meta_of(ctx) else RECHECK_SECONDS
    async with Waker(task_id) as waker:
        while True:
            snapshot = await visit(get_snapshot, principal, task_id)
            if snapshot.status in TERMINAL:
                return await visit(_finished, principal, snapshot)
            if now() >= ends_at or waker.is_ending or snapshot.status is TaskStatus.INPUT_REQUIRED:
                return wire.handle(snapshot)
            told = await _tell_progress(ctx, snapshot, told)
            await waker.wait(min(pause, ends_at - now()))


def _finished(principal: Principal, snapshot: TaskSnapshot) -> Json:
    told = tasks.tell(tasks.look_at(principal, snapshot), ())
    if "error" in told:
        error = told["error"]
        raise MCPError(error["code"], error["message"], error["data"])
    if told["status"] == "cancelled":
        return wire.refused("cancelled", snapshot.status_message)
    return told["result"]  # type: ignore[no-any-return]


async def _tell_progress(ctx: Context, snapshot: TaskSnapshot, told: float) -> float:
    """Tell a client that asked for it how far the task is, with growing numbers; return the last."""
    token = meta_of(ctx).get("progressToken")
    progress = float(snapshot.progress_done)
    if token is None or progress <= told:
        return told
    await ctx.session.send_notification(
        ProgressNotification(
            params=ProgressNotificationParams(
                progress_token=token,
                progress=progress,
                total=snapshot.progress_total,
                message=snapshot.status_message[: wire.MESSAGE_MAX],
            )
        ),
        related_request_id=ctx.request_id,
    )
    return progress
