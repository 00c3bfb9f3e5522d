"""The hot statements, by hand: renew, step commit, lost leases. One round trip each.

Rules they keep: the database's clock only, read after a row lock; the fence in every WHERE; the
task row first in every statement, so that its lock orders all writers. Measured against the ORM in
docs/decisions/hot-sql.md. The claim is in queue_sql, a move in transitions.
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

# Results, ranges of a map, journal and checkpoint of one commit, all or nothing (E21, E95).
COMMIT = """
WITH owned AS (
    UPDATE tasks_app_task t SET
        next_position = %(next_position)s,
        steps_done = t.steps_done + %(units_done)s,
        recoveries = CASE WHEN %(units_done)s > 0 THEN 0 ELSE t.recoveries END,
        progress_done = %(progress_done)s,
        progress_total = %(progress_total)s,
        phase = %(phase)s,
        event_seq = t.event_seq + %(event_count)s,
        checkpoint_seq = t.checkpoint_seq + %(checkpoint_count)s,
        last_checkpoint_at = CASE WHEN %(checkpoint_count)s > 0 THEN clock_timestamp()
            ELSE t.last_checkpoint_at END,
        updated_at = clock_timestamp()
    WHERE t.id = %(task_id)s AND t.fence = %(fence)s AND t.status IN ('working', 'pausing')
    RETURNING t.id, t.tenant_id, t.fence, t.event_seq, t.checkpoint_seq, t.command_seq, t.status
), results AS (
    UPDATE tasks_app_step s SET
        status = r.status,
        result = r.result,
        error = r.error,
        attempts = r.attempts,
        next_item = r.next_item,
        items_failed = r.items_failed,
        fence = owned.fence,
        started_at = coalesce(
            s.started_at, clock_timestamp() - make_interval(secs => r.seconds)),
        finished_at = CASE WHEN r.finished THEN clock_timestamp() END
    FROM owned, jsonb_to_recordset(%(steps)s::jsonb) AS r(
        id bigint, status text, result jsonb, error jsonb, attempts smallint, next_item bigint,
        items_failed bigint, seconds double precision, finished boolean)
    WHERE s.id = r.id AND s.task_id = owned.id
-- added
), ranges AS (
    INSERT INTO tasks_app_steprange (tenant_id, task_id, step_id, first_item, end_item,
        item_digests, results, failed, fence, created_at)
    SELECT owned.tenant_id, owned.id, r.step_id, r.first_item, r.end_item,
        ARRAY(SELECT jsonb_array_elements_text(r.item_digests)), r.results, r.failed,
        owned.fence, clock_timestamp()
    FROM owned, jsonb_to_recordset(%(ranges)s::jsonb) AS r(
        step_id bigint, first_item bigint, end_item bigint, item_digests jsonb, results jsonb,
        failed int)
), events AS (
    INSERT INTO tasks_app_event (tenant_id, task_id, seq, type, data, at)
    SELECT owned.tenant_id, owned.id, owned.event_seq - %(event_count)s + e.number,
        e.value ->> 'type', e.value -> 'data', clock_timestamp()
    FROM owned, jsonb_array_elements(%(events)s::jsonb) WITH ORDINALITY AS e(value, number)
), checkpoint AS (
    INSERT INTO tasks_app_checkpoint (tenant_id, task_id, seq, schema_version, plan_version,
        next_step, document, sha256, fence, reason, created_at)
    SELECT owned.tenant_id, owned.id, owned.checkpoint_seq, c.schema_version, c.plan_version,
        c.next_step, c.document, c.sha256, owned.fence, c.reason, clock_timestamp()
    FROM owned, jsonb_to_record(%(checkpoint)s::jsonb) AS c(
        schema_version smallint, plan_version int, next_step text, document text, sha256 text,
        reason text)
    WHERE %(checkpoint_count)s > 0
)
SELECT event_seq, checkpoint_seq, command_seq, status FROM owned
"""

# The same for a function, whose steps get their rows together with their outcomes.
COMMIT_ADDING = COMMIT.replace(
    "-- added",
    """
), added AS (
    INSERT INTO tasks_app_step (tenant_id, task_id, key, scope, position, kind, method, arguments,
        options, signature, plan_version, status, result, error, attempts, next_item, items_failed,
        fence, started_at, finished_at)
    SELECT owned.tenant_id, owned.id, a.key, a.scope, a.position, a.kind, a.method, '{}', a.options,
        a.signature, a.plan_version, a.status, a.result, a.error, a.attempts, a.next_item,
        a.items_failed, owned.fence, clock_timestamp() - make_interval(secs => a.seconds),
        CASE WHEN a.finished THEN clock_timestamp() END
    FROM owned, jsonb_to_recordset(%(added)s::jsonb) AS a(
        key text, scope text, position int, kind text, method text, options jsonb, signature text,
        plan_version int, status text, result jsonb, error jsonb, attempts smallint,
        next_item bigint, items_failed bigint, seconds double precision, finished boolean)
""",
)

# Tasks whose lease ran out, or whose worker no longer holds its advisory lock (E46).
LOST_LEASES = """
SELECT t.id, t.tenant_id, t.fence, t.status, t.recoveries, t.lease_owner
FROM tasks_app_task t
WHERE t.status IN ('working', 'pausing') AND (
    t.lease_expires_at + make_interval(secs => %(grace_seconds)s) < clock_timestamp()
    OR NOT EXISTS (
        SELECT FROM pg_locks l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
          AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND (l.classid::bigint << 32 | l.objid::bigint) = t.lease_lock))
ORDER BY t.id
LIMIT %(limit)s
"""
