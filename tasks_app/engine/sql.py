"""The hot statements, by hand: renew, lost leases. One round trip each.

Rules they keep: the database's clock only, read after a row lock; the fence in every WHERE; the
task row first in every statement, so that its lock orders all writers. Measured against the ORM in
docs/decisions/hot-sql.md. The step commit is in commit_sql, the claim in queue_sql, a move in
transitions.
"""

# The columns a slice needs to know about its task, in the order of `lease.ClaimedTask`.
TASK_COLUMNS = (
    "id",
    "tenant_id",
    "workflow",
    "workflow_version",
    "goal",
    "status",
    "state_version",
    "plan_version",
    "plan_result",
    "next_position",
    "fence",
    "event_seq",
    "checkpoint_seq",
    "command_seq",
    "steering_cursor",
    "recoveries",
    "checkpoint_policy",
    "approval_policy",
    "initiator_id",
    "policy_version",
    "progress_done",
    "progress_total",
    "closing_as",
    "budget",
    "steps_done",
    "active_seconds",
    "deadline_at",
    "thread_id",
    "parent_id",
)

# One statement for the lease of one process; the lock comes before the time is read.
RENEW = """
WITH mine AS (
    SELECT id FROM tasks_app_task
    WHERE id = %(task_id)s AND fence = %(fence)s AND status IN ('working', 'pausing')
    FOR UPDATE
)
UPDATE tasks_app_task t
SET lease_expires_at = clock_timestamp() + make_interval(secs => %(lease_seconds)s)
FROM mine WHERE t.id = mine.id
RETURNING t.command_seq, t.cancel_requested_at IS NOT NULL
"""

# Locks the task's row for its owner; no row means that somebody else owns it.
OWN = """
SELECT status, command_seq, state_version FROM tasks_app_task
WHERE id = %(task_id)s AND fence = %(fence)s AND status IN ('working', 'pausing')
FOR NO KEY UPDATE
"""

# Begins an act for its owner, unless a command waits: one round trip with `effects.begun_part`.
BEGIN_ACT = """
WITH owned AS (
    SELECT status AS task_status, command_seq, state_version FROM tasks_app_task
    WHERE id = %(task_id)s AND fence = %(fence)s AND status IN ('working', 'pausing')
    FOR NO KEY UPDATE
), guard AS (
    SELECT FROM owned WHERE task_status = 'working' AND command_seq <= %(steering_cursor)s
), {begun}
SELECT task_status, command_seq, state_version, begun.attempts,
    CASE WHEN begun.id IS NOT NULL THEN {audit} END
FROM owned LEFT JOIN begun ON true
"""

# The same without a lock, to see whether a person said something.
LOOK = "SELECT status, command_seq FROM tasks_app_task WHERE id = %(task_id)s AND fence = %(fence)s"

END_SLICE = """
UPDATE tasks_app_slice SET ended_at = clock_timestamp(), outcome = %(outcome)s, steps = %(steps)s
WHERE id = %(slice_id)s AND tenant_id = %(tenant_id)s
RETURNING id
"""

# Tasks whose lease ran out, or whose worker no longer holds its advisory lock (E46). Whoever was
# last heard of before the server started gets the time to come back (P27).
# A free lock may mean a cut session of a worker that lives and calls. Where the next holder would
# ask the other side whether that call has happened, only the lease counts: when it is over, the
# worker has given the call up by its own clock.
LOST_LEASES = """
SELECT t.id, t.tenant_id, t.fence, t.status, t.recoveries, t.lease_owner
FROM tasks_app_task t
WHERE t.status IN ('working', 'pausing') AND (
    t.lease_expires_at - make_interval(secs => %(lease_seconds)s) >= pg_postmaster_start_time()
    OR clock_timestamp() - make_interval(secs => %(outage_grace_seconds)s)
        >= pg_postmaster_start_time()
) AND (
    t.lease_expires_at + make_interval(secs => %(grace_seconds)s) < clock_timestamp()
    OR NOT EXISTS (
        SELECT FROM pg_locks l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
          AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND (l.classid::bigint << 32 | l.objid::bigint) = t.lease_lock)
    AND NOT EXISTS (
        SELECT FROM ledger_app_effect e
        WHERE e.tenant_id = t.tenant_id AND e.task_id = t.id
          AND e.kind = 'queryable' AND e.state = 'begun'))
ORDER BY t.id
LIMIT %(limit)s
"""
