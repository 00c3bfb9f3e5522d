"""Every read that leaves the ledger: frozen dataclasses, always within one tenant."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from uuid import UUID

from django.db.models import Count, JSONField, QuerySet, Sum
from django.db.models.functions import Cast

from ledger_app.domain.effects import EffectKind, EffectState
from ledger_app.models import AuditEntry, AuditStream, Effect, Receipt, Usage

PAGE_LIMIT = 500


@dataclass(frozen=True, slots=True)
class EffectRow:
    """One act on the outside world and where it stands."""

    id: int
    tenant_id: UUID
    task_id: UUID
    step_key: str
    key: str
    kind: EffectKind
    tool: str
    target: str
    args_sha256: str
    state: EffectState
    attempts: int
    fence: int
    approval_id: UUID | None
    request: object
    response: object
    error: object
    begun_at: datetime | None
    settled_at: datetime | None
    created_at: datetime

    @classmethod
    def from_columns(cls, values: Sequence[object]) -> "EffectRow":
        """Build a row from values in the order of EFFECT_FIELDS."""
        by_name = dict(zip(EFFECT_FIELDS, values, strict=True))
        by_name["kind"] = EffectKind(str(by_name["kind"]))
        by_name["state"] = EffectState(str(by_name["state"]))
        return cls(**by_name)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class EffectSummary:
    """One act without its request and response, which may be large."""

    id: int
    key: str
    tool: str
    target: str
    state: EffectState


EFFECT_FIELDS = tuple(field.name for field in fields(EffectRow))
EFFECT_COLUMNS = ", ".join(EFFECT_FIELDS)


@dataclass(frozen=True, slots=True)
class ReceiptRow:
    """What a task delivered; `sha256` is the digest of `document`."""

    id: UUID
    tenant_id: UUID
    task_id: UUID
    outcome: str
    items: list[dict[str, object]]
    effects: list[dict[str, object]]
    document: str
    sha256: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One audit entry as people read it; `details` is None when there were none."""

    stream: str
    seq: int
    at: datetime
    envelope: str
    details: str | None
    hash: str


@dataclass(frozen=True, slots=True)
class UsageTotal:
    """What one model used for one kind of caller, summed over rows."""

    model: str
    caller: str
    currency: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost_micros: int


def of_steps() -> QuerySet[Effect]:
    """Return the effects of steps.

    Those without one, such as messages about a task, are neither results of it nor anybody's to
    settle: they are tried again until they are given up.
    """
    return Effect.objects.exclude(step_key="")


def find_effect(*, tenant_id: UUID, key: str) -> EffectRow | None:
    """Return the effect with this key."""
    found = Effect.objects.filter(tenant_id=tenant_id, key=key).values_list(*EFFECT_FIELDS).first()
    return EffectRow.from_columns(found) if found else None


def list_effects(
    *,
    tenant_id: UUID,
    task_id: UUID,
    after_id: int = 0,
    limit: int = PAGE_LIMIT,
    states: Collection[str] = (),
    tool: str = "",
    step_key: str = "",
    newest_first: bool = False,
) -> list[EffectRow]:
    """Return one page of a task's effects, oldest first; go on with the last id as `after_id`.

    `states`, `tool` and `step_key` narrow it where they are given.
    """
    rows = Effect.objects.filter(tenant_id=tenant_id, task_id=task_id)
    wanted = {
        "state__in": [EffectState(state).value for state in states],
        "tool": tool,
        "step_key": step_key,
    }
    rows = rows.filter(**{name: value for name, value in wanted.items() if value})
    if after_id:
        rows = rows.filter(id__lt=after_id) if newest_first else rows.filter(id__gt=after_id)
    found = rows.order_by("-id" if newest_first else "id").values_list(*EFFECT_FIELDS)[
        : min(limit, PAGE_LIMIT)
    ]
    return [EffectRow.from_columns(values) for values in found]


def iterate_effect_summaries(
    *, tenant_id: UUID, task_id: UUID, states: Collection[EffectState] = ()
) -> Iterator[EffectSummary]:
    """Yield every effect of a task's steps, oldest first, in pages; only in some states if given."""
    rows = of_steps().filter(tenant_id=tenant_id, task_id=task_id)
    if states:
        rows = rows.filter(state__in=[state.value for state in states])
    after_id = 0
    while page := _summaries(rows.filter(id__gt=after_id).order_by("id")[:PAGE_LIMIT]):
        yield from page
        after_id = page[-1].id


def list_newest_effect_summaries(
    *, tenant_id: UUID, task_id: UUID, limit: int
) -> list[EffectSummary]:
    """Return the newest effects of a task's steps, oldest of them first."""
    rows = of_steps().filter(tenant_id=tenant_id, task_id=task_id)
    return _summaries(rows.order_by("-id")[: min(limit, PAGE_LIMIT)])[::-1]


