"""Effects: edges, fences, one row for each act, each change audited (S100, E3, E5)."""

import itertools
import json
import threading
import uuid
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from ledger_app.domain.canonical import digest_of
from ledger_app.domain.effects import EDGES, SETTLED, EffectKind, EffectState, is_allowed
from ledger_app.domain.errors import (
    EffectEdgeError,
    EffectInDoubtError,
    EffectKeyReusedError,
    EffectNotFoundError,
    NotCanonicalError,
    StaleFenceError,
)
from ledger_app.models import Effect
from ledger_app.queries import (
    count_effects,
    find_effect,
    iterate_effect_summaries,
    list_audit_entries,
    list_effects,
    list_newest_effect_summaries,
    list_open_effects,
)
from ledger_app.services import audit, effects
from tests.ledger.conftest import Subject, guards_off

pytestmark = pytest.mark.django_db

OPEN_STATES = frozenset({EffectState.PLANNED, EffectState.BEGUN, EffectState.IN_DOUBT})


def actions(subject: Subject) -> list[str]:
    rows = list_audit_entries(tenant_id=subject.tenant_id, stream=subject.stream)
    return [json.loads(row.envelope)["action"] for row in rows]


def in_state(subject: Subject, state: EffectState, **overrides: Any) -> None:
    """Put the subject's effect into a state, past the guards."""
    subject.begin(**overrides)
    settled = "now()" if state in SETTLED else "NULL"
    with guards_off(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE ledger_app_effect SET state = %s, settled_at = {settled}", [state])


def test_begin_stores_what_is_about_to_happen(subject: Subject) -> None:
    """The row tells which act, by which tool, under which fence, before the call."""
    approval = uuid.uuid4()
    row = subject.begin(approval_id=approval, request={"to": "x", "password": "p"})
    assert row == find_effect(tenant_id=subject.tenant_id, key=subject.key)
    assert (row.state, row.kind, row.attempts, row.fence) == ("begun", "keyed", 1, 1)
    assert row.request == {"to": "x", "password": "[redacted]"}
    assert row.approval_id == approval
    assert row.begun_at is not None
    assert row.settled_at is None
    assert actions(subject) == ["effect.begun"]


def test_begin_and_succeed_are_one_round_trip_each(
    subject: Subject, django_assert_num_queries: Any
) -> None:
    """The change and its audit entry are one statement."""
    with django_assert_num_queries(2):
        subject.begin()
        effects.succeed(**subject.settle, fence=1, response={})


@pytest.mark.parametrize("kind", [EffectKind.KEYED, EffectKind.QUERYABLE])
def test_begin_again_raises_attempts_under_the_new_fence(
    subject: Subject, kind: EffectKind
) -> None:
    """After a crash the same act is begun again, and the row knows it."""
    subject.begin(kind=kind)
    row = subject.begin(kind=kind, fence=4)
    assert (row.state, row.attempts, row.fence) == ("begun", 2, 4)
    assert Effect.objects.count() == 1


def test_begin_again_after_success_returns_the_stored_response(subject: Subject) -> None:
    """What has happened is not called again; the caller takes the response."""
    subject.begin()
    effects.succeed(**subject.settle, fence=1, response={"url": "https://example.org/1"})
    row = subject.begin(fence=2)
    assert (row.state, row.attempts, row.response) == (
        "succeeded",
        1,
        {"url": "https://example.org/1"},
    )
    assert actions(subject) == ["effect.begun", "effect.succeeded"]


def test_begin_again_after_a_certain_failure_clears_it(subject: Subject) -> None:
    """A failure says nothing happened, so a retry starts clean."""
    subject.begin()
    failed = effects.fail(**subject.settle, fence=1, error={"code": "refused", "token": "t"})
    assert (failed.state, failed.error) == ("failed", {"code": "refused", "token": "[redacted]"})
    assert failed.settled_at is not None
    row = subject.begin()
    assert (row.state, row.attempts, row.error, row.settled_at) == ("begun", 2, None, None)


def test_opaque_effect_is_never_begun_twice(subject: Subject) -> None:
    """Nobody can tell whether it happened, so a person decides."""
    subject.begin(kind="opaque")
    with pytest.raises(EffectInDoubtError) as caught:
        subject.begin(kind="opaque", fence=2)
    assert caught.value.code == "effect_in_doubt"
    assert caught.value.fields["state"] == "begun"
    stored = find_effect(tenant_id=subject.tenant_id, key=subject.key)
    assert stored is not None
    assert (stored.attempts, stored.fence) == (1, 1)


@pytest.mark.parametrize("kind", list(EffectKind))
def test_effect_in_doubt_is_not_begun(subject: Subject, kind: EffectKind) -> None:
    """Whatever the kind: first it is settled."""
    subject.begin(kind=kind)
    effects.mark_in_doubt(**subject.settle, fence=1, error={"code": "timeout"})
    with pytest.raises(EffectInDoubtError):
        subject.begin(kind=kind, fence=2)


def test_effect_in_doubt_can_be_settled_by_a_person(subject: Subject) -> None:
    """The entry names the person and the reason."""
    subject.begin(kind="opaque")
    effects.mark_in_doubt(**subject.settle, fence=1, error={"code": "timeout"})
    row = effects.succeed(
        **subject.settle, fence=1, response={"proof": "mail"}, actor="user:9", reason="it arrived"
    )
    assert row.state == "succeeded"
    (*_, last) = list_audit_entries(tenant_id=subject.tenant_id, stream=subject.stream)
    assert json.loads(last.envelope)["actor"] == "user:9"
    assert json.loads(last.details or "")["reason"] == "it arrived"


@pytest.mark.parametrize(
    "other_act",
    [
        {"args_sha256": digest_of(["another"])},
        {"tool": "mail.send"},
        {"target": "elsewhere"},
        {"kind": "queryable"},
        {"step_key": "another"},
    ],
)
def test_a_key_belongs_to_one_act(subject: Subject, other_act: dict[str, str]) -> None:
    """Another act under the same key would be answered with a result that is not its own."""
    subject.begin()
    with pytest.raises(EffectKeyReusedError, match=next(iter(other_act))):
        subject.begin(**other_act)


def test_same_key_of_another_tenant_is_another_effect(subject: Subject, other: Subject) -> None:
    """Keys are unique within a tenant; another tenant neither sees nor blocks them."""
    key = "publish"
    subject.begin(key=key)
    other.begin(key=key)
    assert find_effect(tenant_id=uuid.uuid4(), key=key) is None
    assert Effect.objects.count() == 2


def write(subject: Subject, name: str, fence: int) -> Any:
    match name:
        case "begin":
            return subject.begin(fence=fence)
        case "succeed":
            return effects.succeed(**subject.settle, fence=fence, response={})
        case "fail":
            return effects.fail(**subject.settle, fence=fence, error={})
        case _:
            return effects.mark_in_doubt(**subject.settle, fence=fence, error={})


WRITES = ("begin", "succeed", "fail", "mark_in_doubt")


@pytest.mark.parametrize("name", WRITES)
def test_stale_fence_writes_nothing(subject: Subject, name: str) -> None:
    """A worker that lost the task is refused, and nothing is audited."""
    subject.begin(fence=5)
    before = find_effect(tenant_id=subject.tenant_id, key=subject.key)
    with pytest.raises(StaleFenceError) as caught:
        write(subject, name, fence=4)
    assert caught.value.fields == {"key": subject.key, "fence": 4, "stored_fence": 5}
    assert find_effect(tenant_id=subject.tenant_id, key=subject.key) == before
    assert actions(subject) == ["effect.begun"]


@pytest.mark.parametrize("name", WRITES[1:])
def test_settling_an_unknown_effect_is_refused(subject: Subject, name: str) -> None:
    """There is nothing to settle, and nothing is audited."""
    with pytest.raises(EffectNotFoundError):
        write(subject, name, fence=1)
    assert actions(subject) == []


def test_settling_under_another_task_is_refused(subject: Subject, other: Subject) -> None:
    """The audit entry of a settlement belongs to the stream of the effect's own task."""
    subject.begin()
    with pytest.raises(EffectEdgeError):
        effects.fail(**{**subject.settle, "task_id": other.task_id}, fence=1, error={})


def test_settling_twice_with_the_same_facts_changes_nothing(subject: Subject) -> None:
    """A repeated commit after a lost answer is harmless and not audited twice."""
    subject.begin()
    response = {"n": 1.0, "big": 1e22, "list": [None, True]}
    first = effects.succeed(**subject.settle, fence=1, response=response)
    assert effects.succeed(**subject.settle, fence=2, response=response) == first
    assert actions(subject) == ["effect.begun", "effect.succeeded"]


def test_settling_with_other_facts_is_refused(subject: Subject) -> None:
    """What has happened stays as it was first told."""
    subject.begin()
    effects.succeed(**subject.settle, fence=1, response={"n": 1})
    with pytest.raises(EffectEdgeError):
        effects.succeed(**subject.settle, fence=1, response={"n": True})
    with pytest.raises(EffectEdgeError):
        effects.fail(**subject.settle, fence=1, error={})
    with pytest.raises(EffectEdgeError):
        effects.mark_in_doubt(**subject.settle, fence=1, error={})


def test_a_response_that_cannot_be_stored_is_stored_as_near_as_possible(
    subject: Subject,
) -> None:
    """The call has happened, so hostile bytes in the answer must not keep that from the ledger."""
    subject.begin()
    row = effects.succeed(**subject.settle, fence=1, response={"t": "a\x00\ud800", "n": 2**60})
    assert row.response == {"t": "a\ufffd\ufffd", "n": str(2**60)}
    again = effects.succeed(**subject.settle, fence=1, response={"t": "a\x00\ud800", "n": 2**60})
    assert again == row


def test_begin_refuses_arguments_without_a_digest(subject: Subject) -> None:
    """The digest vouches for the arguments, so it cannot be anything."""
    with pytest.raises(DatabaseError, match="effect_args_sha256_form"), transaction.atomic():
        subject.begin(args_sha256="none")
    with pytest.raises(NotCanonicalError):
        digest_of({"to": b"bytes"})


@pytest.mark.parametrize(("source", "target"), list(itertools.product(EffectState, EffectState)))
def test_trigger_knows_the_same_edges_as_the_table(
    subject: Subject, source: EffectState, target: EffectState
) -> None:
    """The database refuses every other edge even from psql; open acts may stay where they are."""
    in_state(subject, source)
    settled = "now()" if target in SETTLED else "NULL"
    allowed = target in EDGES[source] or (source == target and source in OPEN_STATES)
    statement = f"UPDATE ledger_app_effect SET state = %s, settled_at = {settled}"
    with connection.cursor() as cursor:
        if allowed:
            cursor.execute(statement, [target])
            return
        with pytest.raises(DatabaseError, match="refused"), transaction.atomic():
            cursor.execute(statement, [target])
    assert is_allowed(source, source)


@pytest.mark.parametrize(
    "change",
    [
        "fence = fence - 1",
        "attempts = attempts - 1",
        "tenant_id = gen_random_uuid()",
        "task_id = gen_random_uuid()",
        "step_key = 'x'",
        "key = 'x'",
        "kind = 'opaque'",
        "tool = 'x'",
        "target = 'x'",
        "args_sha256 = repeat('0', 64)",
        "created_at = created_at - interval '1 day'",
    ],
)
def test_trigger_refuses_another_act_and_an_older_fence(subject: Subject, change: str) -> None:
    """What the act is never changes; the fence and the attempts only grow."""
    subject.begin(fence=3)
    with pytest.raises(DatabaseError, match="refused"), transaction.atomic():
        connection.cursor().execute(f"UPDATE ledger_app_effect SET {change}")


def test_trigger_refuses_another_response_after_success(subject: Subject) -> None:
    """Compensating an act does not rewrite what it had answered."""
    in_state(subject, EffectState.SUCCEEDED)
    with pytest.raises(DatabaseError, match="refused"), transaction.atomic():
        Effect.objects.update(state="compensated", response={"forged": True})
    assert Effect.objects.update(state="compensated") == 1


@pytest.mark.parametrize("state", [s for s in EffectState if s not in {"planned", "begun"}])
def test_trigger_refuses_an_effect_that_starts_at_its_end(
    subject: Subject, state: EffectState
) -> None:
    """Nothing has happened before it was begun."""
    with pytest.raises(DatabaseError, match="begins planned or begun"), transaction.atomic():
        connection.cursor().execute(
            "INSERT INTO ledger_app_effect (tenant_id, task_id, step_key, key, kind, tool, target,"
            " args_sha256, state, attempts, fence, request, begun_at, settled_at)"
            " VALUES (%s, %s, 's', 'k', 'keyed', 't', '', repeat('0', 64), %s, 1, 1, '{}',"
            " now(), now())",
            [subject.tenant_id, subject.task_id, state],
        )


def test_lists_are_paged_and_within_one_tenant(
    subject: Subject, other: Subject, django_assert_num_queries: Any
) -> None:
    """Oldest first, going on by id; another tenant sees nothing."""
    rows = [subject.begin(key=f"k{n}", step_key=f"s{n}") for n in range(3)]
    effects.succeed(**{**subject.settle, "key": "k0"}, fence=1, response=None)
    owner = {"tenant_id": subject.tenant_id, "task_id": subject.task_id}
    with django_assert_num_queries(1):
        page = list_effects(
            tenant_id=owner["tenant_id"], task_id=owner["task_id"], after_id=rows[0].id, limit=1
        )
    assert [row.key for row in page] == ["k1"]
    assert [row.key for row in list_open_effects(tenant_id=subject.tenant_id)] == ["k1", "k2"]
    assert count_effects(**owner) == {EffectState.SUCCEEDED: 1, EffectState.BEGUN: 2}
    assert list_effects(tenant_id=other.tenant_id, task_id=subject.task_id) == []
    assert list_open_effects(tenant_id=other.tenant_id) == []


def test_summaries_page_through_every_effect(
    subject: Subject, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    """Nothing is cut off at the size of a page, and large responses are not read."""
    monkeypatch.setattr("ledger_app.queries.PAGE_LIMIT", 2)
    for n in range(5):
        subject.begin(key=f"k{n}", step_key=f"s{n}")
    effects.succeed(**{**subject.settle, "key": "k1"}, fence=1, response="x" * 1000)
    owner: dict[str, Any] = {"tenant_id": subject.tenant_id, "task_id": subject.task_id}
    with django_assert_num_queries(4):
        keys = [row.key for row in iterate_effect_summaries(**owner)]
    assert keys == ["k0", "k1", "k2", "k3", "k4"]
    done = list(iterate_effect_summaries(**owner, states=[EffectState.SUCCEEDED]))
    assert [(row.key, row.state) for row in done] == [("k1", EffectState.SUCCEEDED)]
    assert [row.key for row in list_newest_effect_summaries(**owner, limit=2)] == ["k3", "k4"]


def test_open_effects_of_an_ending_task_are_put_in_doubt(subject: Subject) -> None:
    """Whoever ends a task says that a call may still be under way; settled acts stay."""
    for n in range(3):
        subject.begin(key=f"k{n}", step_key=f"s{n}", fence=n)
    effects.succeed(**{**subject.settle, "key": "k0"}, fence=0, response=None)
    rows = effects.doubt_open(
        tenant_id=subject.tenant_id, task_id=subject.task_id, reason="cancelled", actor="user:7"
    )
    assert [(row.key, row.state, row.fence) for row in rows] == [
        ("k1", "in_doubt", 1),
        ("k2", "in_doubt", 2),
    ]
    assert actions(subject)[-2:] == ["effect.in_doubt"] * 2
    again = effects.doubt_open(
        tenant_id=subject.tenant_id, task_id=subject.task_id, reason="cancelled"
    )
    assert again == []
    assert audit.verify(subject.stream).ok


@pytest.mark.django_db(transaction=True)
def test_concurrent_begins_make_one_row(subject: Subject) -> None:
    """Eight deliveries of one step begin one effect eight times."""
    ready, rows = threading.Barrier(8), []

    def begin() -> None:
        try:
            ready.wait(timeout=30)
            rows.append(subject.begin())
        finally:
            connection.close()

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(row.attempts for row in rows) == list(range(1, 9))
    assert Effect.objects.count() == 1
    assert audit.verify(subject.stream).ok


@pytest.mark.django_db(transaction=True)
def test_settlement_that_waited_for_a_newer_fence_is_refused(subject: Subject) -> None:
    """A zombie that is already waiting for the row writes nothing once the new owner commits."""
    subject.begin(fence=1)
    outcome: list[object] = []

    def settle_as_zombie() -> None:
        try:
            effects.succeed(**subject.settle, fence=1, response={"zombie": True})
        except StaleFenceError as error:
            outcome.append(error.fields["stored_fence"])
        finally:
            connection.close()

    zombie = threading.Thread(target=settle_as_zombie)
    with transaction.atomic():
        subject.begin(fence=2)
        zombie.start()
        wait_for_a_waiting_writer()
    zombie.join()
    assert outcome == [2]
    stored = find_effect(tenant_id=subject.tenant_id, key=subject.key)
    assert stored is not None
    assert (stored.state, stored.fence) == ("begun", 2)


def wait_for_a_waiting_writer() -> None:
    """Return once another session waits for a lock that this one holds."""
    with connection.cursor() as cursor:
        for _ in range(100_000):
            cursor.execute(
                # Not pg_stat_activity: a transaction sees one snapshot of that.
                "SELECT FROM pg_locks WHERE NOT granted"
                " AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
            )
            if cursor.rowcount:
                return
    raise AssertionError("nobody waits")
