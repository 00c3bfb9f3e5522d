"""What verification finds, and what it cannot find without seals (S109, S110, A34)."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from ledger_app.domain.audit import entry_hash, genesis_hash
from ledger_app.models import AuditEntry
from ledger_app.services import audit, effects, receipts
from ledger_app.services.verification import Fault, FaultCode, StreamVerdict
from tests.ledger.conftest import Subject

pytestmark = pytest.mark.django_db

Tamper = Callable[..., None]
OF_STREAM = "WHERE stream = %s AND seq = %s"


@pytest.fixture
def five(subject: Subject) -> Subject:
    """A task with five audited acts."""
    for _ in range(5):
        subject.append()
    return subject


def found(stream: str) -> tuple[int | None, str] | None:
    fault = audit.verify(stream).fault
    return None if fault is None else (fault.seq, fault.code)


def test_untouched_stream_verifies(five: Subject) -> None:
    """All entries are counted and nothing is at fault."""
    assert audit.verify(five.stream) == StreamVerdict(five.stream, 5, None)


def test_edited_envelope_is_found(five: Subject, tamper: Tamper) -> None:
    """Another actor in the text does not fit the hash."""
    tamper(
        "UPDATE ledger_app_auditentry"
        " SET envelope = replace(envelope, 'user:7', 'user:8') " + OF_STREAM,
        five.stream,
        3,
    )
    assert found(five.stream) == (3, "entry_changed")


def test_edited_details_are_found(five: Subject, tamper: Tamper) -> None:
    """Another reason does not fit its digest."""
    tamper(
        'UPDATE ledger_app_auditentry SET details = \'{"reason":"fine"}\' ' + OF_STREAM,
        five.stream,
        2,
    )
    assert found(five.stream) == (2, "details_changed")


def test_removed_details_are_found(five: Subject, tamper: Tamper) -> None:
    """Details cannot vanish without a recorded erasure."""
    tamper(
        "UPDATE ledger_app_auditentry SET details = NULL, salt = NULL " + OF_STREAM, five.stream, 2
    )
    assert found(five.stream) == (2, "details_missing")


def test_edited_time_is_found(five: Subject, tamper: Tamper) -> None:
    """The column is not hashed itself, so it is compared with the envelope."""
    tamper(
        "UPDATE ledger_app_auditentry SET at = at - interval '1 hour' " + OF_STREAM, five.stream, 4
    )
    assert found(five.stream) == (4, "envelope_mismatch")


@pytest.mark.parametrize(("seq", "fault"), [(1, "gap"), (3, "gap"), (5, "tail_missing")])
def test_deleted_entry_is_found(five: Subject, tamper: Tamper, seq: int, fault: str) -> None:
    """First, middle or last: the number that is missing is named."""
    tamper("DELETE FROM ledger_app_auditentry " + OF_STREAM, five.stream, seq)
    assert found(five.stream) == (seq, fault)


def test_closed_gap_is_found(five: Subject, tamper: Tamper) -> None:
    """Renumbering after a deletion leaves a link to an entry that is gone."""
    tamper("DELETE FROM ledger_app_auditentry " + OF_STREAM, five.stream, 3)
    for seq in (4, 5):
        tamper("UPDATE ledger_app_auditentry SET seq = seq - 1 " + OF_STREAM, five.stream, seq)
    assert found(five.stream) == (3, "broken_link")


def test_reordered_entries_are_found(five: Subject, tamper: Tamper) -> None:
    """Two entries that change places no longer link."""
    for old, new in ((2, 99), (3, 2), (99, 3)):
        tamper("UPDATE ledger_app_auditentry SET seq = %s " + OF_STREAM, new, five.stream, old)
    assert found(five.stream) == (2, "broken_link")


def test_entry_moved_to_another_stream_is_found(
    five: Subject, other: Subject, tamper: Tamper
) -> None:
    """The hash covers the name of the stream, so both streams are at fault."""
    other.append()
    tamper(
        "UPDATE ledger_app_auditentry SET stream = %s, seq = 2 " + OF_STREAM,
        other.stream,
        five.stream,
        5,
    )
    assert found(five.stream) == (5, "tail_missing")
    assert found(other.stream) == (2, "broken_link")


def test_entry_inserted_behind_the_function_is_found(five: Subject, tamper: Tamper) -> None:
    """An entry beyond the head was not written by the function."""
    tamper(
        "INSERT INTO ledger_app_auditentry"
        " (stream, seq, at, envelope, details_digest, prev_hash, hash)"
        " SELECT stream, 6, at, envelope, details_digest, hash, hash FROM ledger_app_auditentry "
        + OF_STREAM,
        five.stream,
        5,
    )
    assert found(five.stream) == (6, "details_missing")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("head_seq = 4", (5, "beyond_head")),
        ("head_seq = 6", (6, "tail_missing")),
        ("head_hash = '\\x00'", (5, "head_mismatch")),
        ("tenant_id = gen_random_uuid()", (None, "tenant_mismatch")),
    ],
)
def test_changed_head_is_found(
    five: Subject, tamper: Tamper, change: str, fault: tuple[int | None, str]
) -> None:
    """The head and the last entry vouch for each other."""
    tamper(f"UPDATE ledger_app_auditstream SET {change} WHERE stream = %s", five.stream)
    assert found(five.stream) == fault


def test_removed_head_is_found(five: Subject, tamper: Tamper) -> None:
    """Entries without a head are found in the walk over everything, also within one tenant."""
    tamper("DELETE FROM ledger_app_auditstream WHERE stream = %s", five.stream)
    assert found(five.stream) == (None, "head_missing")
    for scope in (None, five.tenant_id):
        (verdict,) = audit.verify_all(scope)
        assert verdict.fault == Fault(
            five.stream, None, FaultCode.HEAD_MISSING, "the head of the stream is gone"
        )


def test_stream_removed_with_its_head_is_found_by_the_ledger(
    subject: Subject, other: Subject, tamper: Tamper
) -> None:
    """A task with an effect or a receipt must have a stream."""
    subject.begin()
    receipts.put(
        tenant_id=other.tenant_id, task_id=other.task_id, outcome="failed", items=[], effects=[]
    )
    for stream in (subject.stream, other.stream):
        tamper("DELETE FROM ledger_app_auditstream WHERE stream = %s", stream)
        tamper("DELETE FROM ledger_app_auditentry WHERE stream = %s", stream)
    verdicts = list(audit.verify_all())
    assert {v.stream for v in verdicts} == {subject.stream, other.stream}
    assert {v.fault.code for v in verdicts if v.fault} == {"stream_missing"}
    assert found(subject.stream) == (None, "stream_missing")


def test_limit_a_stream_nothing_else_knows_can_be_removed(five: Subject, tamper: Tamper) -> None:
    """Known limit until seals exist: stream and head gone, no effect and no receipt left."""
    tamper("DELETE FROM ledger_app_auditstream WHERE stream = %s", five.stream)
    tamper("DELETE FROM ledger_app_auditentry WHERE stream = %s", five.stream)
    assert list(audit.verify_all()) == []


def test_limit_the_newest_entries_can_be_removed_with_their_head(
    five: Subject, tamper: Tamper
) -> None:
    """Known limit until seals exist: a head that was set back vouches for a shorter stream."""
    tamper("DELETE FROM ledger_app_auditentry WHERE stream = %s AND seq > 3", five.stream)
    tamper(
        "UPDATE ledger_app_auditstream SET head_seq = 3, head_hash ="
        " (SELECT hash FROM ledger_app_auditentry AS e WHERE e.stream = %s AND e.seq = 3)"
        " WHERE stream = %s",
        five.stream,
        five.stream,
    )
    assert audit.verify(five.stream) == StreamVerdict(five.stream, 3, None)


def test_limit_a_chain_recomputed_by_the_database_owner_verifies(
    five: Subject, tamper: Tamper
) -> None:
    """Known limit until seals exist: who may switch triggers off can rewrite a whole stream."""
    tamper(
        "UPDATE ledger_app_auditentry"
        " SET envelope = replace(envelope, 'user:7', 'user:8') " + OF_STREAM,
        five.stream,
        2,
    )
    previous = genesis_hash(five.stream)
    for entry in AuditEntry.objects.filter(stream=five.stream).order_by("seq"):
        digest = bytes(entry.details_digest)
        own = entry_hash(five.stream, entry.seq, previous, entry.envelope, digest)
        tamper(
            "UPDATE ledger_app_auditentry SET prev_hash = %s, hash = %s " + OF_STREAM,
            previous,
            own,
            five.stream,
            entry.seq,
        )
        previous = own
    assert found(five.stream) == (5, "head_mismatch")
    tamper(
        "UPDATE ledger_app_auditstream SET head_hash = %s WHERE stream = %s", previous, five.stream
    )
    assert audit.verify(five.stream).ok


def test_unknown_stream_does_not_verify(subject: Subject) -> None:
    """Asking for a stream that is not there is a fault, not silence."""
    assert found(subject.stream) == (None, "stream_missing")


def test_verification_names_only_the_first_fault(five: Subject, tamper: Tamper) -> None:
    """One fault makes all later entries worthless, so one is reported."""
    for seq in (4, 2):
        tamper("UPDATE ledger_app_auditentry SET hash = '\\x00' " + OF_STREAM, five.stream, seq)
    assert found(five.stream) == (2, "entry_changed")
    assert audit.verify(five.stream).entries == 1


def test_verification_is_scoped_to_one_tenant(
    five: Subject, other: Subject, tamper: Tamper
) -> None:
    """A fault of one tenant does not show in the report of another."""
    other.append()
    tamper("DELETE FROM ledger_app_auditentry " + OF_STREAM, five.stream, 5)
    assert [v.ok for v in audit.verify_all(other.tenant_id)] == [True]
    assert [v.ok for v in audit.verify_all(five.tenant_id)] == [False]
    assert len(list(audit.verify_all())) == 2


def test_verification_pages_through_a_long_stream(
    subject: Subject, monkeypatch: pytest.MonkeyPatch, django_assert_max_num_queries: Any
) -> None:
    """Entries come in pages and streams in batches; a page that ends at the head is no fault."""
    monkeypatch.setattr("ledger_app.services.verification.ENTRY_PAGE", 10)
    monkeypatch.setattr("ledger_app.services.verification.STREAM_BATCH", 2)
    for _ in range(20):
        subject.append(details=None)
    others = [Subject() for _ in range(4)]
    for each in others:
        each.append()
    with django_assert_max_num_queries(40):
        verdicts = list(audit.verify_all())
    assert sum(v.entries for v in verdicts) == 24
    assert all(v.ok for v in verdicts)


def test_entries_written_during_verification_are_no_fault(
    five: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head that moved on after its entries were read sends the walk on, not into a fault."""
    from ledger_app.services import verification

    read = verification._entries_after
    left = [1, 2]

    def read_then_write(stream: str, seq: int) -> list[Any]:
        page = read(stream, seq)
        if left and left.pop():
            five.append()
        return page

    monkeypatch.setattr(verification, "_entries_after", read_then_write)
    assert audit.verify(five.stream) == StreamVerdict(five.stream, 7, None)


