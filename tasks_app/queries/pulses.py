"""What is new in many runs at once: one statement for all streams that were woken together."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from django.db import connection

from tasks_app.domain.states import TaskStatus
from tasks_app.queries.events import EventRow

# How many events of one run come at once; the rest comes when it is asked for again.
MAX_EVENTS = 500

# Rows of Run, Thread, Task and Event; one statement, so each run is seen at one point in time.
_PULSES = """
SELECT asked.place, task.status, task.event_seq, run.base_state_id,
    event.seq, event.type, event.data, event.at
FROM unnest(%(tenants)s::uuid[], %(tasks)s::uuid[], %(after)s::bigint[])
    WITH ORDINALITY AS asked (tenant_id, task_id, after, place)
JOIN tasks_app_run run ON run.task_id = asked.task_id AND run.tenant_id = asked.tenant_id
    AND run.hidden_at IS NULL
JOIN tasks_app_thread thread ON thread.id = run.thread_id AND thread.deleted_at IS NULL
JOIN tasks_app_task task ON task.id = asked.task_id
LEFT JOIN LATERAL (
    SELECT seq, type, data, at FROM tasks_app_event
    WHERE task_id = asked.task_id AND seq > asked.after AND seq <= task.event_seq
    ORDER BY seq LIMIT %(limit)s
) event ON true
ORDER BY asked.place, event.seq"""


class Question(NamedTuple):
    """A run that its asker may see, and the last event of it that the asker knows."""

    tenant_id: UUID
    task_id: UUID
    after: int


@dataclass(frozen=True, slots=True)
class Pulse:
    """Where a run stands, and its events after the one that the asker knows."""

    status: TaskStatus
    seq: int
    base_state_id: UUID | None
    events: list[EventRow]


def pulses_of(asked: Sequence[Question]) -> list[Pulse | None]:
    """Return the answer to each question; None for a run that is hidden or whose thread is gone."""
    found: list[Pulse | None] = [None] * len(asked)
    with connection.cursor() as cursor:
        cursor.execute(
            _PULSES,
            {
                "tenants": [one.tenant_id for one in asked],
                "tasks": [one.task_id for one in asked],
                "after": [one.after for one in asked],
                "limit": MAX_EVENTS,
            },
        )
        for place, status, newest, base, seq, kind, data, at in cursor.fetchall():
            pulse = found[place - 1]
            if pulse is None:
                pulse = found[place - 1] = Pulse(TaskStatus(status), newest, base, [])
            if seq is not None:
                pulse.events.append(EventRow(seq, kind, json.loads(data), at))
    return found
