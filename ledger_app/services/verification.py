"""Verification: recompute every hash, follow every link, compare the ledger with what was audited.

Memory does not grow with the ledger: entries come in pages and streams in batches. Entries may be
appended meanwhile; a head is read after its entries, and moves in the commit of its entry, so
running writers cause no false alarm.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from django.db import connection
from django.db.models import Count

from ledger_app.domain.audit import (
    NO_DETAILS_DIGEST,
    details_digest,
    entry_hash,
    genesis_hash,
    task_stream,
    timestamp,
)
from ledger_app.domain.canonical import canonical_text, sha256_hex
from ledger_app.domain.effects import DONE, EffectState
from ledger_app.domain.errors import NotCanonicalError
from ledger_app.models import AuditEntry, AuditStream, Effect, Receipt

ENTRY_PAGE = 1000
STREAM_BATCH = 200
BUSY_RETRIES = 5


class FaultCode(StrEnum):
    """What can be wrong; explained in docs/explanation/ledger-and-audit.md."""

    ENTRY_CHANGED = "entry_changed"
    DETAILS_CHANGED = "details_changed"
    DETAILS_MISSING = "details_missing"
    ENVELOPE_UNREADABLE = "envelope_unreadable"
    ENVELOPE_MISMATCH = "envelope_mismatch"
    TENANT_MISMATCH = "tenant_mismatch"
    GAP = "gap"
    BROKEN_LINK = "broken_link"
    TAIL_MISSING = "tail_missing"
    BEYOND_HEAD = "beyond_head"
    HEAD_MISSING = "head_missing"
    HEAD_MISMATCH = "head_mismatch"
    STREAM_MISSING = "stream_missing"
    RECEIPT_MISSING = "receipt_missing"
    RECEIPT_UNAUDITED = "receipt_unaudited"
    RECEIPT_CHANGED = "receipt_changed"
    RECEIPT_REPLACED = "receipt_replaced"
    EFFECTS_MISMATCH = "effects_mismatch"
    EFFECT_LEFT_BEGUN = "effect_left_begun"


@dataclass(frozen=True, slots=True)
class Fault:
    """The first thing that is wrong in a stream or in the ledger rows of its task.

    Attributes:
        seq: number of the entry, or None when no single entry is at fault.
    """

    stream: str
    seq: int | None
    code: FaultCode
    detail: str


@dataclass(frozen=True, slots=True)
class StreamVerdict:
    """What verification found in one stream; `notices` are not faults."""

    stream: str
    entries: int
    fault: Fault | None
    notices: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Tell whether everything that can be checked here is in order."""
        return self.fault is None


@dataclass(slots=True)
class _Walk:
    """What one pass over a stream has seen so far."""

    stream: str
    tenant: str | None = None
    seq: int = 0
    hash: bytes = b""
    fault: Fault | None = None
    actions: Counter[str] = field(default_factory=Counter)
    receipt_sha256: str | None = None

    def verdict(self, fault: Fault | None = None, notices: Sequence[str] = ()) -> StreamVerdict:
        return StreamVerdict(self.stream, self.seq, self.fault or fault, tuple(notices))

    def fail(self, seq: int | None, code: FaultCode, detail: str) -> None:
        self.fault = Fault(self.stream, seq, code, detail)


@dataclass(frozen=True, slots=True)
class _Entry:
    seq: int
    at: datetime
    envelope: str
    details: str | None
    salt: bytes | None
    details_digest: bytes
    prev_hash: bytes
    hash: bytes


def verify(stream: str) -> StreamVerdict:
    """Recompute one stream and compare the ledger rows of its task with it."""
    return next(iter(_judge([_walk(stream)])))


def verify_all(tenant_id: UUID | None = None) -> Iterator[StreamVerdict]:
    """Verify every stream, of one tenant or of all, one verdict each as it is found.

    Also found are entries whose head is gone, and tasks whose stream is gone although the ledger
    holds an effect or a receipt of them.
    """
    after = ""
    while batch := _stream_names(after, tenant_id):
        yield from _judge(_walk(stream) for stream in batch)
        after = batch[-1]
    yield from _judge(_walk(stream) for stream in _streams_without_head(tenant_id))
    for stream in _tasks_without_stream(tenant_id):
        detail = "the ledger has rows of this task, but its stream is gone"
        yield StreamVerdict(stream, 0, Fault(stream, None, FaultCode.STREAM_MISSING, detail))


def _walk(stream: str) -> _Walk:
    walk = _Walk(stream, hash=genesis_hash(stream))
    while walk.fault is None:
        page = _entries_after(stream, walk.seq)
        for entry in page:
            _step(walk, entry)
            if walk.fault is not None:
                return walk
        if len(page) < ENTRY_PAGE and _at_head(walk):
            return walk
    return walk


