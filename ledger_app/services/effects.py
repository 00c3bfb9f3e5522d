"""Effects: begin before the call, settle after it, never lose the doubt in between.

The order that makes an effect happen once: `begin` in a commit of its own, then the call with the
effect key, then `succeed` in the commit that stores the step's result.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from ledger_app.domain.canonical import cleaned, sha256_hex, storable_text
from ledger_app.domain.effects import DONE, SETTLED, EffectKind, EffectState, sources_of
from ledger_app.domain.errors import (
    EffectEdgeError,
    EffectInDoubtError,
    EffectKeyReusedError,
    EffectNotFoundError,
    NotCanonicalError,
    StaleFenceError,
)
from ledger_app.domain.redaction import redact
from ledger_app.models import Effect
from ledger_app.queries import EFFECT_COLUMNS, EFFECT_FIELDS, EffectRow, find_effect, of_steps
from ledger_app.services.effect_sql import BEGUN, ORDERED, UNGUARDED, EffectPart, part
from ledger_app.services.effect_sql import SETTLED as SETTLED_TEXT
from ledger_app.services.statements import fetch_row

ENGINE = "system:engine"
_JSON_FIELDS = frozenset({"request", "response", "error"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One act on the outside world: what its key stands for, and cannot stand for twice."""

    tenant_id: UUID
    task_id: UUID
    step_key: str
    key: str
    kind: str
    tool: str
    target: str
    args_sha256: str

    def facts(self) -> dict[str, object]:
        """Return what a stored effect of this key must agree with."""
        return {
            "task_id": self.task_id,
            "step_key": self.step_key,
            "kind": EffectKind(self.kind).value,
            "tool": self.tool,
            "target": self.target,
            "args_sha256": self.args_sha256,
        }


def begin(
    act: Act, *, fence: int, approval_id: UUID | None = None, request: Mapping[str, object]
) -> EffectRow:
    """Record that the outside is about to be called; read the returned state before calling.

    `begun` means: call now, with the key. `succeeded` or `compensated` means: it has happened,
    take the stored response and do not call. Beginning the same act again raises `attempts`.
    `request` is redacted before it is stored; `args_sha256` vouches for the exact arguments.

    Transaction: commit before the call. Locks: the effect, then the audit stream of the task.

    Raises:
        StaleFenceError: a newer fence has written this effect.
        EffectInDoubtError: it may have happened already and nobody has settled that.
        EffectKeyReusedError: the key belongs to another act.
    """
    begun = _write(begun_part(act, fence=fence, approval_id=approval_id, request=request))
    return begun or why_not_begun(act, fence=fence)


def begun_part(
    act: Act, *, fence: int, approval_id: UUID | None = None, request: Mapping[str, object]
) -> EffectPart:
    """Return what `begin` writes as a part of a larger statement, which holds the task's row.

    Without a row of it, ask `why_not_begun`.
    """
    facts = act.facts()
    return part(
        BEGUN,
        {
            **facts,
            "fence": fence,
            "approval_id": approval_id,
            "request": storable_text(cleaned(redact(request))),
        },
        tenant_id=act.tenant_id,
        task_id=act.task_id,
        key=act.key,
        actor=ENGINE,
        action="effect.begun",
        details={**facts, "fence": fence, "approval_id": approval_id},
    )


def succeed(
    *,
    tenant_id: UUID,
    task_id: UUID,
    key: str,
    fence: int,
    response: object,
    actor: str = ENGINE,
    reason: str = "",
) -> EffectRow:
    """Record that the act has happened, with what the other side answered.

    The returned row's `response` becomes the step's result: it is what was given, or the nearest
    JSON value when the other side sent something that cannot be stored, since a call that has
    happened must be recorded. Settling twice with the same response changes nothing. A person who settles an act in doubt
    is named as `actor`, with a reason.

    Transaction: the one that stores the step's result. Locks: the effect, then the audit stream.
    Raises: StaleFenceError, EffectNotFoundError, EffectEdgeError.
    """
    response = _storable(response)
    moved = _write(
        succeeded_part(
            tenant_id=tenant_id,
            task_id=task_id,
            key=key,
            fence=fence,
            response=response,
            actor=actor,
            reason=reason,
        )
    )
    if moved is not None:
        return moved
    stored = _stored(tenant_id=tenant_id, key=key, fence=fence)
    # Compared by the database: it stores numbers its own way, so texts may differ.
    same = Effect.objects.filter(pk=stored.id, response=response).exists()
    if stored.state == EffectState.SUCCEEDED and same:
        return stored
    raise _edge_error(stored, EffectState.SUCCEEDED)


