"""`subscriptions/listen`: changes of tasks and lists, each read anew from the database.

A wake-up may be lost, so the database is looked at by the clock as well. While a stream is open it
holds neither a connection nor a lock.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from mcp.server.context import HandlerResult
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, SubscriptionsListenRequestParams
from pydantic import BaseModel

from tasks_app.api.errors import HttpFaultError
from tasks_app.api.visits import take_slot
from tasks_app.domain.errors import NotFoundError, RuntimeFault
from tasks_app.domain.principal import Principal
from tasks_app.events.wakes import Waker
from tasks_app.mcp_server import tasks, tools
from tasks_app.mcp_server.caller import (
    Caller,
    Context,
    caller_of,
    elicitation_modes,
    require_tasks,
    visit,
)

Json = dict[str, Any]

MAX_TASKS = 100
RECHECK_SECONDS = 10.0
# Nobody is told when a tool comes or a right goes, so lists are looked at more often; that asks
# nothing of the database.
LISTS_RECHECK_SECONDS = 0.25
# How long a credential that stood is taken to stand.
CONFIRM_SECONDS = 1.0
# At most so many frames a second for one task.
PAUSE_SECONDS = 0.25
TERMINAL = frozenset({"completed", "failed", "cancelled"})

_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
_TASK_URI = "task://"
_NO_TASK = UUID(int=0)


class _Note(BaseModel):
    """A notification whose params stay as they are, nulls included."""

    method: str
    params: dict[str, Any]


@dataclass(slots=True)
class _Wanted:
    """What one stream tells of; `seen` is what was told last."""

    tasks: list[UUID] = field(default_factory=list)
    resources: list[UUID] = field(default_factory=list)
    tools: bool = False
    seen: dict[str, str] = field(default_factory=dict)
    ended: set[UUID] = field(default_factory=set)

    @property
    def is_over(self) -> bool:
        """Tell whether nothing can come any more: only tasks were asked for, and all have ended."""
        only_tasks = bool(self.tasks) and not (self.resources or self.tools)
        return only_tasks and self.ended >= set(self.tasks)


async def listen(ctx: Context, params: SubscriptionsListenRequestParams) -> HandlerResult:
    """Answer `subscriptions/listen`: acknowledge, tell the present state, then each change."""
    asked = params.notifications
    named = (asked.model_extra or {}).get("taskIds")
    if named is not None:
        require_tasks(ctx)
    caller, modes = caller_of(ctx), elicitation_modes(ctx)
    wanted = await visit(
        _granted,
        caller.principal,
        _ids(named),
        _resource_ids(asked.resource_subscriptions),
        bool(asked.tools_list_changed),
    )
    try:
        slot = take_slot(caller.principal)
    except HttpFaultError as fault:
        raise MCPError(INVALID_PARAMS, fault.message, {"reason": fault.code}) from None
    meta = {_SUBSCRIPTION: ctx.request_id}
    try:
        async with _wakers([*wanted.tasks, *wanted.resources]) as wakers:
            await _send(
                ctx,
                "notifications/subscriptions/acknowledged",
                {"notifications": _acknowledged(wanted, named is not None), "_meta": meta},
            )
            await _tell_all(ctx, caller, wanted, modes, wakers, meta)
    finally:
        slot.release()
    return {"resultType": "complete", "_meta": meta}


async def _tell_all(
    ctx: Context,
    caller: Caller,
    wanted: _Wanted,
    modes: Collection[str],
    wakers: Sequence[Waker],
    meta: Json,
) -> None:
    principal = caller.principal
    now = asyncio.get_running_loop().time
    confirmed_at = now()
    while True:
        for method, params in await visit(_changes, principal, wanted, modes):
            await _send(ctx, method, {**params, "_meta": {**params.get("_meta", {}), **meta}})
        if wanted.is_over or any(waker.is_ending for waker in wakers):
            return
        await _woken(wakers, LISTS_RECHECK_SECONDS if wanted.tools else RECHECK_SECONDS)
        await asyncio.sleep(PAUSE_SECONDS)
        if now() - confirmed_at < CONFIRM_SECONDS:
            continue
        confirmed_at = now()
        try:
            principal = await visit(caller.confirm)
        except RuntimeFault:
            # The credential no longer stands.
            return


def _granted(
    principal: Principal, task_ids: Sequence[UUID], resource_ids: Sequence[UUID], lists: bool
) -> _Wanted:
    """Return what of the wish is there and visible; the rest is dropped without a word."""

    def is_seen(task_id: UUID) -> bool:
        with suppress(NotFoundError):
            tasks.find(principal, task_id)
            return True
        return False

    return _Wanted(
        tasks=[task_id for task_id in task_ids if is_seen(task_id)],
        resources=[task_id for task_id in resource_ids if is_seen(task_id)],
        tools=lists,
        seen={"tools": _tools_of(principal)} if lists else {},
    )


def _changes(
    principal: Principal, wanted: _Wanted, modes: Collection[str]
) -> list[tuple[str, Json]]:
    """Return what is different from what was told before, and take it down as told."""
    told: list[tuple[str, Json]] = []
    for task_id in [one for one in wanted.tasks if one not in wanted.ended]:
        try:
            task = tasks.tell(tasks.look(principal, task_id), modes)
        except NotFoundError:
            wanted.ended.add(task_id)
            continue
        if _is_new(wanted, f"task:{task_id}", task):
            told.append(("notifications/tasks", task))
        if task["status"] in TERMINAL:
            wanted.ended.add(task_id)
    for task_id in wanted.resources:
        with suppress(NotFoundError):
            snapshot = tasks.find(principal, task_id)
            if _is_new(wanted, f"resource:{task_id}", [snapshot.state_version, snapshot.seq]):
                told.append(("notifications/resources/updated", {"uri": f"{_TASK_URI}{task_id}"}))
    if wanted.tools and wanted.seen["tools"] != (now := _tools_of(principal)):
        wanted.seen["tools"] = now
        told.append(("notifications/tools/list_changed", {}))
    return told


def _is_new(wanted: _Wanted, key: str, state: Any) -> bool:
    text = json.dumps(state, sort_keys=True, default=str)
    is_new = wanted.seen.get(key) != text
    # A resource's first state is what the client reads for itself.
    is_first = key not in wanted.seen
    wanted.seen[key] = text
    return is_new and not (is_first and key.startswith("resource:"))


def _tools_of(principal: Principal) -> str:
    """Return what tells one list of tools from another: names, and versions of workflows."""
    return json.dumps([[tool["name"], tool.get("_meta")] for tool in tools.tools_of(principal)])


def _ids(named: Any) -> list[UUID]:
    """Return the ids that are ids; a list that is too long is refused. Raises: MCPError."""
    if named is None:
        return []
    if not isinstance(named, list) or len(named) > MAX_TASKS:
        raise MCPError(INVALID_PARAMS, f"taskIds is a list of at most {MAX_TASKS} ids.")
    return [found for text in named if (found := _id(text)) is not None]


def _resource_ids(uris: Sequence[str] | None) -> list[UUID]:
    named = [uri.removeprefix(_TASK_URI) for uri in uris or () if uri.startswith(_TASK_URI)]
    return _ids(named)


def _id(text: Any) -> UUID | None:
    with suppress(ValueError):
        return UUID(text) if isinstance(text, str) else None
    return None


def _acknowledged(wanted: _Wanted, asked_tasks: bool) -> Json:
    granted: Json = {}
    if asked_tasks:
        granted["taskIds"] = [str(task_id) for task_id in wanted.tasks]
    if wanted.resources:
        granted["resourceSubscriptions"] = [f"{_TASK_URI}{one}" for one in wanted.resources]
    if wanted.tools:
        granted["toolsListChanged"] = True
    return granted


@asynccontextmanager
async def _wakers(task_ids: Sequence[UUID]) -> AsyncIterator[list[Waker]]:
    async with AsyncExitStack() as stack:
        # One that hears of nothing but the end of this server, where no task is named.
        unique = dict.fromkeys(task_ids) or [_NO_TASK]
        yield [await stack.enter_async_context(Waker(task_id)) for task_id in unique]


async def _woken(wakers: Sequence[Waker], seconds: float) -> None:
    """Wait until any task was told of, or the clock says to look again."""
    waits = [asyncio.ensure_future(waker.wait(seconds)) for waker in wakers]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


async def _send(ctx: Context, method: str, params: Json) -> None:
    note: Any = _Note(method=method, params=params)
    await ctx.session.send_notification(note, related_request_id=ctx.request_id)
