"""Many tasks at once: rows copied from one that was admitted, since admission is too slow for that."""

from uuid import UUID

from django.db import connection

# A copy is due after so long; with its steps it can be executed like any other task.
_COPY = """
WITH copied AS (
    INSERT INTO tasks_app_task
    SELECT r.* FROM tasks_app_task t, generate_series(1, %(number)s) n,
        -- `n * 0` makes it another random number for each row.
        LATERAL (SELECT %(from)s + random() * (%(to)s - %(from)s + n * 0) AS seconds) delay,
        LATERAL jsonb_populate_record(t, jsonb_build_object(
            'id', gen_random_uuid(),
            'next_wake_at', clock_timestamp() + make_interval(secs => delay.seconds))) r
    WHERE t.id = %(template)s
    RETURNING id, tenant_id
), steps AS (
    INSERT INTO tasks_app_step
    SELECT r.* FROM copied, tasks_app_step s,
        LATERAL jsonb_populate_record(s, jsonb_build_object(
            'id', nextval(pg_get_serial_sequence('tasks_app_step', 'id')),
            'task_id', copied.id)) r
    WHERE s.task_id = %(template)s AND %(runnable)s
)
INSERT INTO tasks_app_outbox (tenant_id, task_id, kind, reason, created_at, tries, next_try_at)
SELECT tenant_id, id, 'wake', 'admitted', clock_timestamp(), 0, clock_timestamp()
FROM copied WHERE %(runnable)s
"""


def add_waiting(template: UUID, number: int) -> None:
    """Add so many copies of an admitted task, due now, each with a message owed."""
    _add(template, number, from_seconds=0, to_seconds=0, runnable=True)


def add_sleeping(template: UUID, number: int) -> None:
    """Add so many tasks that sleep between an hour and a day; rows only, nothing is owed."""
    _add(template, number, from_seconds=3600, to_seconds=86_400, runnable=False)


def _add(
    template: UUID, number: int, *, from_seconds: float, to_seconds: float, runnable: bool
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            _COPY,
            {
                "template": template,
                "number": number,
                "from": from_seconds,
                "to": to_seconds,
                "runnable": runnable,
            },
        )