def _at_head(walk: _Walk) -> bool:
    """Compare with the head, read after the entries; False when it has moved on since."""
    head = AuditStream.objects.filter(stream=walk.stream).values_list(
        "head_seq", "head_hash", "tenant_id"
    )
    found = head.first()
    if found is None:
        code = FaultCode.HEAD_MISSING if walk.seq else FaultCode.STREAM_MISSING
        walk.fail(None, code, "the head of the stream is gone")
        return True
    head_seq, head_hash, tenant_id = found
    if head_seq > walk.seq:
        if not AuditEntry.objects.filter(stream=walk.stream, seq__gt=walk.seq).exists():
            walk.fail(walk.seq + 1, FaultCode.TAIL_MISSING, f"the head says {head_seq}")
        return walk.fault is not None
    if head_seq < walk.seq:
        walk.fail(head_seq + 1, FaultCode.BEYOND_HEAD, f"the head says {head_seq}")
    elif bytes(head_hash) != walk.hash:
        walk.fail(walk.seq or None, FaultCode.HEAD_MISMATCH, "the head has another hash")
    elif walk.tenant is not None and walk.tenant != str(tenant_id):
        walk.fail(None, FaultCode.TENANT_MISMATCH, "the head names another tenant than the entries")
    return True


def _step(walk: _Walk, entry: _Entry) -> None:
    """Check one entry against all before it; the first fault ends the walk."""
    wanted = walk.seq + 1
    if entry.seq != wanted:
        walk.fail(wanted, FaultCode.GAP, f"the next entry is {entry.seq}")
        return
    problem = _problem_of(walk, entry)
    if problem is not None:
        walk.fail(entry.seq, *problem)
        return
    walk.seq, walk.hash = entry.seq, entry.hash
    _read_envelope(walk, entry)


def _problem_of(walk: _Walk, entry: _Entry) -> tuple[FaultCode, str] | None:
    if entry.prev_hash != walk.hash:
        return FaultCode.BROKEN_LINK, "it does not link to the entry before"
    if entry.details is None and entry.salt is None:
        if entry.details_digest != NO_DETAILS_DIGEST:
            return FaultCode.DETAILS_MISSING, "its details are gone and no erasure is recorded"
    elif details_digest(entry.details, entry.salt) != entry.details_digest:
        return FaultCode.DETAILS_CHANGED, "its details do not fit their digest"
    computed = entry_hash(
        walk.stream, entry.seq, entry.prev_hash, entry.envelope, entry.details_digest
    )
    if computed != entry.hash:
        return FaultCode.ENTRY_CHANGED, "its content does not fit its hash"
    return None


def _read_envelope(walk: _Walk, entry: _Entry) -> None:
    """Compare the envelope with the row's place, and count what cross-checks need."""
    try:
        envelope = json.loads(entry.envelope)
        place = (envelope["stream"], envelope["at"])
        tenant, action = str(envelope["tenant"]), str(envelope["action"])
        if action == "receipt.stored":
            walk.receipt_sha256 = str(json.loads(entry.details or "")["sha256"])
    except (ValueError, KeyError, TypeError, RecursionError):
        walk.fail(
            entry.seq, FaultCode.ENVELOPE_UNREADABLE, "the envelope is not the JSON of an entry"
        )
        return
    if place != (walk.stream, timestamp(entry.at)):
        walk.fail(entry.seq, FaultCode.ENVELOPE_MISMATCH, "stream or time differ from the row's")
        return
    if walk.tenant not in (None, tenant):
        walk.fail(
            entry.seq, FaultCode.TENANT_MISMATCH, "it names another tenant than the entry before"
        )
        return
    walk.tenant = tenant
    walk.actions[action] += 1


def _judge(walks: Iterable[_Walk]) -> Iterator[StreamVerdict]:
    """Turn walks into verdicts, comparing the ledger rows of the batch's tasks with them."""
    batch = list(walks)
    tasks = [task for walk in batch if (task := _task_of(walk.stream)) is not None]
    effects = _effect_counts(tasks)
    for walk in batch:
        task = _task_of(walk.stream)
        if task is None or walk.fault is not None:
            yield walk.verdict()
        else:
            yield _compare(walk, task, effects[task])


def _compare(walk: _Walk, task: UUID, counts: Counter[str]) -> StreamVerdict:
    for _ in range(BUSY_RETRIES):
        fault = _row_fault(walk, task, counts)
        if fault is None or not _has_moved(walk):
            return walk.verdict(fault, _notices(counts))
        # Entries and rows of a running task were read at different times: read both again.
        walk = _walk(walk.stream)
        if walk.fault is not None:
            return walk.verdict()
        counts = _effect_counts([task])[task]
    return walk.verdict(None, [*_notices(counts), "too busy to compare its rows"])


def _row_fault(walk: _Walk, task: UUID, counts: Counter[str]) -> Fault | None:
    receipt = Receipt.objects.filter(task_id=task).first()
    return _receipt_fault(walk, receipt) or _effect_fault(walk, counts, receipt)


