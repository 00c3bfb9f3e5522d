"""Appending to the audit chain: form, order, atomicity (S100-S105)."""

import hashlib
import json
import threading
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger_app.domain.audit import (
    NO_DETAILS_DIGEST,
    SYSTEM_STREAM,
    SYSTEM_TENANT,
    Envelope,
    details_digest,
    entry_hash,
    genesis_hash,
    tenant_stream,
)
from ledger_app.domain.canonical import MAX_INTEGER, canonical_text
from ledger_app.models import AuditEntry, AuditStream
from ledger_app.queries import list_audit_entries
from ledger_app.services import audit
from tests.ledger.conftest import Subject

pytestmark = pytest.mark.django_db

text = st.text(st.characters(exclude_categories=["Cs"]))


def test_append_numbers_entries_from_one(subject: Subject) -> None:
    """Each stream counts on its own, without gaps."""
    assert [subject.append() for _ in range(3)] == [1, 2, 3]
    assert Subject().append() == 1


def test_append_is_one_round_trip(subject: Subject, django_assert_num_queries: Any) -> None:
    """Head lock, entry and new head cost the caller one statement."""
    with django_assert_num_queries(1):
        subject.append()


def test_append_stores_the_envelope_as_canonical_text(subject: Subject) -> None:
    """Ids only, in RFC 8785 order, with the server's time."""
    before = datetime.now(UTC) - timedelta(seconds=5)
    subject.append(
        action="command.accepted", via="rest", old_version=3, new_version=4, request_id="r-1"
    )
    entry = AuditEntry.objects.get(stream=subject.stream)
    envelope = json.loads(entry.envelope)
    assert entry.envelope == json.dumps(envelope, separators=(",", ":"))
    assert list(envelope) == sorted(envelope)
    assert envelope == {
        "v": 1,
        "tenant": str(subject.tenant_id),
        "stream": subject.stream,
        "at": entry.at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "actor": "user:7",
        "on_behalf_of": None,
        "via": "rest",
        "action": "command.accepted",
        "target": f"task:{subject.task_id}",
        "old_version": 3,
        "new_version": 4,
        "outcome": "ok",
        "request_id": "r-1",
    }
    assert before < entry.at < datetime.now(UTC) + timedelta(seconds=5)


@given(text, text, text, st.none() | st.integers(-MAX_INTEGER, MAX_INTEGER))
def test_envelope_text_is_the_canonical_form(
    action: str, target: str, request_id: str, version: int | None
) -> None:
    """The fast writer of the envelope agrees with RFC 8785 for whatever text it holds."""
    envelope = Envelope(
        stream=SYSTEM_STREAM,
        tenant_id=SYSTEM_TENANT,
        actor="system:test",
        action=action or "x",
        target=target,
        request_id=request_id,
        new_version=version,
    )
    assert envelope.text() == canonical_text(envelope.members())


def test_append_chains_by_the_published_formula(subject: Subject) -> None:
    """A second implementation, written from the formula alone, gets the same bytes."""

    def sha256(data: bytes) -> bytes:
        return hashlib.sha256(data).digest()

    subject.append()
    subject.append(details=None)
    stream, previous = (
        subject.stream.encode(),
        sha256(b"audit-genesis-v1" + subject.stream.encode()),
    )
    for entry in AuditEntry.objects.filter(stream=subject.stream).order_by("seq"):
        details = (entry.details or "").encode()
        digest = sha256(bytes(entry.salt or b"") + details)
        expected = sha256(
            b"audit-entry-v1"
            + sha256(stream)
            + entry.seq.to_bytes(8, "big")
            + previous
            + sha256(entry.envelope.encode())
            + digest
        )
        assert bytes(entry.details_digest) == digest
        assert bytes(entry.prev_hash) == previous
        assert bytes(entry.hash) == expected
        previous = expected
    head = AuditStream.objects.get(stream=subject.stream)
    assert (head.head_seq, bytes(head.head_hash)) == (2, previous)


