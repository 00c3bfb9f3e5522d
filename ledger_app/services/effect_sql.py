"""What changes an effect, as parts of a statement: alone, or together with the row of its task.

A part is a common table expression that writes for the one row of another one called `guard`, and
writes nothing when that has none: so one statement can hold a row under its fence and begin or
settle an act. The audit is an expression to be selected from what the part returned.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ledger_app.domain.audit import task_stream
from ledger_app.services import audit

_AUDIT = audit.CALL.format(
    *(f"%(audit_{name})s" for name in ("stream", "tenant", "envelope", "details", "salt"))
)
# For a statement of its own: nothing else is to be held.
UNGUARDED = "guard AS (SELECT)"

# Begins an act, or begins it again where that is safe: not under an older fence, not for another
# act with the same key, not an opaque act that was begun, nothing in doubt, nothing done.
BEGUN = """begun AS (
    INSERT INTO ledger_app_effect AS e
        (tenant_id, task_id, step_key, key, kind, tool, target, args_sha256, state, attempts,
         fence, approval_id, request, begun_at)
    SELECT %(effect_tenant_id)s::uuid, %(effect_task_id)s::uuid, %(effect_step_key)s,
        %(effect_key)s, %(effect_kind)s, %(effect_tool)s, %(effect_target)s,
        %(effect_args_sha256)s, 'begun', 1, %(effect_fence)s, %(effect_approval_id)s::uuid,
        %(effect_request)s::jsonb, clock_timestamp()
    FROM guard
    ON CONFLICT (tenant_id, key) DO UPDATE SET
        state = 'begun', attempts = e.attempts + 1, fence = EXCLUDED.fence,
        approval_id = coalesce(EXCLUDED.approval_id, e.approval_id),
        begun_at = clock_timestamp(), settled_at = NULL, error = NULL
    WHERE e.fence <= EXCLUDED.fence
        AND (e.state IN ('planned', 'failed') OR (e.state = 'begun' AND e.kind <> 'opaque'))
        AND (e.task_id, e.step_key, e.kind, e.tool, e.target, e.args_sha256)
            = (EXCLUDED.task_id, EXCLUDED.step_key, EXCLUDED.kind, EXCLUDED.tool,
               EXCLUDED.target, EXCLUDED.args_sha256)
    RETURNING *
)"""

SETTLED = """settled AS (
    UPDATE ledger_app_effect e SET
        state = %(effect_state)s, fence = %(effect_fence)s, error = %(effect_error)s::jsonb,
        response = coalesce(%(effect_response)s::jsonb, response),
        settled_at = CASE WHEN %(effect_is_settled)s THEN clock_timestamp() END
    FROM guard
    WHERE e.tenant_id = %(effect_tenant_id)s AND e.key = %(effect_key)s
        AND e.task_id = %(effect_task_id)s AND e.fence <= %(effect_fence)s
        AND e.state = ANY(%(effect_sources)s)
    RETURNING e.*
)"""

# The same call is ordered again by a person: only where that is harmless, never for an opaque act.
ORDERED = """ordered AS (
    UPDATE ledger_app_effect e SET state = 'begun', fence = %(effect_fence)s, error = NULL
    FROM guard
    WHERE e.tenant_id = %(effect_tenant_id)s AND e.key = %(effect_key)s
        AND e.task_id = %(effect_task_id)s AND e.fence <= %(effect_fence)s
        AND e.state = 'in_doubt' AND e.kind <> 'opaque'
    RETURNING e.*
)"""


@dataclass(frozen=True, slots=True)
class EffectPart:
    """One change of an effect on its way into a statement.

    Attributes:
        text: the expressions; name: the last of them, which returns the changed row.
        audit: the call that tells of it; select it only from that row.
    """

    name: str
    text: str
    audit: str
    parameters: dict[str, Any]


def part(
    text: str,
    parameters: Mapping[str, object],
    *,
    tenant_id: UUID,
    task_id: UUID,
    key: str,
    actor: str,
    action: str,
    details: Mapping[str, object],
) -> EffectPart:
    """Return one of the texts above with its parameters and its audit entry."""
    stream = task_stream(task_id)
    envelope, facts, salt = audit.texts(
        stream=stream,
        tenant_id=tenant_id,
        actor=actor,
        action=action,
        target=f"effect:{key}",
        details={name: fact for name, fact in details.items() if fact not in (None, "")},
    )
    named = {"tenant_id": tenant_id, "task_id": task_id, "key": key, **parameters}
    return EffectPart(
        name=text.split(" ", 1)[0],
        text=text,
        audit=_AUDIT,
        parameters={f"effect_{name}": value for name, value in named.items()}
        | {
            "audit_stream": stream,
            "audit_tenant": tenant_id,
            "audit_envelope": envelope,
            "audit_details": facts,
            "audit_salt": salt,
        },
    )
