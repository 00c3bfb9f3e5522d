"""What the tests of the ledger share: one task's ids and short ways to write about it."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.db import connection

from ledger_app.domain.audit import task_stream
from ledger_app.domain.canonical import digest_of
from ledger_app.queries import EffectRow
from ledger_app.services import audit, effects

GUARDED_TABLES = (
    "ledger_app_auditentry",
    "ledger_app_auditstream",
    "ledger_app_receipt",
    "ledger_app_usage",
    "ledger_app_effect",
)


@dataclass
class Subject:
    """A task as the ledger sees it: nothing but ids."""

    tenant_id: uuid.UUID = field(default_factory=uuid.uuid4)
    task_id: uuid.UUID = field(default_factory=uuid.uuid4)

    @property
    def stream(self) -> str:
        return task_stream(self.task_id)

    @property
    def key(self) -> str:
        return f"{self.task_id}:publish"

    @property
    def settle(self) -> dict[str, Any]:
        return {"tenant_id": self.tenant_id, "task_id": self.task_id, "key": self.key}

    def append(self, **overrides: Any) -> int:
        values = {
            "stream": self.stream,
            "tenant_id": self.tenant_id,
            "actor": "user:7",
            "action": "steering.applied",
            "target": f"task:{self.task_id}",
            "details": {"reason": "looked wrong"},
            **overrides,
        }
        return audit.append(**values)

    def begin(self, **overrides: Any) -> EffectRow:
        once = {"fence": 1, "approval_id": None, "request": {"name": "report.html"}}
        values = {
            "tenant_id": self.tenant_id,
            "task_id": self.task_id,
            "step_key": "publish",
            "key": self.key,
            "kind": "keyed",
            "tool": "contracts.publish",
            "target": "folder",
            "args_sha256": digest_of(["report.html"]),
            **once,
            **overrides,
        }
        call = {name: values.pop(name) for name in once}
        return effects.begin(effects.Act(**values), **call)


@pytest.fixture
def subject() -> Subject:
    return Subject()


@pytest.fixture
def other() -> Subject:
    """A task of another tenant."""
    return Subject()


@pytest.fixture
def tamper(db: None) -> Callable[..., None]:
    """Run SQL as the database's owner with every guard switched off."""

    def run(statement: str, *parameters: Any) -> None:
        with guards_off(), connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            assert cursor.rowcount != 0, "the statement tampered with nothing"

    return run


@contextmanager
def guards_off() -> Iterator[None]:
    with connection.cursor() as cursor:
        for table in GUARDED_TABLES:
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        yield
        for table in GUARDED_TABLES:
            cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")