def succeeded_part(
    *,
    tenant_id: UUID,
    task_id: UUID,
    key: str,
    fence: int,
    response: object,
    actor: str = ENGINE,
    reason: str = "",
) -> EffectPart:
    """Return what `succeed` writes as a part of a larger statement, which holds the task's row.

    Without a row of it nothing was settled; `succeed` tells why.
    """
    text = storable_text(_storable(response))
    return _settled_part(
        EffectState.SUCCEEDED,
        tenant_id=tenant_id,
        task_id=task_id,
        key=key,
        fence=fence,
        actor=actor,
        response=text,
        details={"response_sha256": sha256_hex(text.encode()), "fence": fence, "reason": reason},
    )


def fail(
    *,
    tenant_id: UUID,
    task_id: UUID,
    key: str,
    fence: int,
    error: Mapping[str, object],
    actor: str = ENGINE,
    reason: str = "",
) -> EffectRow:
    """Record that the act has certainly not happened; it may be begun again.

    When it may have happened, call `mark_in_doubt` instead. `error` is redacted.

    Transaction: the caller's. Locks: the effect, then the audit stream.
    Raises: StaleFenceError, EffectNotFoundError, EffectEdgeError.
    """
    return _settle_with_error(
        EffectState.FAILED,
        error,
        tenant_id=tenant_id,
        task_id=task_id,
        key=key,
        fence=fence,
        actor=actor,
        reason=reason,
    )


def mark_in_doubt(
    *,
    tenant_id: UUID,
    task_id: UUID,
    key: str,
    fence: int,
    error: Mapping[str, object],
    actor: str = ENGINE,
    reason: str = "",
) -> EffectRow:
    """Record that the act may or may not have happened; from here a person or a query decides.

    Transaction: the caller's. Locks: the effect, then the audit stream.
    Raises: StaleFenceError, EffectNotFoundError, EffectEdgeError.
    """
    return _settle_with_error(
        EffectState.IN_DOUBT,
        error,
        tenant_id=tenant_id,
        task_id=task_id,
        key=key,
        fence=fence,
        actor=actor,
        reason=reason,
    )


def order_again(
    *, tenant_id: UUID, task_id: UUID, key: str, fence: int, actor: str, reason: str
) -> EffectRow:
    """Let the same call be made again with the same key: a person's answer to an act in doubt.

    The other side ignores a key that it has seen, or is asked first whether it happened.

    Transaction: the caller's. Locks: the effect, then the audit stream.
    Raises: StaleFenceError, EffectNotFoundError; EffectEdgeError when it is not in doubt, or opaque.
    """
    ordered = _write(
        part(
            ORDERED,
            {"fence": fence},
            tenant_id=tenant_id,
            task_id=task_id,
            key=key,
            actor=actor,
            action="effect.ordered_again",
            details={"fence": fence, "reason": reason},
        )
    )
    if ordered is not None:
        return ordered
    raise _edge_error(_stored(tenant_id=tenant_id, key=key, fence=fence), EffectState.BEGUN)


def compensate(
    *, tenant_id: UUID, task_id: UUID, key: str, fence: int, by_key: str, actor: str = ENGINE
) -> EffectRow:
    """Record that an act that has happened was undone by another one, the effect `by_key`.

    Doing so twice changes nothing.

    Transaction: the one that settles the other act. Locks: the effect, then the audit stream.
    Raises: StaleFenceError, EffectNotFoundError, EffectEdgeError.
    """
    moved = _write(
        _settled_part(
            EffectState.COMPENSATED,
            tenant_id=tenant_id,
            task_id=task_id,
            key=key,
            fence=fence,
            actor=actor,
            details={"by": by_key, "fence": fence},
        )
    )
    if moved is not None:
        return moved
    stored = _stored(tenant_id=tenant_id, key=key, fence=fence)
    if stored.state == EffectState.COMPENSATED:
        return stored
    raise _edge_error(stored, EffectState.COMPENSATED)


