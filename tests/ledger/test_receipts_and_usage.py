"""Receipts: one for each task, for ever. Usage: once for each source (R66, R73)."""

import hashlib
import json
import threading
from typing import Any

import pytest
from django.db import connection

from ledger_app.domain.errors import NotCanonicalError
from ledger_app.models import Receipt, Usage
from ledger_app.queries import UsageTotal, find_receipt, list_audit_entries, total_usage
from ledger_app.services import audit, receipts, usage
from ledger_app.services.receipts import DeliveredItem, EffectFact
from tests.ledger.conftest import Subject

pytestmark = pytest.mark.django_db

ITEM = DeliveredItem(
    name="report.html",
    sha256=hashlib.sha256(b"report").hexdigest(),
    size_bytes=6,
    media_type="text/html",
)
EFFECT = EffectFact(key="k", tool="contracts.publish", target="folder", state="succeeded")


def put(subject: Subject, **overrides: Any) -> Any:
    values = {
        "tenant_id": subject.tenant_id,
        "task_id": subject.task_id,
        "outcome": "completed",
        "items": [ITEM],
        "effects": [EFFECT],
        **overrides,
    }
    return receipts.put(**values)


def record(subject: Subject, **overrides: Any) -> bool:
    values = {
        "tenant_id": subject.tenant_id,
        "task_id": subject.task_id,
        "source_id": "call-1",
        "caller": "lead_agent",
        "model": "fake-1",
        "input_tokens": 10,
        "output_tokens": 2,
        "cost_micros": 500,
        "currency": "EUR",
        **overrides,
    }
    return usage.record(**values)


def test_receipt_digest_can_be_recomputed_by_anybody(subject: Subject) -> None:
    """The digest is SHA-256 of the stored text, which holds every fact."""
    row = put(subject)
    assert hashlib.sha256(row.document.encode()).hexdigest() == row.sha256
    assert json.loads(row.document) == {
        "v": 1,
        "tenant": str(subject.tenant_id),
        "task": str(subject.task_id),
        "outcome": "completed",
        "items": [ITEM],
        "effects": [EFFECT],
    }
    assert (row.items, row.effects, row.outcome) == ([ITEM], [EFFECT], "completed")


def test_receipt_is_audited_with_its_digest(subject: Subject) -> None:
    """So that a receipt that was exchanged is found."""
    row = put(subject)
    (entry,) = list_audit_entries(tenant_id=subject.tenant_id, stream=subject.stream)
    assert json.loads(entry.envelope)["target"] == f"receipt:{row.id}"
    assert json.loads(entry.details or "")["sha256"] == row.sha256
    assert audit.verify(subject.stream).ok


def test_first_receipt_stands(subject: Subject) -> None:
    """Putting again returns what is there, changes nothing and is not audited."""
    first = put(subject)
    assert put(subject) == first
    assert put(subject, outcome="failed", items=[]) == first
    assert len(list_audit_entries(tenant_id=subject.tenant_id, stream=subject.stream)) == 1


def test_receipt_is_found_within_its_tenant_only(subject: Subject, other: Subject) -> None:
    """Another tenant's task has no receipt, like one that does not exist."""
    row = put(subject)
    assert find_receipt(tenant_id=subject.tenant_id, task_id=subject.task_id) == row
    assert find_receipt(tenant_id=other.tenant_id, task_id=subject.task_id) is None


def test_receipt_refuses_facts_without_a_canonical_form(subject: Subject) -> None:
    """Nothing is stored that could not be hashed again."""
    with pytest.raises(NotCanonicalError, match="/items/0/size_bytes"):
        put(subject, items=[{**ITEM, "size_bytes": 2**60}])
    assert not Receipt.objects.exists()


def test_usage_counts_a_source_once(subject: Subject) -> None:
    """Replay and duplicate callbacks change no total, whatever they say."""
    assert record(subject)
    assert not record(subject)
    assert not record(subject, input_tokens=999, model="another")
    assert total(subject) == [UsageTotal("fake-1", "lead_agent", "EUR", 1, 10, 2, 500)]


@pytest.mark.parametrize(
    "amounts",
    [
        {"input_tokens": 0, "output_tokens": 0, "cost_micros": 0},
        {"input_tokens": -1},
        {"output_tokens": 2**53},
        {"cost_micros": 0.5},
        {"input_tokens": "10"},
        {"input_tokens": True},
    ],
)
def test_no_use_and_malformed_use_add_nothing(subject: Subject, amounts: dict[str, Any]) -> None:
    """A provider that reports nonsense neither fails the task nor changes a total."""
    assert not record(subject, **amounts)
    assert total(subject) == []


def test_usage_totals_are_sums_by_model_and_caller(subject: Subject, other: Subject) -> None:
    """Over some tasks of one tenant; another tenant's rows never count."""
    second = Subject(tenant_id=subject.tenant_id)
    record(subject)
    record(subject, source_id="call-2", caller="subagent")
    record(second)
    record(other)
    rows = total_usage(
        tenant_id=subject.tenant_id, task_ids=[subject.task_id, second.task_id, other.task_id]
    )
    assert rows == [
        UsageTotal("fake-1", "lead_agent", "EUR", 2, 20, 4, 1000),
        UsageTotal("fake-1", "subagent", "EUR", 1, 10, 2, 500),
    ]


@pytest.mark.django_db(transaction=True)
def test_concurrent_reports_of_one_call_count_once(subject: Subject) -> None:
    """Eight callbacks at the same moment: one says that it was new."""
    ready, new = threading.Barrier(8), []

    def report() -> None:
        try:
            ready.wait(timeout=30)
            new.append(record(subject))
        finally:
            connection.close()

    threads = [threading.Thread(target=report) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(new) == [False] * 7 + [True]
    assert Usage.objects.count() == 1


def total(subject: Subject) -> list[UsageTotal]:
    return total_usage(tenant_id=subject.tenant_id, task_ids=[subject.task_id])
