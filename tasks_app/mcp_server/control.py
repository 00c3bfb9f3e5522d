"""Tools to follow and steer tasks: for every client, also one that knows no tasks."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID, uuid4

from pydantic import Field, ValidationError

from tasks_app.admission import approvals, commands
from tasks_app.api.base import Input, field_problems
from tasks_app.api.inputs import Reason, WholeNumber
from tasks_app.api.outputs import TaskItem, TaskOut
from tasks_app.domain.errors import RuntimeFault
from tasks_app.domain.principal import Principal
from tasks_app.domain.states import TERMINAL, TaskStatus
from tasks_app.events.wakes import Waker
from tasks_app.mcp_server import tasks, wire
from tasks_app.mcp_server.caller import UNKNOWN_TASK, Context, caller_of, visit
from tasks_app.mcp_server.quick import invalid
from tasks_app.policy.capabilities import holds, require
from tasks_app.queries.snapshot import get_version
from tasks_app.queries.tasks import TaskFilters, list_tasks

Json = dict[str, Any]

WAIT_MAX = 25
PAGE_MAX = 50


class StatusArguments(Input):
    """Which task, and how long to wait for it to change."""

    task_id: UUID
    wait_seconds: WholeNumber = Field(
        0, ge=0, le=WAIT_MAX, description="Wait so long for the task to change."
    )


class ListArguments(Input):
    """Which of the tasks that the caller sees."""

    status: TaskStatus | None = None
    limit: WholeNumber = Field(20, ge=1, le=PAGE_MAX)
    cursor: str | None = Field(
        None, max_length=1000, description="`nextCursor` of the page before."
    )


class SteerArguments(Input):
    """An instruction to a live task, applied at its next safe point."""

    task_id: UUID
    type: Literal["pause", "resume", "cancel", "adjust_goal", "provide_input", "set_priority"]
    payload: dict[str, Any] = Field(
        default_factory=dict,
        description="adjust_goal: the changed fields. provide_input: answer. set_priority: priority.",
    )
    expected_version: WholeNumber = Field(ge=1, description="`stateVersion` of the task as seen.")
    reason: Reason


class DecideArguments(Input):
    """A decision about exactly the act that was shown."""

    task_id: UUID
    request_id: UUID = Field(description="`openApproval.id` of the task.")
    decision: Literal["approve", "reject"]
    digest: str = Field(max_length=64, description="`openApproval.argsSha256` as shown.")
    expected_version: WholeNumber = Field(ge=1, description="`openApproval.version` as shown.")
    reason: Reason


@dataclass(frozen=True, slots=True)
class _Tool:
    title: str
    description: str
    arguments: type[Input]
    # Any of them lets the tool be seen; the act itself asks again.
    capabilities: tuple[str, ...]
    annotations: Mapping[str, bool]
    act: Callable[[Principal, Any], Json]


def _list(principal: Principal, asked: ListArguments) -> Json:
    require(principal, "tasks:read")
    filters = TaskFilters(states=(asked.status,) if asked.status else ())
    page = list_tasks(principal, filters, asked.cursor, asked.limit)
    items = [_json(TaskItem.of(row)) for row in page.items]
    return _told({"items": items, "nextCursor": page.next_cursor})


def _status(principal: Principal, asked: StatusArguments) -> Json:
    snapshot = tasks.find(principal, asked.task_id)
    told = _json(TaskOut.of(snapshot))
    if snapshot.status not in TERMINAL:
        return _told(told)
    finished = tasks.tell(tasks.look_at(principal, snapshot), ())
    links = finished.get("result", {}).get("content", [])[1:]
    return _told(told, links)


def _steer(principal: Principal, asked: SteerArguments) -> Json:
    given = commands.submit_command(
        principal,
        task_id=asked.task_id,
        command_id=uuid4(),
        type=asked.type,
        payload=asked.payload,
        expected_version=asked.expected_version,
        reason=asked.reason,
        source="mcp",
    )
    return _told(
        {
            "commandId": str(given.command_id),
            "state": given.status,
            "stateVersion": given.state_version,
        }
    )


def _decide(principal: Principal, asked: DecideArguments) -> Json:
    tasks.find(principal, asked.task_id)
    approvals.decide_approval(
        principal,
        approval_id=asked.request_id,
        decision="approve" if asked.decision == "approve" else "deny",
        args_sha256=asked.digest,
        expected_version=asked.expected_version,
        reason=asked.reason,
        source="mcp",
    )
    version, _ = get_version(principal, asked.task_id)
    return _told({"stateVersion": version})


_READS = {"readOnlyHint": True, "openWorldHint": False}
_ACTS = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False}

TOOLS: dict[str, _Tool] = {
    "task_decide": _Tool(
        "Decide an approval",
        "Approve or reject the act that a task waits with. Nobody decides what they asked for.",
        DecideArguments,
        ("approvals:decide",),
        _ACTS,
        _decide,
    ),
    "task_list": _Tool(
        "List tasks",
        "List tasks that you may see, newest first.",
        ListArguments,
        ("tasks:read",),
        _READS,
        _list,
    ),
    "task_status": _Tool(
        "Look at a task",
        "Tell how far a task is, what it waits for, and its result when it has ended.",
        StatusArguments,
        ("tasks:read",),
        _READS,
        _status,
    ),
    "task_steer": _Tool(
        "Steer a task",
        "Pause, resume or cancel a task, change its goal or priority, or answer its question."
        " Every instruction names the version that was seen.",
        SteerArguments,
        ("tasks:steer", "tasks:cancel"),
        _ACTS,
        _steer,
    ),
}


def needed(name: str, arguments: object) -> tuple[str, ...]:
    """Return the capabilities of which a call needs one: to cancel is a right of its own."""
    if name != "task_steer" or not isinstance(arguments, Mapping) or "type" not in arguments:
        return TOOLS[name].capabilities
    return ("tasks:cancel",) if arguments["type"] == "cancel" else ("tasks:steer",)


def describe(name: str) -> Json:
    """Return a control tool as `tools/list` tells it."""
    tool = TOOLS[name]
    return {
        "name": name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.arguments.model_json_schema(by_alias=True),
        "annotations": {"title": tool.title, **tool.annotations},
    }


def may_use(principal: Principal, name: str) -> bool:
    """Tell whether a principal may use a control tool at all."""
    return any(holds(principal, capability) for capability in TOOLS[name].capabilities)


async def call(ctx: Context, name: str, arguments: Mapping[str, Any]) -> Json:
    """Answer the call of a control tool; a refusal is told as an error of the tool."""
    tool, principal = TOOLS[name], caller_of(ctx).principal
    try:
        asked = tool.arguments.model_validate(arguments)
    except ValidationError as error:
        return invalid(
            [f"{problem.pointer}: {problem.detail}" for problem in field_problems(error)]
        )
    try:
        if isinstance(asked, StatusArguments) and asked.wait_seconds:
            await _until_changed(principal, asked)
        return await visit(tool.act, principal, asked)
    except RuntimeFault as fault:
        return _refusal(fault)


async def _until_changed(principal: Principal, asked: StatusArguments) -> None:
    """Wait until a task has moved on or ended, at most so long as was asked."""
    now = asyncio.get_running_loop().time
    ends_at = now() + asked.wait_seconds
    async with Waker(asked.task_id) as waker:
        first = await visit(tasks.find, principal, asked.task_id)
        seen = first
        while (seen.state_version, seen.status) == (first.state_version, first.status):
            if seen.status in TERMINAL or now() >= ends_at or waker.is_ending:
                return
            await waker.wait(ends_at - now())
            seen = await visit(tasks.find, principal, asked.task_id)


def _refusal(fault: RuntimeFault) -> Json:
    message = UNKNOWN_TASK if fault.code == "not_found" else fault.message
    facts = {_camel(name): value for name, value in fault.fields.items()}
    return wire.refused(fault.code, message, **_plain(facts))


def _told(value: Json, links: list[Json] | None = None) -> Json:
    return wire.value_result(value, "", links or [])


def _json(row: Any) -> Json:
    return row.model_dump(mode="json", by_alias=True)  # type: ignore[no-any-return]


def _plain(facts: Mapping[str, Any]) -> Json:
    return {
        name: value if value is None or isinstance(value, (int, float, bool)) else str(value)
        for name, value in facts.items()
    }


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)