def test_effect_settled_during_verification_is_no_fault(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows and entries of a running task are compared again when the stream moved between them."""
    from ledger_app.services import verification

    subject.begin()
    count = verification._effect_counts
    left = [1]

    def write_then_count(tasks: Any) -> Any:
        if left and left.pop():
            effects.succeed(**subject.settle, fence=1, response={})
        return count(tasks)

    monkeypatch.setattr(verification, "_effect_counts", write_then_count)
    verdict = audit.verify(subject.stream)
    assert (verdict.entries, verdict.fault) == (2, None)


def settled(subject: Subject) -> None:
    subject.begin()
    effects.succeed(**subject.settle, fence=1, response={"url": "x"})
    receipts.put(
        tenant_id=subject.tenant_id,
        task_id=subject.task_id,
        outcome="completed",
        items=[
            {
                "name": "report.html",
                "sha256": hashlib.sha256(b"x").hexdigest(),
                "size_bytes": 1,
                "media_type": "text/html",
            }
        ],
        effects=[],
    )


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("UPDATE ledger_app_receipt SET outcome = 'failed'", "receipt_changed"),
        ("UPDATE ledger_app_receipt SET items = '[]'", "receipt_changed"),
        ("UPDATE ledger_app_receipt SET document = document || ' '", "receipt_changed"),
        ("UPDATE ledger_app_receipt SET document = 'x'", "receipt_changed"),
        ("DELETE FROM ledger_app_receipt", "receipt_missing"),
        ("DELETE FROM ledger_app_effect", "effects_mismatch"),
        ("UPDATE ledger_app_effect SET state = 'failed'", "effects_mismatch"),
        (
            "UPDATE ledger_app_effect SET state = 'begun', settled_at = NULL",
            "effects_mismatch",
        ),
    ],
)
def test_ledger_rows_changed_behind_the_audit_are_found(
    subject: Subject, tamper: Tamper, statement: str, fault: str
) -> None:
    """Effects and receipts are compared with what the chain says of them."""
    settled(subject)
    assert audit.verify(subject.stream).ok
    tamper(statement)
    assert found(subject.stream) == (None, fault)


def test_replaced_receipt_is_found(subject: Subject, tamper: Tamper) -> None:
    """A receipt that fits its own digest must also be the one that was audited."""
    settled(subject)
    document = receipts.document_of(
        tenant_id=subject.tenant_id,
        task_id=subject.task_id,
        outcome="completed",
        items=[],
        effects=[],
    )
    tamper(
        "UPDATE ledger_app_receipt SET items = '[]', document = %s, sha256 = %s",
        document,
        hashlib.sha256(document.encode()).hexdigest(),
    )
    assert found(subject.stream) == (None, "receipt_replaced")


def test_unaudited_receipt_is_found(subject: Subject, other: Subject, tamper: Tamper) -> None:
    """A receipt for a task whose chain tells of none was not written by the ledger."""
    settled(subject)
    other.append()
    tamper(
        "UPDATE ledger_app_receipt SET task_id = %s, tenant_id = %s", other.task_id, other.tenant_id
    )
    assert found(other.stream) == (None, "receipt_unaudited")


def test_effect_left_begun_behind_a_receipt_is_found(subject: Subject) -> None:
    """A task that is over has no call that may still be under way."""
    subject.begin()
    assert audit.verify(subject.stream).notices == ("1 effects begun",)
    receipts.put(
        tenant_id=subject.tenant_id, task_id=subject.task_id, outcome="failed", items=[], effects=[]
    )
    assert found(subject.stream) == (None, "effect_left_begun")


def test_unreadable_entry_of_a_legal_chain_is_a_fault(subject: Subject) -> None:
    """Somebody with the web role's SQL can append nonsense; it is reported, not a crash."""
    envelope = json.dumps(
        {"at": "@now@", "stream": subject.stream, "tenant": str(subject.tenant_id)},
        separators=(",", ":"),
    )
    connection.cursor().execute(
        "SELECT ledger_audit_append(%s, %s, %s, NULL, NULL)",
        [subject.stream, subject.tenant_id, envelope],
    )
    assert found(subject.stream) == (1, "envelope_unreadable")
