"""Real Celery prefork workers and sweepers against the test database, to be killed at will."""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
from django.db import connection
from psycopg.conninfo import make_conninfo
from typing_extensions import override

from runtime_project.local import processes
from runtime_project.local.processes import wait_until

ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS = 60.0

# Long enough that a busy machine does not lose a lease, short enough to wait for one to end.
TIMES = {
    "RUNTIME_LEASE_SECONDS": "6",
    "RUNTIME_HEARTBEAT_SECONDS": "0.5",
    "RUNTIME_GRACE_SECONDS": "0.3",
    "RUNTIME_OUTAGE_GRACE_SECONDS": "4",
    "RUNTIME_SWEEP_SECONDS": "0.1",
    "RUNTIME_SLICE_STEPS": "100",
    # Tests count the passes of one slice; that it makes room for others is tested elsewhere.
    "RUNTIME_BUSY_SLICE_SECONDS": "20",
    "RUNTIME_OUTBOX_SWEEP_SECONDS": "0.5",
    "DATABASE_IDLE_TRANSACTION_SECONDS": "3",
}


def environment(folder: Path) -> dict[str, str]:
    """Return the variables of a process of the project that uses this test's database."""
    return {
        **os.environ,
        "DATABASE_URL": make_conninfo(
            os.environ["DATABASE_URL"], dbname=connection.settings_dict["NAME"]
        ),
        "DATABASE_ROLE": "rt_worker",
        "DATABASE_CONN_MAX_AGE": "600",
        "DJANGO_SETTINGS_MODULE": "runtime_project.settings_test",
        "RUNTIME_TEST_ASSISTANT": "1",
        "RUNTIME_ARTIFACT_ROOT": str(folder / "artifacts"),
        "RUNTIME_SYNCPOINT_DIR": str(folder / "sync"),
        "PYTHONUNBUFFERED": "1",
        **TIMES,
    }


