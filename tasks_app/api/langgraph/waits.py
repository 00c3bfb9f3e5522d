"""Answers that wait for the end of a run: blanks so that no proxy cuts them, then one JSON object.

An answer that is cut short breaks off, so that no client takes the half of it for a result (R56).
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from tasks_app.api.langgraph.door import CutShortError
from tasks_app.api.langgraph.frames import INTERRUPT
from tasks_app.api.langgraph.render import Json, error_of, interrupt_json, values_json
from tasks_app.conf import runtime
from tasks_app.domain.principal import Principal
from tasks_app.domain.runs import RunStatus
from tasks_app.domain.states import TaskStatus
from tasks_app.events.wakes import Waker
from tasks_app.queries.runs import RunHead, get_head, has_live_children
from tasks_app.queries.thread_states import interrupts_of, values_of

BLANK = "\n"


def result_of(principal: Principal, run: RunHead) -> Json | None:
    """Return what a run has come to; None while it goes on. Raises: NotFoundError."""
    now = get_head(principal, run.task_id)
    if not now.is_over:
        return None
    if now.task_status is TaskStatus.CANCELLED:
        return {"status": now.status, "stop_reason": now.stop_reason}
    if now.status in {RunStatus.ERROR, RunStatus.TIMEOUT}:
        return {"__error__": error_of(now)}
    values = values_json(values_of(principal, now))
    if now.is_terminal:
        return values
    interrupts = interrupts_of(principal, now)
    return {INTERRUPT: [interrupt_json(one) for one in interrupts], **values}


def is_at_rest(principal: Principal, run: RunHead) -> bool:
    """Tell whether a run and all that it started have ended. Raises: NotFoundError."""
    now = get_head(principal, run.task_id)
    return now.is_terminal and not has_live_children(principal, run.task_id)


async def waited(waker: Waker, ask: Callable[[], Awaitable[Json | None]]) -> AsyncGenerator[str]:
    """Yield blanks until there is a result, then the result."""
    now = asyncio.get_running_loop().time
    speaks_at = now() + runtime().stream_heartbeat_seconds
    while (found := await ask()) is None:
        if waker.is_ending:
            raise CutShortError
        await waker.wait(speaks_at - now())
        if now() >= speaks_at:
            speaks_at = now() + runtime().stream_heartbeat_seconds
            yield BLANK
    yield text_of(found)


async def settled(waker: Waker, ask: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    """Wait until something is so, at most so long; return whether it is."""
    now = asyncio.get_running_loop().time
    ends_at = now() + seconds
    while not await ask():
        if now() >= ends_at or waker.is_ending:
            return False
        await waker.wait(min(1.0, ends_at - now()))
    return True


def text_of(value: Any) -> str:
    """Return the JSON text of an answer, the same for the same value."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
