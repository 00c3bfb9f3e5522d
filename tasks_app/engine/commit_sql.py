"""The step commit, put together from what there is to write: one statement, one round trip (E95).

Each combination is a statement of its own, so that the database plans and prepares only what a
commit needs. Rules as in `sql`: the task row first, the fence in its WHERE, the database's clock.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from ledger_app.domain.canonical import canonical_text
from ledger_app.services.effect_sql import EffectPart
from tasks_app.domain.checkpoint import KEEP_NEWEST, NAMED_REASONS
from tasks_app.engine import webhooks
from tasks_app.events.catalogue import EventType

_OWNED = """
WITH {settled}owned AS (
    UPDATE tasks_app_task t SET
        next_position = %(next_position)s,
        steps_done = t.steps_done + %(units_done)s,
        active_seconds = t.active_seconds + %(active_seconds)s,
        recoveries = CASE WHEN %(units_done)s > 0 THEN 0 ELSE t.recoveries END,
        progress_done = %(progress_done)s,
        progress_total = %(progress_total)s,
        phase = %(phase)s,
        {columns}updated_at = clock_timestamp(){source}
    WHERE t.id = %(task_id)s AND t.fence = %(fence)s AND t.status IN ('working', 'pausing')
    RETURNING t.id, t.tenant_id, t.fence, t.event_seq, t.checkpoint_seq, t.command_seq, t.status{returned}
)"""

# Before an act is settled: the task row first. Without the act nothing else is written.
_GUARD = """guard AS (
    SELECT id FROM tasks_app_task t
    WHERE t.id = %(task_id)s AND t.fence = %(fence)s AND t.status IN ('working', 'pausing')
    FOR NO KEY UPDATE
), """

_COLUMNS = {
    "events": "event_seq = t.event_seq + %(event_count)s,\n        ",
    "checkpoint": "checkpoint_seq = t.checkpoint_seq + 1,\n"
    "        last_checkpoint_at = clock_timestamp(),\n        ",
}

_PARTS = {
    # The usual commit: one step, found by its key without a join.
    "step": """, results AS (
    UPDATE tasks_app_step s SET
        status = %(step_status)s,
        result = %(step_result)s::jsonb,
        error = %(step_error)s::jsonb,
        attempts = %(step_attempts)s,
        next_item = %(step_next_item)s,
        items_failed = %(step_items_failed)s,
        fence = owned.fence,
        started_at = coalesce(
            s.started_at, clock_timestamp() - make_interval(secs => %(step_seconds)s)),
        finished_at = CASE WHEN %(step_finished)s THEN clock_timestamp() END
    FROM owned
    WHERE s.id = %(step_id)s AND s.task_id = owned.id
)""",
    # The ids stand beside the rows and the task cannot be searched by: the steps are found by id.
    # Otherwise a guess of the planner has a task's whole plan read, or the whole table.
    "steps": """, results AS (
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
    WHERE s.id = r.id AND s.id = ANY(%(step_ids)s::bigint[])
        AND s.task_id IS NOT DISTINCT FROM owned.id
)""",
    # Steps of a function get their rows together with their outcomes.
    "added": """, added AS (
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
)""",
    "ranges": """, ranges AS (
    INSERT INTO tasks_app_steprange (tenant_id, task_id, step_id, first_item, end_item,
        item_digests, results, failed, fence, created_at)
    SELECT owned.tenant_id, owned.id, r.step_id, r.first_item, r.end_item,
        ARRAY(SELECT jsonb_array_elements_text(r.item_digests)), r.results, r.failed,
        owned.fence, clock_timestamp()
    FROM owned, jsonb_to_recordset(%(ranges)s::jsonb) AS r(
        step_id bigint, first_item bigint, end_item bigint, item_digests jsonb, results jsonb,
        failed int)
)""",
    "events": """, events AS (
    INSERT INTO tasks_app_event (tenant_id, task_id, seq, type, data, at)
    SELECT owned.tenant_id, owned.id, owned.event_seq - %(event_count)s + e.number,
        e.value ->> 'type', e.value -> 'data', clock_timestamp()
    FROM owned, jsonb_array_elements(%(events)s::jsonb) WITH ORDINALITY AS e(value, number)
)""",
    "hooks": webhooks.BUDGET_OWED,
    "checkpoint": """, checkpoint AS (
    INSERT INTO tasks_app_checkpoint (tenant_id, task_id, seq, schema_version, plan_version,
        next_step, document, sha256, fence, reason, created_at)
    SELECT owned.tenant_id, owned.id, owned.checkpoint_seq, %(schema_version)s, %(plan_version)s,
        %(next_step)s, %(document)s, %(sha256)s, owned.fence, %(reason)s, clock_timestamp()
    FROM owned
)""",
    # The one that this checkpoint pushes out of the newest ones, unless it has a name (E53).
    "pruned": f""", pruned AS (
    DELETE FROM tasks_app_checkpoint c USING owned
    WHERE c.task_id = owned.id AND c.seq = owned.checkpoint_seq - {KEEP_NEWEST}
        AND c.reason NOT IN ({", ".join(f"'{reason}'" for reason in NAMED_REASONS)})
)""",
}


def build(
    cursor: Mapping[str, Any],
    *,
    steps: Sequence[Mapping[str, Any]],
    added: Sequence[Mapping[str, Any]],
    ranges: Sequence[Mapping[str, Any]],
    events: Sequence[Mapping[str, Any]],
    checkpoint: Mapping[str, Any] | None,
    prunes: bool,
    settled: EffectPart | None = None,
) -> tuple[str, dict[str, Any]]:
    """Return the statement that writes this under the task's fence, and its parameters (E21).

    Args:
        cursor: where the task stands, and its fence.
        steps: outcomes of steps; added: the same of steps that have no row yet.
        prunes: the checkpoint pushes an older one out.
        settled: the end of an act whose result is among the steps.

    The statement returns event_seq, checkpoint_seq, command_seq and status, or no row when the
    fence is old or the act cannot be settled like that; then nothing was written.
    """
    parts: dict[str, dict[str, Any]] = {}
    if len(steps) == 1:
        parts["step"] = {f"step_{name}": value for name, value in steps[0].items()}
        parts["step"] |= {f"step_{name}": _json(steps[0][name]) for name in ("result", "error")}
    elif steps:
        parts["steps"] = {"steps": json.dumps(steps), "step_ids": [step["id"] for step in steps]}
    if added:
        parts["added"] = {"added": json.dumps(added)}
    if ranges:
        parts["ranges"] = {"ranges": json.dumps(ranges)}
    if events:
        parts["events"] = {"event_count": len(events), "events": canonical_text(events)}
        if any(event["type"] == EventType.BUDGET for event in events):
            parts["hooks"] = {}
    if checkpoint is not None:
        parts["checkpoint"] = dict(checkpoint)
        if prunes:
            parts["pruned"] = {}
    parameters = dict(cursor)
    for values in parts.values():
        parameters |= values
    if settled is None:
        return _statement(tuple(parts)), parameters
    return _statement(tuple(parts), settled.text, settled.audit), parameters | settled.parameters


@cache
def _statement(parts: tuple[str, ...], settled: str = "", audit: str = "") -> str:
    columns = "".join(text for part, text in _COLUMNS.items() if part in parts)
    owned = _OWNED.format(
        columns=columns,
        returned=webhooks.BUDGET_COLUMNS if "hooks" in parts else "",
        settled=f"{_GUARD}{settled}, " if settled else "",
        source="\n    FROM settled" if settled else "",
    )
    return (
        owned
        + "".join(_PARTS[part] for part in parts)
        + "\nSELECT event_seq, checkpoint_seq, command_seq, owned.status"
        + (f", {audit}" if audit else "")
        + "\nFROM owned\n"
    )


def _json(value: object) -> str | None:
    return None if value is None else json.dumps(value)