def test_entry_hash_never_changes_its_formula() -> None:
    """A frozen sample: entries of every earlier release still verify."""
    stream = "task:00000000-0000-4000-8000-000000000001"
    envelope = Envelope(
        stream=stream,
        tenant_id=uuid.UUID(int=2),
        actor="system:engine",
        action="task.admitted",
        target=stream,
    ).text()
    digest = details_digest('{"reason":"因为"}', b"0123456789abcdef")
    first = entry_hash(stream, 1, genesis_hash(stream), envelope, digest)
    assert envelope == (
        '{"action":"task.admitted","actor":"system:engine","at":"@now@","new_version":null,'
        '"old_version":null,"on_behalf_of":null,"outcome":"ok","request_id":null,'
        '"stream":"task:00000000-0000-4000-8000-000000000001",'
        '"target":"task:00000000-0000-4000-8000-000000000001",'
        '"tenant":"00000000-0000-0000-0000-000000000002","v":1,"via":""}'
    )
    assert genesis_hash(stream).hex() == GENESIS
    assert digest.hex() == DIGEST
    assert first.hex() == FIRST


GENESIS = "85bfd8388c0aa51ed4746be7e9d3e8b5a450eaf2c8efe9ee935f5465e02a1508"
DIGEST = "efcf30590cef1146e10202c54a674a240e23d7cdc68c1a71cb040b0e2241bdb4"
FIRST = "11b2e420ae8307ccfa9d966f011a998e1e9f692da6bc44c664b2b8f46e96507f"


def test_append_without_details_stores_none(subject: Subject) -> None:
    """No details, no salt, and the digest of nothing."""
    subject.append(details={})
    entry = AuditEntry.objects.get(stream=subject.stream)
    assert (entry.details, entry.salt) == (None, None)
    assert bytes(entry.details_digest) == NO_DETAILS_DIGEST


def test_append_redacts_details(subject: Subject) -> None:
    """A secret in the details is not written, not even once."""
    subject.append(details={"reason": "rotate", "api_key": "hunter2", "n": 2**60})
    (row,) = list_audit_entries(tenant_id=subject.tenant_id, stream=subject.stream)
    assert row.details == '{"api_key":"[redacted]","n":"1152921504606846976","reason":"rotate"}'


def test_append_salts_equal_details_differently(subject: Subject) -> None:
    """An erased value cannot be guessed by comparing digests."""
    subject.append()
    subject.append()
    digests = AuditEntry.objects.filter(stream=subject.stream).values_list(
        "details_digest", flat=True
    )
    assert len({bytes(digest) for digest in digests}) == 2


@pytest.mark.slow
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None
)
@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    st.dictionaries(st.text(), st.text() | st.integers() | st.floats()),
)
def test_any_text_verifies(target: str, details: dict[str, Any]) -> None:
    """Server and verifier agree on the bytes of whatever people and tools write."""
    subject = Subject()
    subject.append(target=target, details=details)
    assert audit.verify(subject.stream).ok


@pytest.mark.parametrize(
    "hostile", ['"at":"@now@"', "@now@", '\\"at\\":\\"@now@\\"', '","at":"@now@']
)
def test_a_value_cannot_pose_as_the_time(subject: Subject, hostile: str) -> None:
    """Only the member `at` is filled by the server; text that looks like it stays as it is."""
    subject.append(target=hostile, request_id=hostile)
    (row,) = list_audit_entries(tenant_id=subject.tenant_id, stream=subject.stream)
    envelope = json.loads(row.envelope)
    assert (envelope["target"], envelope["request_id"]) == (hostile, hostile)
    assert envelope["at"] != "@now@"


def test_rolled_back_change_leaves_no_entry(subject: Subject) -> None:
    """No change, no audit."""
    subject.append()
    with transaction.atomic():
        assert subject.append() == 2
        transaction.set_rollback(True)
    assert subject.append() == 2
    assert audit.verify(subject.stream).ok