def doubt_open(
    *, tenant_id: UUID, task_id: UUID, reason: str, actor: str = ENGINE
) -> list[EffectRow]:
    """Put every effect of a task's steps that is still begun in doubt: the task ends, nobody will settle it.

    Called before the receipt, so that the receipt tells the truth. The fence of an effect stays;
    the caller holds the task, and no other worker can begin anything meanwhile.

    Transaction: the caller's. Locks: each effect in turn, by ascending key, and the audit stream.
    """
    open_rows = of_steps().filter(
        tenant_id=tenant_id, task_id=task_id, state=EffectState.BEGUN.value
    )
    return [
        mark_in_doubt(
            tenant_id=tenant_id,
            task_id=task_id,
            key=key,
            fence=fence,
            error={"code": "task_ended", "message": reason},
            actor=actor,
            reason=reason,
        )
        for key, fence in open_rows.order_by("key").values_list("key", "fence")
    ]


def _storable(response: object) -> object:
    try:
        storable_text(response)
    except NotCanonicalError:
        return cleaned(response)
    return response


def _settle_with_error(
    target: EffectState,
    error: Mapping[str, object],
    *,
    tenant_id: UUID,
    task_id: UUID,
    key: str,
    fence: int,
    actor: str,
    reason: str,
) -> EffectRow:
    clean = cleaned(redact(error))
    moved = _write(
        _settled_part(
            target,
            tenant_id=tenant_id,
            task_id=task_id,
            key=key,
            fence=fence,
            actor=actor,
            error=storable_text(clean),
            details={"error": clean, "fence": fence, "reason": reason},
        )
    )
    if moved is not None:
        return moved
    stored = _stored(tenant_id=tenant_id, key=key, fence=fence)
    if stored.state == target:
        return stored
    raise _edge_error(stored, target)


def _settled_part(
    target: EffectState,
    *,
    tenant_id: UUID,
    task_id: UUID,
    key: str,
    fence: int,
    actor: str,
    details: Mapping[str, object],
    response: str | None = None,
    error: str | None = None,
) -> EffectPart:
    return part(
        SETTLED_TEXT,
        {
            "state": target.value,
            "fence": fence,
            "error": error,
            "response": response,
            "is_settled": target in SETTLED,
            "sources": [state.value for state in sources_of(target)],
        },
        tenant_id=tenant_id,
        task_id=task_id,
        key=key,
        actor=actor,
        action=f"effect.{target.value}",
        details=details,
    )


def _write(change: EffectPart) -> EffectRow | None:
    """Change the effect and tell the audit in a statement of its own; None when nothing changed."""
    found = fetch_row(
        f"WITH {UNGUARDED}, {change.text}\n"
        f"SELECT {EFFECT_COLUMNS}, {change.audit} FROM {change.name}",
        change.parameters,
    )
    return EffectRow.from_columns(_decoded(found[:-1])) if found else None


def _decoded(values: Sequence[object]) -> list[object]:
    # Django leaves jsonb as text on a plain cursor; its JSONField decodes elsewhere.
    return [
        json.loads(value) if name in _JSON_FIELDS and isinstance(value, str) else value
        for name, value in zip(EFFECT_FIELDS, values, strict=True)
    ]


def why_not_begun(act: Act, *, fence: int) -> EffectRow:
    """Return the row of an act that has happened already, after nothing was begun.

    Raises: as `begin` does, when it has not.
    """
    key = act.key
    stored = _stored(tenant_id=act.tenant_id, key=key, fence=fence)
    different = sorted(
        name for name, value in act.facts().items() if getattr(stored, name) != value
    )
    if different:
        raise EffectKeyReusedError(
            f"effect {key} was begun with another {', '.join(different)}", key=key, fields=different
        )
    if stored.state in DONE:
        return stored
    raise EffectInDoubtError(
        f"effect {key} may have happened and is not called again before it is settled",
        key=key,
        state=stored.state.value,
        kind=stored.kind.value,
    )


def _stored(*, tenant_id: UUID, key: str, fence: int) -> EffectRow:
    stored = find_effect(tenant_id=tenant_id, key=key)
    if stored is None:
        raise EffectNotFoundError(f"no effect {key} in this tenant", key=key)
    if stored.fence > fence:
        raise StaleFenceError(key, fence=fence, stored_fence=stored.fence)
    return stored


def _edge_error(stored: EffectRow, target: EffectState) -> EffectEdgeError:
    return EffectEdgeError(
        f"effect {stored.key} is {stored.state.value} and cannot become {target.value}",
        key=stored.key,
        state=stored.state.value,
        target=target.value,
    )