def _receipt_fault(walk: _Walk, receipt: Receipt | None) -> Fault | None:
    if receipt is None:
        if walk.receipt_sha256 is None:
            return None
        return Fault(walk.stream, None, FaultCode.RECEIPT_MISSING, "it was audited and is gone")
    if walk.receipt_sha256 is None:
        return Fault(
            walk.stream, None, FaultCode.RECEIPT_UNAUDITED, "no entry tells of the receipt"
        )
    if sha256_hex(receipt.document.encode()) != receipt.sha256 or not _columns_agree(receipt):
        return Fault(walk.stream, None, FaultCode.RECEIPT_CHANGED, "it does not fit its digest")
    if receipt.sha256 != walk.receipt_sha256:
        return Fault(walk.stream, None, FaultCode.RECEIPT_REPLACED, "another receipt was audited")
    return None


def _columns_agree(receipt: Receipt) -> bool:
    try:
        document = json.loads(receipt.document)
        parts = canonical_text([document["items"], document["effects"], document["outcome"]])
        shown = canonical_text([receipt.items, receipt.effects, receipt.outcome])
        owners = (document["tenant"], document["task"])
    except (ValueError, KeyError, TypeError, NotCanonicalError):
        return False
    return parts == shown and owners == (str(receipt.tenant_id), str(receipt.task_id))


def _effect_fault(walk: _Walk, counts: Counter[str], receipt: Receipt | None) -> Fault | None:
    done = sum(counts[state.value] for state in DONE)
    audited = walk.actions["effect.succeeded"]
    if done != audited:
        detail = f"{done} effects are done, {audited} were audited as done"
        return Fault(walk.stream, None, FaultCode.EFFECTS_MISMATCH, detail)
    if receipt is not None and counts[EffectState.BEGUN.value]:
        detail = f"{counts[EffectState.BEGUN.value]} begun and never settled, yet the task is over"
        return Fault(walk.stream, None, FaultCode.EFFECT_LEFT_BEGUN, detail)
    return None


def _notices(counts: Counter[str]) -> list[str]:
    open_states = (EffectState.BEGUN, EffectState.IN_DOUBT)
    return [f"{counts[s.value]} effects {s.value}" for s in open_states if counts[s.value]]


def _has_moved(walk: _Walk) -> bool:
    head = AuditStream.objects.filter(stream=walk.stream).values_list("head_seq", flat=True)
    return head.first() != walk.seq


def _task_of(stream: str) -> UUID | None:
    try:
        return UUID(stream.removeprefix("task:")) if stream.startswith("task:") else None
    except ValueError:
        return None


def _entries_after(stream: str, seq: int) -> list[_Entry]:
    rows = AuditEntry.objects.filter(stream=stream, seq__gt=seq).order_by("seq")
    columns = ("seq", "at", "envelope", "details", "salt", "details_digest", "prev_hash", "hash")
    return [
        _Entry(
            number,
            at,
            envelope,
            details,
            None if salt is None else bytes(salt),
            bytes(digest),
            bytes(prev_hash),
            bytes(own_hash),
        )
        for number, at, envelope, details, salt, digest, prev_hash, own_hash in rows.values_list(
            *columns
        )[:ENTRY_PAGE]
    ]


def _stream_names(after: str, tenant_id: UUID | None) -> list[str]:
    rows = AuditStream.objects.filter(stream__gt=after)
    if tenant_id is not None:
        rows = rows.filter(tenant_id=tenant_id)
    return list(rows.order_by("stream").values_list("stream", flat=True)[:STREAM_BATCH])


def _effect_counts(tasks: Sequence[UUID]) -> dict[UUID, Counter[str]]:
    counts: dict[UUID, Counter[str]] = {task: Counter() for task in tasks}
    rows = Effect.objects.filter(task_id__in=tasks).values_list("task_id", "state")
    for task, state, number in rows.annotate(number=Count("id")).order_by():
        counts[task][state] = number
    return counts


def _streams_without_head(tenant_id: UUID | None) -> list[str]:
    mark = f'"tenant":"{tenant_id}"' if tenant_id else ""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT e.stream FROM ledger_app_auditentry AS e WHERE NOT EXISTS"
            " (SELECT FROM ledger_app_auditstream AS s WHERE s.stream = e.stream)"
            " AND strpos(e.envelope, %s) > 0 ORDER BY e.stream",
            [mark],
        )
        return [stream for (stream,) in cursor.fetchall()]


def _tasks_without_stream(tenant_id: UUID | None) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT t.task_id FROM"
            " (SELECT tenant_id, task_id FROM ledger_app_effect"
            " UNION SELECT tenant_id, task_id FROM ledger_app_receipt) AS t"
            " WHERE (%s::uuid IS NULL OR t.tenant_id = %s::uuid) AND NOT EXISTS"
            " (SELECT FROM ledger_app_auditstream AS s WHERE s.stream = 'task:' || t.task_id)"
            " AND NOT EXISTS"
            " (SELECT FROM ledger_app_auditentry AS e WHERE e.stream = 'task:' || t.task_id)"
            " ORDER BY t.task_id",
            [tenant_id, tenant_id],
        )
        return [task_stream(task_id) for (task_id,) in cursor.fetchall()]
