"""Who is next: lanes, turns and limits, and the statements that use them.

A lane is what waits of one tenant, workflow and priority, oldest first. The head of each lane is
found by hopping through one index, so neither 10,000 waiting tasks nor a million sleeping ones
cost a claim anything. docs/explanation/who-is-next.md tells the rules.
"""

from uuid import UUID

from ledger_app.services import audit
from tasks_app.engine.sql import TASK_COLUMNS

# A task of the next priority is as urgent when it has waited so much longer.
LEVEL_SECONDS = 60

# Every claim that a limit can concern holds this lock, so that limits are exact.
LIMITS_LOCK = 5_141_004_104

_WAITING = "t.status IN ('queued', 'recovering')"
# Read once for each statement, so that an index can be searched with it.
_NOW = "(SELECT now FROM clock)"

# `lane`: every lane with a task that is due and that no limit holds back.
# A tenant's `load` is how often its weight fits into the number of its running tasks.
_LANES = f"""
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), head AS (
    (SELECT t.tenant_id, t.workflow, t.priority, t.next_wake_at
    FROM tasks_app_task t WHERE {_WAITING}
    ORDER BY t.tenant_id, t.workflow, t.priority, t.next_wake_at LIMIT 1)
    UNION ALL
    SELECT n.* FROM head h CROSS JOIN LATERAL (
        SELECT t.tenant_id, t.workflow, t.priority, t.next_wake_at
        FROM tasks_app_task t
        WHERE {_WAITING}
          AND (t.tenant_id, t.workflow, t.priority) > (h.tenant_id, h.workflow, h.priority)
        ORDER BY t.tenant_id, t.workflow, t.priority, t.next_wake_at LIMIT 1) n
), running AS MATERIALIZED (
    SELECT t.tenant_id, t.workflow, count(*) AS tasks FROM tasks_app_task t
    WHERE t.status IN ('working', 'pausing') AND t.id IS DISTINCT FROM %(except)s::uuid
    GROUP BY t.tenant_id, t.workflow
), lane AS MATERIALIZED (
    SELECT h.tenant_id, h.workflow, h.priority, n.weight, r.tasks / n.weight AS load,
        h.next_wake_at + h.priority * interval '{LEVEL_SECONDS} s' AS rank
    FROM head h
    CROSS JOIN LATERAL (
        -- OFFSET keeps this a look-up for each head, whatever the planner believes of the table.
        SELECT n.weight, n.max_concurrent_tasks FROM tasks_app_tenant n
        WHERE n.id = h.tenant_id AND n.status = 'active' OFFSET 0) n
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(tasks), 0)::bigint AS tasks FROM running
        WHERE running.tenant_id = h.tenant_id) r
    WHERE h.next_wake_at <= {_NOW}
      AND (n.max_concurrent_tasks IS NULL OR r.tasks < n.max_concurrent_tasks)
      AND (%(max_tasks)s = 0 OR %(max_tasks)s > (SELECT coalesce(sum(tasks), 0) FROM running))
      AND coalesce((%(workflow_limits)s::jsonb ->> h.workflow)::bigint > (
        SELECT coalesce(sum(tasks), 0) FROM running WHERE running.workflow = h.workflow), true)
)"""

_LIMITED_TENANT = "SELECT FROM tasks_app_tenant WHERE max_concurrent_tasks IS NOT NULL"

# Whether any limit can concern a claim; locks out other claims until the end of the transaction.
LIMITS = f"""
SELECT pg_advisory_xact_lock(%(limits_lock)s)
WHERE %(limited)s OR EXISTS ({_LIMITED_TENANT})
"""

# Ids in the claim's audit entry that only its statement knows.
SOME_TASK = UUID(int=1)
SOME_TENANT = UUID(int=2)
SOME_STATUS = "@from@"
_ENVELOPE = audit.numbered("%(envelope)s", new_version="c.state_version")
_DETAILS = audit.numbered("%(details)s", fence="c.fence")
_AUDITED = audit.CALL.format(
    "'task:' || c.id",
    "c.tenant_id",
    f"replace(replace({_ENVELOPE}, '{SOME_TASK}', c.id::text), '{SOME_TENANT}', c.tenant_id::text)",
    f"replace({_DETAILS}, '{SOME_STATUS}', b.status)",
    "%(salt)s",
)