def test_failing_append_takes_the_change_along(subject: Subject, other: Subject) -> None:
    """No audit, no change: a stream of another tenant refuses the entry, and the effect with it."""
    subject.append()
    with pytest.raises(IntegrityError, match="belongs to another tenant"), transaction.atomic():
        subject.begin(tenant_id=other.tenant_id)
    assert connection.cursor().execute("SELECT FROM ledger_app_effect").fetchone() is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"stream": "task:1"},
        {"stream": "tenant:" + str(uuid.UUID(int=5))},
        {"actor": "somebody"},
        {"actor": ""},
        {"on_behalf_of": "user:x"},
        {"action": ""},
        {"new_version": 2**53},
    ],
)
def test_append_refuses_an_unclear_envelope(subject: Subject, wrong: dict[str, Any]) -> None:
    """Who and where must be ids of a known form, or the entry would prove nothing."""
    with pytest.raises(ValueError, match=r"stream|actor|version"):
        subject.append(**wrong)


def test_append_works_for_tenant_and_system_streams(subject: Subject) -> None:
    """Platform events have a stream of their own under the nil tenant."""
    assert subject.append(stream=tenant_stream(subject.tenant_id)) == 1
    audit.append(
        stream=SYSTEM_STREAM,
        tenant_id=SYSTEM_TENANT,
        actor="system:doctor",
        action="clock.checked",
        target="system",
    )
    assert audit.verify(SYSTEM_STREAM).ok


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["task:x", uuid.UUID(int=1), "{}", None, None], "does not belong"),
        (["task:x", uuid.UUID(int=1), "@fit@", "text", None], "16 bytes"),
        (["task:x", uuid.UUID(int=1), "@fit@", "text", b"short"], "16 bytes"),
        (["task:x", uuid.UUID(int=1), "@fit@", None, b"0123456789abcdef"], "16 bytes"),
        (["task:y", uuid.UUID(int=1), "@fit@", None, None], "does not belong"),
        (["task:x", uuid.UUID(int=2), "@fit@", None, None], "does not belong"),
    ],
)
def test_sql_function_checks_its_arguments(arguments: list[Any], message: str) -> None:
    """The function trusts no caller: envelope, stream and tenant must fit each other."""
    fit = f'{{"at":"@now@","stream":"task:x","tenant":"{uuid.UUID(int=1)}"}}'
    values = [fit if value == "@fit@" else value for value in arguments]
    with pytest.raises(DatabaseError, match=message), transaction.atomic():
        connection.cursor().execute("SELECT ledger_audit_append(%s, %s, %s, %s, %s::bytea)", values)


def test_entries_are_read_by_their_tenant_only(subject: Subject, other: Subject) -> None:
    """Another tenant's stream looks like one that does not exist; pages go by seq."""
    for _ in range(3):
        subject.append()
    assert list_audit_entries(tenant_id=other.tenant_id, stream=subject.stream) == []
    page = list_audit_entries(
        tenant_id=subject.tenant_id, stream=subject.stream, after_seq=1, limit=1
    )
    assert [row.seq for row in page] == [2]


@pytest.mark.django_db(transaction=True)
def test_concurrent_appends_are_dense_and_verify(subject: Subject) -> None:
    """Eight writers, fifty entries each, the first of them racing to create the stream."""
    ready, numbers, lock = threading.Barrier(8), [], threading.Lock()

    def write() -> None:
        try:
            ready.wait(timeout=30)
            mine = [subject.append() for _ in range(50)]
            with lock:
                numbers.extend(mine)
        finally:
            connection.close()

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1, 401))
    verdict = audit.verify(subject.stream)
    assert (verdict.entries, verdict.fault) == (400, None)
    times = AuditEntry.objects.filter(stream=subject.stream).order_by("seq")
    assert list(times.values_list("at", flat=True)) == sorted(times.values_list("at", flat=True))
