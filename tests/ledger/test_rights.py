"""What the processes' roles may do with the ledger (S33, S106, A33)."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from ledger_app.services import audit, effects, receipts, usage
from ledger_app.sql import READONLY, RUNTIME_ROLES, create_roles_sql, grant_sql, revoke_sql
from tests.ledger.conftest import Subject

pytestmark = pytest.mark.django_db


@contextlib.contextmanager
def acting_as(role: str) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {role}")
        yield
        cursor.execute("RESET ROLE")


def refusal(role: str, statement: str) -> str:
    """Run one statement under a role; return the SQLSTATE it was refused with."""
    with (
        pytest.raises(DatabaseError) as caught,
        transaction.atomic(),
        acting_as(role),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)
    return getattr(caught.value.__cause__, "sqlstate", "")


FORBIDDEN = [
    "UPDATE ledger_app_auditentry SET envelope = ''",
    "UPDATE ledger_app_auditentry SET details = NULL, salt = NULL",
    "DELETE FROM ledger_app_auditentry",
    "TRUNCATE ledger_app_auditentry",
    "INSERT INTO ledger_app_auditentry (stream, seq, at, envelope, details_digest, prev_hash, hash)"
    " SELECT stream, 9, at, envelope, details_digest, hash, hash FROM ledger_app_auditentry",
    "UPDATE ledger_app_auditstream SET head_seq = head_seq + 1",
    "INSERT INTO ledger_app_auditstream VALUES ('x', gen_random_uuid(), 0, '')",
    "DELETE FROM ledger_app_auditstream",
    "SELECT FROM ledger_app_auditstream FOR UPDATE",
    "ALTER TABLE ledger_app_auditentry DISABLE TRIGGER audit_entry_append_only",
    "DROP TRIGGER audit_entry_append_only ON ledger_app_auditentry",
    "DROP TABLE ledger_app_auditentry",
    "SET session_replication_role = replica",
    "CREATE OR REPLACE FUNCTION public.ledger_refuse_change() RETURNS trigger"
    " LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    "ALTER FUNCTION public.ledger_audit_append(text, uuid, text, text, bytea) SECURITY INVOKER",
    "SELECT nextval('ledger_app_auditentry_id_seq')",
    "UPDATE ledger_app_receipt SET outcome = 'failed'",
    "DELETE FROM ledger_app_receipt",
    "TRUNCATE ledger_app_receipt",
    "UPDATE ledger_app_usage SET input_tokens = 0",
    "DELETE FROM ledger_app_usage",
    "TRUNCATE ledger_app_usage",
    "DELETE FROM ledger_app_effect",
    "TRUNCATE ledger_app_effect",
    "CREATE TABLE public.mine (x int)",
]


@pytest.mark.parametrize("role", RUNTIME_ROLES)
@pytest.mark.parametrize("statement", FORBIDDEN)
def test_runtime_roles_cannot_change_the_record(
    subject: Subject, role: str, statement: str
) -> None:
    """The server itself refuses: insufficient privilege, whatever the code does."""
    subject.append()
    assert refusal(role, statement) == "42501"


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT ledger_audit_append('system', gen_random_uuid(), '{}', NULL, NULL)",
        "INSERT INTO ledger_app_usage DEFAULT VALUES",
        "UPDATE ledger_app_effect SET fence = 9",
    ],
)
def test_readonly_role_writes_nothing(statement: str) -> None:
    """Reports read everything and can append nothing."""
    assert refusal(READONLY, statement) == "42501"


@pytest.mark.parametrize("role", RUNTIME_ROLES)
def test_runtime_roles_can_do_their_work(subject: Subject, role: str) -> None:
    """Every writer of the ledger works with the rights of a process."""
    with acting_as(role):
        subject.append()
        subject.begin()
        effects.succeed(**subject.settle, fence=1, response={"ok": True})
        owner: dict[str, Any] = {"tenant_id": subject.tenant_id, "task_id": subject.task_id}
        receipts.put(**owner, outcome="completed", items=[], effects=[])
        usage.record(
            **owner,
            source_id="call-1",
            caller="lead_agent",
            model="m",
            input_tokens=1,
            output_tokens=1,
            cost_micros=0,
            currency="USD",
        )
        assert audit.verify(subject.stream).ok
    with acting_as(READONLY):
        assert audit.verify(subject.stream).ok


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger_app_auditentry SET seq = seq",
        "DELETE FROM ledger_app_auditentry",
        "UPDATE ledger_app_auditstream SET head_seq = head_seq + 2",
        "UPDATE ledger_app_auditstream SET head_seq = head_seq - 1",
        "UPDATE ledger_app_auditstream SET head_seq = head_seq + 1, tenant_id = gen_random_uuid()",
        "DELETE FROM ledger_app_auditstream",
        "UPDATE ledger_app_receipt SET outcome = outcome",
        "DELETE FROM ledger_app_receipt",
        "UPDATE ledger_app_usage SET attributed = true",
        "DELETE FROM ledger_app_usage",
    ],
)
def test_triggers_refuse_even_the_owner(subject: Subject, statement: str) -> None:
    """A slip in a migration or in psql is stopped; only switching triggers off passes."""
    subject.append()
    owner: dict[str, Any] = {"tenant_id": subject.tenant_id, "task_id": subject.task_id}
    receipts.put(**owner, outcome="completed", items=[], effects=[])
    usage.record(
        **owner,
        source_id="call-1",
        caller="lead_agent",
        model="m",
        input_tokens=1,
        output_tokens=1,
        cost_micros=0,
        currency="USD",
    )
    with (
        pytest.raises(DatabaseError, match="append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)


@pytest.mark.parametrize("role", RUNTIME_ROLES)
def test_objects_of_a_caller_cannot_stand_in_for_ours(subject: Subject, role: str) -> None:
    """The function names its tables with their schema and has a fixed search path."""
    with acting_as(role), connection.cursor() as cursor:
        cursor.execute("CREATE TEMP TABLE ledger_app_auditentry (stream text)")
        cursor.execute("SET LOCAL search_path = pg_temp, public")
        assert subject.append() == 1
        cursor.execute("SELECT count(*) FROM pg_temp.ledger_app_auditentry")
        assert cursor.fetchone() == (0,)
        cursor.execute(
            "SELECT count(*) FROM public.ledger_app_auditentry WHERE stream = %s", [subject.stream]
        )
        assert cursor.fetchone() == (1,)


def test_truncate_stays_possible_for_the_owner(subject: Subject) -> None:
    """Flushing a test database works; the runtime roles lack the privilege."""
    subject.append()
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE ledger_app_auditentry, ledger_app_auditstream")
    assert list(audit.verify_all()) == []


def test_roles_are_left_out_where_they_may_not_be_created() -> None:
    """A login without CREATEROLE migrates all the same."""
    with acting_as(RUNTIME_ROLES[0]), connection.cursor() as cursor:
        cursor.execute(create_roles_sql(("rt_never_made",)))
        cursor.execute("SELECT FROM pg_roles WHERE rolname = 'rt_never_made'")
        assert cursor.fetchone() is None


def test_grants_cover_the_table_and_its_sequences() -> None:
    """INSERT on a table with a generated key needs its sequence too; revoking takes both back."""

    def may(verb: str) -> tuple[bool, ...]:
        cursor.execute(
            "SELECT has_table_privilege('rt_web', 'granted', %s),"
            " has_sequence_privilege('rt_web', 'granted_id_seq', 'USAGE')",
            [verb],
        )
        row = cursor.fetchone()
        assert row is not None
        return tuple(row)

    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE granted (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY)"
        )
        cursor.execute(grant_sql("granted", ["SELECT", "INSERT"], ["rt_web"]))
        assert may("INSERT") == (True, True)
        assert may("UPDATE") == (False, True)
        cursor.execute(revoke_sql("granted", ["SELECT", "INSERT"], ["rt_web"]))
        assert may("SELECT") == (False, False)


@pytest.mark.parametrize(
    ("table", "verbs", "roles"),
    [
        ("a; DROP TABLE b", ["SELECT"], ["rt_web"]),
        ("a", ["TRUNCATE"], ["rt_web"]),
        ("a", [], ["rt_web"]),
        ("a", ["SELECT"], ["postgres"]),
        ("a", ["SELECT"], []),
    ],
)
def test_grant_text_takes_known_words_only(table: str, verbs: list[str], roles: list[str]) -> None:
    """The text is executed as it stands, so nothing unknown gets into it."""
    with pytest.raises(ValueError, match=r"name|verbs|roles"):
        grant_sql(table, verbs, roles)