# The tenant whose turn it is, then its most urgent task; the named one if that is as good (E41).
# `served`: the slice with which the tenant's last turn began; as many slices as its weight are one.
# Without the lock of the limits (`locked`) nothing is claimed where a tenant has one.
CLAIM = f"""{_LANES}, turn AS MATERIALIZED (
    SELECT lane.*, coalesce((
        SELECT s.id FROM tasks_app_slice s WHERE s.tenant_id = lane.tenant_id
        ORDER BY s.id DESC OFFSET lane.weight - 1 LIMIT 1), 0) AS served
    FROM lane
    WHERE %(locked)s OR NOT EXISTS ({_LIMITED_TENANT})
), preferred AS MATERIALIZED (
    SELECT t.id FROM tasks_app_task t
    JOIN turn USING (tenant_id, workflow, priority)
    WHERE t.id = %(preferred)s AND {_WAITING} AND t.next_wake_at <= {_NOW}
      AND NOT EXISTS (
        SELECT FROM turn o WHERE (o.load, o.served) < (turn.load, turn.served))
      AND NOT EXISTS (
        SELECT FROM turn o WHERE o.tenant_id = t.tenant_id
          AND o.rank < t.next_wake_at + t.priority * interval '{LEVEL_SECONDS} s'
          AND (o.priority < t.priority OR o.rank <= t.next_wake_at
            + (t.priority - 1) * interval '{LEVEL_SECONDS} s'))
    FOR UPDATE OF t SKIP LOCKED
), best AS MATERIALIZED (
    SELECT found.id FROM (
        SELECT * FROM turn WHERE NOT EXISTS (SELECT FROM preferred)
        ORDER BY load, served, tenant_id, rank, priority) o
    CROSS JOIN LATERAL (
        SELECT t.id FROM tasks_app_task t
        WHERE t.tenant_id = o.tenant_id AND t.workflow = o.workflow AND t.priority = o.priority
          AND {_WAITING} AND t.next_wake_at <= {_NOW}
        ORDER BY t.next_wake_at, t.id
        LIMIT 1
        FOR UPDATE SKIP LOCKED) found
    LIMIT 1
), picked AS (
    SELECT id FROM preferred UNION ALL SELECT id FROM best
), before AS (
    SELECT t.id, t.status FROM tasks_app_task t JOIN picked USING (id)
), claimed AS (
    UPDATE tasks_app_task t SET
        status = 'working',
        fence = t.fence + 1,
        state_version = t.state_version + CASE WHEN t.status = 'recovering' THEN 1 ELSE 0 END,
        lease_owner = %(owner)s,
        lease_lock = %(lock)s,
        lease_expires_at = clock_timestamp() + make_interval(secs => %(lease_seconds)s),
        next_wake_at = NULL,
        event_seq = t.event_seq + 1,
        started_at = coalesce(t.started_at, clock_timestamp()),
        updated_at = clock_timestamp()
    FROM picked WHERE t.id = picked.id
    RETURNING t.*
), answered AS (
    DELETE FROM tasks_app_outbox o USING picked WHERE o.task_id = picked.id
), slice AS (
    INSERT INTO tasks_app_slice
        (tenant_id, task_id, fence, worker, recovered, started_at, outcome, steps)
    SELECT c.tenant_id, c.id, c.fence, %(owner)s, b.status = 'recovering', clock_timestamp(),
        'running', 0
    FROM claimed c JOIN before b USING (id)
    RETURNING id
), event AS (
    INSERT INTO tasks_app_event (tenant_id, task_id, seq, type, data, at)
    SELECT c.tenant_id, c.id, c.event_seq, 'status',
        jsonb_build_object('source', b.status, 'target', 'working', 'reason', %(owner)s::text),
        clock_timestamp()
    FROM claimed c JOIN before b USING (id)
)
SELECT {", ".join(f"c.{column}" for column in TASK_COLUMNS)}, b.status, slice.id,
    clock_timestamp(),
    -- Ordered, so that the head of the lane is found in the index among any number of sleepers.
    (SELECT count(*) FROM lane) > 1 OR coalesce((
        SELECT t.next_wake_at <= {_NOW} FROM tasks_app_task t
        WHERE t.tenant_id = c.tenant_id AND t.workflow = c.workflow AND t.priority = c.priority
          AND {_WAITING} AND t.id <> c.id
        ORDER BY t.next_wake_at, t.id LIMIT 1), false),
    {_AUDITED}
FROM claimed c JOIN before b USING (id), slice
"""

# Does anybody wait whom a free worker could serve? Limits count as if `except` had ended (E47).
WAITS = f"{_LANES} SELECT EXISTS (SELECT FROM lane)"

# The task that a place which became free is offered to.
OFFER = f"""{_LANES}
SELECT due.id, due.tenant_id FROM lane CROSS JOIN LATERAL (
    SELECT t.id, t.tenant_id FROM tasks_app_task t
    WHERE t.tenant_id = lane.tenant_id AND t.workflow = lane.workflow
      AND t.priority = lane.priority AND {_WAITING} AND t.next_wake_at <= {_NOW}
    ORDER BY t.next_wake_at, t.id LIMIT 1) due
ORDER BY lane.load, lane.rank LIMIT 1
"""

# Due tasks without an owed message: timers that ended, messages whose row was never written. Only
# the first of each lane are looked at: they are the ones that will be claimed next. The task's lock
# makes sure that it still waits: the row of a task that somebody claimed meanwhile would be nobody's.
OWE_DUE = f"""{_LANES}, forgotten AS MATERIALIZED (
    SELECT due.id FROM lane CROSS JOIN LATERAL (
        SELECT t.id, t.next_wake_at FROM tasks_app_task t
        WHERE t.tenant_id = lane.tenant_id AND t.workflow = lane.workflow
          AND t.priority = lane.priority AND {_WAITING} AND t.next_wake_at <= {_NOW}
        ORDER BY t.next_wake_at, t.id LIMIT %(limit)s) due
    WHERE NOT EXISTS (
        SELECT FROM tasks_app_outbox o WHERE o.task_id = due.id AND o.kind = 'wake')
    ORDER BY lane.rank
    LIMIT %(limit)s
), waiting AS MATERIALIZED (
    SELECT t.id, t.tenant_id FROM tasks_app_task t JOIN forgotten USING (id)
    WHERE {_WAITING}
    FOR NO KEY UPDATE OF t SKIP LOCKED
)
INSERT INTO tasks_app_outbox (tenant_id, task_id, kind, reason, created_at, tries, next_try_at)
SELECT tenant_id, id, 'wake', 'due', clock_timestamp(), 0, clock_timestamp() FROM waiting
ON CONFLICT (task_id, kind) DO NOTHING
"""

# Waits for the row's lock, then looks whether the task is due (it locks, so it sees the newest row).
DUE_AFTER_LOCK = f"""
SELECT t.id FROM tasks_app_task t
WHERE t.id = %s AND {_WAITING} AND t.next_wake_at <= clock_timestamp()
  AND EXISTS (SELECT FROM tasks_app_tenant n WHERE n.id = t.tenant_id AND n.status = 'active')
FOR UPDATE OF t
"""
