"""What every section measures with: servers, a fresh database, one tenant, workers."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from runtime_project.local.services import LocalServices
from tests.bench.bare import Bare


@dataclass(frozen=True)
class Person:
    """Somebody who submits and reads: as a principal in this process, by a key over HTTP."""

    principal: Any
    key: str

    @property
    def headers(self) -> dict[str, str]:
        """Return what a request of this person carries."""
        return {"Authorization": f"Bearer {self.key}"}


@dataclass
class World:
    """The set-up of one run.

    Attributes:
        quick: measure less and less exactly.
        submitter: the principal for whom tasks are admitted.
    """

    folder: Path
    database_url: str
    quick: bool
    bare: Bare
    tenant_id: UUID
    submitter: Any

    def submit(self, workflow: str, *, by: Person | None = None, **goal: Any) -> UUID:
        """Admit one task, of the submitter or of somebody else."""
        from tasks_app.admission import tasks

        principal = self.submitter if by is None else by.principal
        return tasks.admit_task(principal, workflow=workflow, goal=goal, source="code").task_id

    def people(self, number: int) -> list[Person]:
        """Return so many new people of a tenant of their own."""
        from tasks_app.admission import principal
        from tests import factories

        tenant = factories.make_tenant()
        members = [factories.make_member(tenant, ["submitter"]) for _ in range(number)]
        return [
            Person(principal.from_user(one, tenant.id), factories.make_api_key(tenant, one)[1])
            for one in members
        ]

    def submit_many(self, workflow: str, goals: list[dict[str, Any]]) -> None:
        """Admit a task for each goal in one call."""
        from tasks_app.admission import tasks
        from tasks_app.workflows import registry

        tasks.submit_many(registry.get_definition(workflow), goals, by=self.submitter)

    def run(self, task_id: UUID) -> None:
        """Run slices in this process until the task has completed.

        Raises:
            RuntimeError: it came to rest in another way.
        """
        from tasks_app.engine import slice_runner
        from tasks_app.models import Task

        for _ in range(1000):
            outcome = slice_runner.run_slice(task_id)
            if outcome == "completed":
                return
        task = Task.objects.all_tenants().get(pk=task_id)
        raise RuntimeError(f"{task_id} is {task.status} and did not complete: {task.error}")

    def environment(self, name: str) -> dict[str, str]:
        """Return the variables of a process of the project that works on this database."""
        return {
            **os.environ,
            "RUNTIME_PROCESS": name,
            "RUNTIME_LOG_LEVEL": "INFO",
            "PYTHONUNBUFFERED": "1",
        }

    def execute(self, statement: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Run one statement beside the project's own connection; return its rows."""
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            cursor = connection.execute(statement, parameters or None)
            return cursor.fetchall() if cursor.description else []


@contextmanager
def built(*, quick: bool) -> Iterator[World]:
    """Start what is needed and make a database that is dropped afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="perdure-bench-"))
    try:
        with LocalServices(folder) as services, _database(services.database_url) as url:
            os.environ.update(_variables(folder, url, services.redis_url))
            _migrate()
            bare = Bare(url)
            try:
                yield _populated(folder, url, bare, quick=quick)
            finally:
                bare.close()
                _let_go()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _database(server_url: str) -> Iterator[str]:
    name = f"perdure_bench_{secrets.token_hex(4)}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield make_conninfo(server_url, dbname=name)
        finally:
            connection.execute(
                sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
            )


def _variables(folder: Path, database_url: str, redis_url: str) -> dict[str, str]:
    return {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "DATABASE_CONN_MAX_AGE": "600",
        "DJANGO_SETTINGS_MODULE": "tests.bench.settings",
        "DJANGO_SECRET_KEY": secrets.token_hex(32),
        "RUNTIME_PROFILE": "demo",
        # A few people stand for many here.
        "RUNTIME_THROTTLE": "0",
        "RUNTIME_HOME": str(folder),
        "RUNTIME_ARTIFACT_ROOT": str(folder / "artifacts"),
        "RUNTIME_LOG_LEVEL": "ERROR",
    }


def _migrate() -> None:
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0, interactive=False)


def _populated(folder: Path, url: str, bare: Bare, *, quick: bool) -> World:
    from tasks_app.admission import principal
    from tests import factories

    tenant = factories.make_tenant(slug="bench")
    user = factories.make_member(tenant, ["submitter", "operator"])
    submitter = principal.from_user(user, tenant.id)
    return World(folder, url, quick, bare, tenant.id, submitter)


def _let_go() -> None:
    from django.db import connections

    from tasks_app.engine import lease

    lease.stop_keeper()
    connections.close_all()
