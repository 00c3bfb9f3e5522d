"""Rules about the database as the migrations leave it: keys, triggers, indexes, no drift."""

import ast
import re
from collections.abc import Iterator
from hashlib import sha256
from io import StringIO
from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection, models
from django.db.migrations.executor import MigrationExecutor

from tasks_app.domain.states import EDGES
from tasks_app.models import ddl
from tests.architecture.sources import ROOT, product_files, tree

OURS = ("tasks_app", "ledger_app")


def _rows(sql: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


@pytest.mark.django_db
def test_models_and_migrations_agree() -> None:
    """`makemigrations --check` finds nothing to write."""
    output = StringIO()
    try:
        call_command("makemigrations", check=True, dry_run=True, stdout=output)
    except SystemExit:
        pytest.fail(output.getvalue(), pytrace=False)


@pytest.mark.django_db
def test_composite_keys_are_in_the_database() -> None:
    """S20: each reference that models/ddl.py lists is a foreign key on (tenant_id, x_id)."""
    expected = {
        (child, ("tenant_id", column), parent, ("tenant_id", "id"))
        for child, column, parent in ddl.COMPOSITE_KEYS
    }
    assert _foreign_keys() >= expected


def _foreign_keys() -> set[tuple[str, tuple[str, ...], str, tuple[str, ...]]]:
    rows = _rows(
        """
        SELECT c.conrelid::regclass::text, c.confrelid::regclass::text,
          (SELECT array_agg(a.attname::text ORDER BY k.n) FROM unnest(c.conkey) WITH ORDINALITY k(o, n)
            JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.o),
          (SELECT array_agg(a.attname::text ORDER BY k.n) FROM unnest(c.confkey) WITH ORDINALITY k(o, n)
            JOIN pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.o)
        FROM pg_constraint c WHERE c.contype = 'f' AND c.convalidated
        """
    )
    return {
        (str(child), tuple(ours), str(parent), tuple(theirs))
        for child, parent, ours, theirs in rows
    }


def test_every_reference_between_tenant_rows_is_composite() -> None:
    """S20: no model can point at another tenant's row, since each pointer is in ddl.py."""
    listed = {(child, column) for child, column, _ in ddl.COMPOSITE_KEYS}
    missing = [
        f"{model._meta.db_table}.{field.column}"
        for model, field in _tenant_references()
        if (model._meta.db_table, field.column) not in listed
    ]
    assert missing == []


def test_no_plain_key_stands_beside_a_composite_one() -> None:
    """A reference that the composite key guards needs no second, single-column key."""
    doubled = [
        f"{model._meta.db_table}.{field.column}"
        for model, field in _tenant_references()
        if field.db_constraint  # type: ignore[attr-defined]
    ]
    assert doubled == []


def _tenant_references() -> Iterator[tuple[type[models.Model], "models.ForeignKey[object]"]]:
    tenant = apps.get_model("tasks_app", "Tenant")
    tenant_rows = {
        model
        for label in OURS
        for model in apps.get_app_config(label).get_models()
        if model is not tenant and any(field.name == "tenant" for field in model._meta.fields)
    }
    for model in tenant_rows:
        for field in model._meta.fields:
            if isinstance(field, models.ForeignKey) and field.related_model in tenant_rows:
                yield model, field


@pytest.mark.django_db
def test_edge_trigger_knows_exactly_the_edges_of_the_table() -> None:
    """E30: the array in the trigger's source equals domain/states.py."""
    [(source,)] = _rows("SELECT prosrc FROM pg_proc WHERE proname = 'tasks_app_guard_task'")
    assert ddl.edges_literal() in str(source)
    edges = set(re.findall(r"'(\w+>\w+)'", ddl.edges_literal()))
    assert edges == {f"{source}>{target}" for source in EDGES for target in EDGES[source]}


# What the newest migration of each text was made with. Migrations call the builders of models/ddl.py,
# so a changed text would reach new databases only: write a migration that replaces the old objects,
# then put the new digest here.
MIGRATED = {
    "composite_key_sql": "28043455a5188db1",
    "edge_trigger_sql": "d1b169cc24315982",
    "append_only_sql": "f36e70cf3f710fdd",
    "storage_sql": "6b77d3c1a1865c8c",
    "pruning_sql": "f2ef4cb6f98449d0",
}


@pytest.mark.parametrize("builder", MIGRATED)
def test_changed_ddl_comes_with_a_migration(builder: str) -> None:
    """A text that migrations applied does not change without one that carries the change."""
    text = "\0".join(getattr(ddl, builder)())
    assert sha256(text.encode()).hexdigest()[:16] == MIGRATED[builder]


@pytest.mark.django_db
def test_triggers_are_as_the_migrations_say() -> None:
    """Guards on tasks and append-only histories exist and are enabled."""
    expected = {
        ("tasks_app_task", "task_guard"),
        ("tasks_app_task", "task_admission_final"),
        ("tasks_app_checkpoint", "tasks_app_checkpoint_kept"),
        *((table, f"{table}_final") for table in ddl.APPEND_ONLY),
    }
    enabled = _rows(
        "SELECT tgrelid::regclass::text, tgname::text FROM pg_trigger"
        " WHERE NOT tgisinternal AND tgenabled = 'O'"
    )
    assert {(str(table), str(name)) for table, name in enabled} >= expected


@pytest.mark.django_db
def test_hot_tables_leave_room_for_heap_only_updates() -> None:
    """Fill factors are set, and no index mentions what heartbeats or a step's outcome write."""
    options: dict[str, str] = dict(_rows("SELECT relname::text, reloptions::text FROM pg_class"))
    assert "fillfactor=80" in str(options["tasks_app_task"])
    assert "fillfactor=85" in str(options["tasks_app_step"])
    hot = ("lease_expires_at", "progress_", "_seq", "steering_cursor", "updated_at")
    assert _indexes_with(hot, "tasks_app_task") == []
    outcome = ("status", "result", "error", "attempts", "item", "fence", "_at")
    assert _indexes_with(outcome, "tasks_app_step") == []


def _indexes_with(columns: tuple[str, ...], table: str) -> list[str]:
    rows = _rows(f"SELECT indexdef FROM pg_indexes WHERE tablename = '{table}'")
    definitions = [str(text) for (text,) in rows]
    return [text for text in definitions if any(column in text for column in columns)]


def test_every_index_names_the_query_it_serves() -> None:
    """An `models.Index(…)` has a comment line right above it."""
    bare = []
    for path in product_files():
        lines = path.read_text(encoding="utf-8").splitlines()
        bare += [
            f"{path.relative_to(ROOT)}:{node.lineno}"
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Call)
            and ast.unparse(node.func) in {"models.Index", "GinIndex", "BrinIndex"}
            and not lines[node.lineno - 2].lstrip().startswith("#")
        ]
    assert bare == []


@pytest.mark.crash
@pytest.mark.django_db(transaction=True)
def test_migrations_run_backward_and_forward() -> None:
    """All our migrations undo and apply again; the schema afterwards is the same."""
    before = _schema()
    try:
        for label in OURS:
            _migrate(label, None)
    finally:
        executor = MigrationExecutor(connection)
        executor.migrate(executor.loader.graph.leaf_nodes())
    assert _schema() == before


def _migrate(label: str, target: str | None) -> None:
    MigrationExecutor(connection).migrate([(label, target)])


def _schema() -> set[tuple[Any, ...]]:
    """Return columns, constraints, indexes and triggers as text."""
    return {
        *_rows(
            "SELECT table_name, column_name, data_type, is_nullable, column_default"
            " FROM information_schema.columns WHERE table_schema = current_schema()"
        ),
        *_rows(
            "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
        ),
        *_rows("SELECT tablename, indexname, indexdef FROM pg_indexes"),
        *_rows(
            "SELECT tgrelid::regclass::text, pg_get_triggerdef(oid) FROM pg_trigger"
            " WHERE NOT tgisinternal"
        ),
    }