class ProjectProcess:
    """One process of the project with its log; the leader of a group of its own."""

    def __init__(self, name: str, folder: Path, command: list[str], env: Mapping[str, str]) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("ab") as log:
            self.process: subprocess.Popen[bytes] = processes.start_bound(
                [sys.executable, *command],
                log=log,
                death_signal=signal.SIGKILL,
                env={**env, "RUNTIME_PROCESS": name},
                cwd=ROOT,
            )

    @property
    def pid(self) -> int:
        """The parent's pid; also the number of its process group."""
        return self.process.pid

    def is_running(self) -> bool:
        """Tell whether the process has not ended."""
        return self.process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the parent alone."""
        self.process.send_signal(number)

    def kill_group(self) -> None:
        """SIGKILL parent and children at once, as a machine's end would."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(10)

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield what the process logged, oldest first; lines that are no JSON are left out."""
        for line in self.log.read_text(errors="replace").splitlines():
            with suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict):
                    yield record

    def wait_record(self, matches: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        """Wait until a matching record was logged; return the first."""
        found: list[dict[str, Any]] = []

        def logged() -> bool:
            found[:] = [record for record in self.records() if matches(record)]
            return bool(found) or not self.is_running()

        wait_until(logged, seconds=READY_SECONDS)
        assert found, f"{self.name} never logged {what}:\n{self.tail()}"
        return found[0]

    def tail(self) -> str:
        """Return the end of the log, for a failing test."""
        return "\n".join(processes.last_lines(self.log, 40))


class Worker(ProjectProcess):
    """A Celery prefork worker; `children` are the processes that run slices."""

    def __init__(
        self,
        name: str,
        folder: Path,
        env: Mapping[str, str],
        *,
        application: str = "runtime_project",
        concurrency: int = 1,
        queue: str = "slices",
    ) -> None:
        command = ["-m", "celery", "-A", application, "worker", "-Q", queue]
        command += ["-c", str(concurrency), "-n", f"{name}@%h", "-l", "INFO"]
        command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        super().__init__(name, folder, command, env)

    def wait_ready(self) -> None:
        """Wait until the worker has said that it takes messages."""
        self.wait_record(lambda record: record["event"].endswith(" ready."), "ready")

    def children(self) -> list[int]:
        """Return the pids of the processes that run slices."""
        return [pid for pid in processes.group_members(self.pid) if pid != self.pid]


class PollingWorker(Worker):
    """`manage.py work`; it needs RUNTIME_POLL_CLAIM in its environment."""

    def __init__(
        self, name: str, folder: Path, env: Mapping[str, str], *, concurrency: int = 2
    ) -> None:
        command = [str(ROOT / "manage.py"), "work", "--processes", str(concurrency)]
        ProjectProcess.__init__(self, name, folder, command, env)

    @override
    def wait_ready(self) -> None:
        self.wait_record(lambda record: record["event"] == "work.ready", "ready")


class Sweeper(ProjectProcess):
    """`manage.py sweep`; it works as soon as it has started."""

    def __init__(self, name: str, folder: Path, env: Mapping[str, str]) -> None:
        super().__init__(name, folder, [str(ROOT / "manage.py"), "sweep"], env)


class WebProcess(ProjectProcess):
    """uvicorn with the whole site, started as the local stack and deploy/ start it."""

    def __init__(
        self, name: str, folder: Path, env: Mapping[str, str], *, port: int | None = None
    ) -> None:
        self.port = port = port or free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = ["-m", "uvicorn", "runtime_project.asgi:application", "--port", str(port)]
        command += ["--lifespan", "on", "--timeout-graceful-shutdown", "5", "--no-access-log"]
        web = {"DATABASE_POOL": "1", "DATABASE_ROLE": "rt_web", "DATABASE_CONN_MAX_AGE": "0"}
        static = {"RUNTIME_STATIC_ROOT": str(folder / "static")}
        super().__init__(name, folder, command, {**env, **web, **static})

    def wait_ready(self) -> None:
        """Wait until it answers."""
        assert wait_until(self._answers, seconds=READY_SECONDS), self.tail()

    def _answers(self) -> bool:
        with suppress(httpx.TransportError):
            answer = httpx.get(f"{self.url}/livez", trust_env=False)
            return bool(answer.status_code == httpx.codes.OK)
        return False


def free_port() -> int:
    """Return a port of this machine that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Fleet:
    """Workers and a sweeper that share one folder of logs, artifacts and sync points."""

    def __init__(
        self,
        folder: Path,
        *,
        application: str = "runtime_project",
        polls: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.env = {**environment(folder), **(variables or {})}
        self._application = application
        self._polls = polls
        self._numbers = itertools.count(1)
        (folder / "sync").mkdir(parents=True, exist_ok=True)
        self.workers: list[Worker] = []
        self.sweepers: list[Sweeper] = []

    def start(self, *, workers: int, concurrency: int = 1) -> None:
        """Start so many workers and a sweeper; return when all workers are ready."""
        self.add_sweeper()
        for worker in [self.add_worker(concurrency=concurrency) for _ in range(workers)]:
            worker.wait_ready()

    def add_worker(self, *, concurrency: int = 1) -> Worker:
        """Start one more worker with so many children; it is not ready yet."""
        name = f"worker{next(self._numbers)}"
        worker = (
            PollingWorker(name, self.folder, self.env)
            if self._polls
            else Worker(
                name,
                self.folder,
                self.env,
                application=self._application,
                concurrency=concurrency,
            )
        )
        self.workers.append(worker)
        return worker

    def add_sweeper(self) -> None:
        """Start a sweeper."""
        self.sweepers.append(Sweeper(f"sweep{next(self._numbers)}", self.folder, self.env))

    def replace_sweeper(self, pid: int) -> None:
        """Start a new sweeper in the place of one that was killed."""
        ended = next(sweeper for sweeper in self.sweepers if sweeper.pid == pid)
        ended.process.wait(10)
        self.sweepers.remove(ended)
        self.add_sweeper()

    def replace(self, worker: Worker) -> None:
        """Start a new worker in the place of one that has ended."""
        self.workers.remove(worker)
        self.add_worker()

    def dismiss(self, worker: Worker) -> None:
        """End a worker that is not needed any more, whatever it does."""
        self.workers.remove(worker)
        worker.kill_group()

    def exchange(self, *, workers: int) -> None:
        """End all workers and start so many with what `env` says now; return when they are ready."""
        for worker in list(self.workers):
            self.dismiss(worker)
        for worker in [self.add_worker() for _ in range(workers)]:
            worker.wait_ready()

    def owner_of(self, child: int) -> Worker:
        """Return the worker whose child has this pid."""
        group = os.getpgid(child)
        return next(worker for worker in self.workers if worker.pid == group)

    def stop(self) -> None:
        """End everything at once; what is frozen ends, too."""
        for process in (*self.sweepers, *self.workers):
            process.kill_group()