def _summaries(rows: QuerySet[Effect]) -> list[EffectSummary]:
    found = rows.values_list("id", "key", "tool", "target", "state")
    return [
        EffectSummary(number, key, tool, target, EffectState(state))
        for number, key, tool, target, state in found
    ]


def list_open_effects(
    *, tenant_id: UUID, task_id: UUID | None = None, after_id: int = 0, limit: int = PAGE_LIMIT
) -> list[EffectRow]:
    """Return effects of steps of one tenant, or one task, that are begun or in doubt, oldest first."""
    rows = of_steps().filter(
        tenant_id=tenant_id,
        id__gt=after_id,
        state__in=[EffectState.BEGUN.value, EffectState.IN_DOUBT.value],
    )
    if task_id is not None:
        rows = rows.filter(task_id=task_id)
    found = rows.order_by("id").values_list(*EFFECT_FIELDS)[: min(limit, PAGE_LIMIT)]
    return [EffectRow.from_columns(values) for values in found]


def count_effects(*, tenant_id: UUID, task_id: UUID) -> Mapping[EffectState, int]:
    """Return how many effects of one task stand in each state; states without any are left out."""
    counts = (
        Effect.objects.filter(tenant_id=tenant_id, task_id=task_id)
        .values_list("state")
        .annotate(count=Count("id"))
        .order_by()
    )
    return {EffectState(state): count for state, count in counts}


def find_receipt(*, tenant_id: UUID, task_id: UUID) -> ReceiptRow | None:
    """Return the receipt of a task."""
    found = (
        Receipt.objects.filter(tenant_id=tenant_id, task_id=task_id)
        .values_list(*(field.name for field in fields(ReceiptRow)))
        .first()
    )
    return ReceiptRow(*found) if found else None


def list_audit_entries(
    *,
    tenant_id: UUID,
    stream: str,
    after_seq: int = 0,
    limit: int = PAGE_LIMIT,
    actions: Collection[str] = (),
    actor: str = "",
    newest_first: bool = False,
) -> list[AuditRow]:
    """Return entries of one stream in order; go on with the last seq as `after_seq`.

    A stream of another tenant has no entries, like one that does not exist. `actions` and `actor`
    narrow it where they are given.
    """
    if not AuditStream.objects.filter(stream=stream, tenant_id=tenant_id).exists():
        return []
    rows = AuditEntry.objects.filter(stream=stream).annotate(said=Cast("envelope", JSONField()))
    wanted = {"said__action__in": list(actions), "said__actor": actor}
    rows = rows.filter(**{name: value for name, value in wanted.items() if value})
    if after_seq:
        rows = rows.filter(seq__lt=after_seq) if newest_first else rows.filter(seq__gt=after_seq)
    rows = rows.order_by("-seq" if newest_first else "seq")
    return [
        AuditRow(row_stream, seq, at, envelope, details, bytes(entry_hash).hex())
        for row_stream, seq, at, envelope, details, entry_hash in rows.values_list(
            "stream", "seq", "at", "envelope", "details", "hash"
        )[: min(limit, PAGE_LIMIT)]
    ]


def total_usage(*, tenant_id: UUID, task_ids: Sequence[UUID]) -> list[UsageTotal]:
    """Return totals by model, caller and currency over some tasks."""
    rows = (
        Usage.objects.filter(tenant_id=tenant_id, task_id__in=task_ids)
        .values_list("model", "caller", "currency")
        .annotate(
            calls=Count("id"),
            total_input=Sum("input_tokens"),
            total_output=Sum("output_tokens"),
            total_cost=Sum("cost_micros"),
        )
        .order_by("model", "caller", "currency")
    )
    return [UsageTotal(*values) for values in rows]


def newest_usage(*, tenant_id: UUID, task_ids: Sequence[UUID]) -> tuple[str, int, int] | None:
    """Return model, input and output tokens of the newest call among some tasks."""
    rows = Usage.objects.filter(tenant_id=tenant_id, task_id__in=task_ids).order_by("-id")
    return rows.values_list("model", "input_tokens", "output_tokens").first()


def usage_by_task(*, tenant_id: UUID, task_ids: Sequence[UUID]) -> dict[UUID, list[UsageTotal]]:
    """Return totals by model, caller and currency for each of some tasks; none for who used none."""
    rows = (
        Usage.objects.filter(tenant_id=tenant_id, task_id__in=task_ids)
        .values_list("task_id", "model", "caller", "currency")
        .annotate(
            calls=Count("id"),
            total_input=Sum("input_tokens"),
            total_output=Sum("output_tokens"),
            total_cost=Sum("cost_micros"),
        )
        .order_by("task_id", "model", "caller", "currency")
    )
    found: dict[UUID, list[UsageTotal]] = {}
    for task_id, *values in rows:
        found.setdefault(task_id, []).append(UsageTotal(*values))
    return found
