"""What the faults happen to: servers of its own, a fleet, one tenant's people, the outside world."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg

from runtime_project.local.postgres import SUPERUSER
from runtime_project.local.services import LocalServices
from tests.support.outside import Outside
from tests.support.workers import TIMES, Fleet

WORKERS = 3
CHILDREN = 6


@dataclass
class World:
    """Servers, processes and people of one run.

    Attributes:
        admitted: every task that was accepted, in order.
        calls: every steering command as its sender saw it, by task.
        unanswered: key and script of an admission whose answer never came.
    """

    folder: Path
    services: LocalServices
    outside: Outside
    fleet: Fleet
    tenant_id: UUID
    people: dict[str, Any]
    admitted: list[UUID] = field(default_factory=list)
    calls: dict[UUID, list[Any]] = field(default_factory=dict)
    unanswered: tuple[str, list[dict[str, Any]]] | None = None
    children: int = CHILDREN

    @property
    def switches(self) -> Path:
        """The folder whose files switch faults of the processes on."""
        return self.fleet.folder / "sync"

    def switch(self, name: str, *, on: bool) -> None:
        """Turn one of the faults of `tests.support.faulty` on or off."""
        file = self.switches / name
        if on:
            file.touch()
        else:
            file.unlink(missing_ok=True)

    def as_superuser(self, statement: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
        """Run one statement that no trigger and no privilege hinders; return its rows."""
        url = self.services.postgres.url(user=SUPERUSER)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET session_replication_role = replica")
            cursor = connection.execute(statement, parameters)
            return cursor.fetchall() if cursor.description else []

    def submit(self, script: list[dict[str, Any]]) -> UUID | None:
        """Admit a task; None when the database was away.

        The answer of a commit may be lost with the server: the same key asks for it afterwards.
        """
        from django.db import DatabaseError, InterfaceError, connection

        from tasks_app.admission import tasks

        key = self.unanswered or (str(uuid4()), script)
        self.unanswered = key
        try:
            admitted = tasks.admit_task(
                self.people["submitter"],
                workflow="scripted",
                goal={"script": key[1]},
                source="code",
                idempotency_key=key[0],
            )
        except (DatabaseError, InterfaceError):
            connection.close()
            return None
        self.unanswered = None
        self.admitted.append(admitted.task_id)
        return admitted.task_id


@contextmanager
def built() -> Iterator[World]:
    """Start servers, database, people and processes; end them and remove the folder."""
    folder = Path(tempfile.mkdtemp(prefix="perdure-faults-"))
    fleet: Fleet | None = None
    try:
        with LocalServices(folder, environment={}) as services, Outside() as outside:
            os.environ.update(_variables(services, folder))
            _migrate()
            fleet = Fleet(
                folder / "fleet",
                application="tests.support.faulty",
                variables={"RUNTIME_BUSY_SLICE_SECONDS": "1"},
            )
            tenant_id, people = _populated()
            fleet.start(workers=WORKERS, concurrency=CHILDREN)
            yield World(folder, services, outside, fleet, tenant_id, people)
    finally:
        if fleet is not None:
            fleet.stop()
        with suppress(ImportError):
            from django.db import connections

            connections.close_all()
        shutil.rmtree(folder, ignore_errors=True)


def keep_logs(world: World, folder: Path) -> None:
    """Copy the processes' logs to where they outlive the run."""
    folder.mkdir(parents=True, exist_ok=True)
    for log in world.fleet.folder.glob("*.log"):
        shutil.copy(log, folder)


def _variables(services: LocalServices, folder: Path) -> dict[str, str]:
    return {
        **services.environment(),
        **TIMES,
        "DJANGO_SETTINGS_MODULE": "runtime_project.settings_test",
        "RUNTIME_HOME": str(folder),
        "RUNTIME_ARTIFACT_ROOT": str(folder / "fleet" / "artifacts"),
        "RUNTIME_LOG_LEVEL": "ERROR",
    }


def _migrate() -> None:
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0, interactive=False)


def _populated() -> tuple[UUID, dict[str, Any]]:
    from tasks_app.admission import principal
    from tests import factories

    tenant = factories.make_tenant(slug="faults")
    roles = {"submitter": "submitter", "anna": "operator", "bert": "operator"}
    roles |= {"approver1": "approver", "approver2": "approver", "approver3": "approver"}
    people = {
        name: principal.from_user(factories.make_member(tenant, role), tenant.id)
        for name, role in roles.items()
    }
    return tenant.id, people
