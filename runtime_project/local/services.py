"""PostgreSQL and Redis for one folder: embedded ones, unless the environment names servers.

One holder at a time: the folder is locked as long as the servers run.
"""

import fcntl
import hashlib
import os
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO

from runtime_project.local import processes
from runtime_project.local.postgres import EmbeddedPostgres
from runtime_project.local.processes import LocalStackError
from runtime_project.local.redis_server import EmbeddedRedis

# A socket's path may have 107 bytes; the longest name we put into the folder has 20.
SOCKET_FOLDER_BYTES = 85


class LocalServices:
    """The two servers the project needs; a context manager that starts and stops them.

    `DATABASE_URL` and `REDIS_URL` in `environment` win over the embedded server of their kind.
    Data stays in `home` between runs, so a run after a crash continues from it.
    """

    def __init__(self, home: Path, *, environment: dict[str, str] | None = None) -> None:
        self.home = home.resolve()
        given = dict(os.environ) if environment is None else environment
        self._external_database = given.get("DATABASE_URL", "")
        self._external_redis = given.get("REDIS_URL", "")
        logs, sockets = self.home / "logs", socket_folder(self.home)
        self.postgres = EmbeddedPostgres(
            self.home / "postgres", sockets / "postgres", logs / "postgres.log"
        )
        self.redis = EmbeddedRedis(self.home / "redis", sockets / "redis", logs / "redis.log")
        self._lock: IO[bytes] | None = None

    @property
    def database_url(self) -> str:
        """The project's database, as its owner."""
        return self._external_database or self.postgres.url()

    @property
    def redis_url(self) -> str:
        """Short-lived events and hints."""
        return self._external_redis or self.redis.url()

    def environment(self) -> dict[str, str]:
        """Return the variables that point the project's settings at these servers."""
        return {"DATABASE_URL": self.database_url, "REDIS_URL": self.redis_url}

    def start(self) -> "LocalServices":
        """Start what is embedded and wait until it answers.

        Raises:
            LocalStackError: another process holds the folder, or a server does not start.
        """
        prepare_home(self.home)
        self._lock = _lock(self.home / "services.lock")
        processes.keep_one_old_log(self.postgres.log)
        processes.keep_one_old_log(self.redis.log)
        try:
            if not self._external_redis:
                self.redis.start()
            if not self._external_database:
                self.postgres.start()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop what was started here; external servers are left alone."""
        self.postgres.stop()
        self.redis.stop()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def revive(self) -> list[str]:
        """Start embedded servers that ended by themselves; return their names.

        Raises:
            LocalStackError: one does not start again.
        """
        ended: list[EmbeddedPostgres | EmbeddedRedis] = [
            server
            for server in (self.redis, self.postgres)
            if server.process is not None and server.process.poll() is not None
        ]
        for server in ended:
            server.start()
        return [server.name for server in ended]

    def __enter__(self) -> "LocalServices":
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def prepare_home(home: Path) -> None:
    """Create the folder for local state: others may pass through it but not list it."""
    home.mkdir(parents=True, exist_ok=True)
    home.chmod(0o711 if os.geteuid() == 0 else 0o700)
    (home / "logs").mkdir(mode=0o700, exist_ok=True)


def socket_folder(home: Path) -> Path:
    """Return a private folder for sockets: inside `home`, or a short one when that is too long."""
    inside = home / "sockets"
    if len(os.fsencode(inside)) <= SOCKET_FOLDER_BYTES:
        return inside
    digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:12]
    short = Path(tempfile.gettempdir()) / f"perdure-{os.geteuid()}-{digest}"
    short.mkdir(mode=0o711, exist_ok=True)
    status = short.lstat()
    if short.is_symlink() or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise LocalStackError(
            f"{short} belongs to somebody else",
            remedy="set RUNTIME_HOME to a folder with a short path",
        )
    return short


def _lock(path: Path) -> IO[bytes]:
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise LocalStackError(
            f"another process runs the servers of {path.parent}",
            remedy="python3 manage.py down",
        ) from error
    return file
