"""The local stack: servers, migrations, web, two workers, sweeper, as one thing to start and stop."""

import os
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn, Self

import psycopg

from runtime_project import env
from runtime_project.bootstrap import step
from runtime_project.local import blame, state
from runtime_project.local.commands import CommandRunner
from runtime_project.local.preparation import (
    WEB_ROLE,
    WORKER_ROLE,
    Accounts,
    has_roles,
    prepare,
)
from runtime_project.local.processes import LocalStackError, ProcessIdentity
from runtime_project.local.services import LocalServices, prepare_home
from runtime_project.local.supervisor import Program, Supervisor

WORKERS = ("worker1", "worker2")
READY_SECONDS = 60.0
STOP_SECONDS = 7.0


@dataclass(frozen=True)
class StackOptions:
    """What a person may choose when starting the local stack.

    `listener` holds the port: only the stack's own web process gets it, so whoever answers there
    is ours.
    """

    home: Path
    listener: socket.socket
    host: str = "127.0.0.1"
    input_folders: tuple[Path, ...] = ()
    verbose: bool = False


class LocalStack:
    """Starts everything in order and stops it in reverse order; owns every process it starts."""

    def __init__(self, options: StackOptions, report: Callable[[str], None]) -> None:
        self.options = options
        self.home = options.home
        self.logs = options.home / "logs"
        self.services = LocalServices(options.home)
        self.commands = CommandRunner(self.logs, self.environment)
        self.accounts = Accounts({}, {})
        self._takes_roles = False
        self._input_folders: list[Path] = []
        self._report = report
        self.supervisor = Supervisor(
            self.logs,
            report,
            show_log=report if options.verbose else None,
            watch=self._keep_servers,
        )

    @property
    def url(self) -> str:
        """Where pages and REST answer."""
        host = "127.0.0.1" if self.options.host in {"0.0.0.0", "::"} else self.options.host  # noqa: S104
        return f"http://{host}:{self.options.listener.getsockname()[1]}"

    @property
    def published(self) -> Path:
        """The folder that tasks of this stack may publish to."""
        return self.home / "published"

    @property
    def inputs(self) -> Path:
        """The folder that tasks of this stack may always read."""
        return self.home / "input"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Return when the web process says it is ready.

        Raises:
            LocalStackError: naming the step, its log and what to try.
        """
        prepare_home(self.home)
        for folder in (self.published, self.inputs, self.home / "artifacts"):
            folder.mkdir(mode=0o700, exist_ok=True)
        self._input_folders = self._remember_inputs()
        with step("PostgreSQL and Redis"):
            self.services.start()
        with step("Database schema, accounts, static files"):
            self.accounts = prepare(self.commands, self.home)
            self._takes_roles = has_roles(self.services.database_url)
        with step(f"Web, {len(WORKERS)} workers, sweeper"):
            self._start_programs()
        state.announce(self.home, self._announcement())

    def stop(self) -> None:
        """Stop everything, children first; nothing is left running."""
        self.supervisor.stop(seconds=STOP_SECONDS)
        self.services.stop()
        own = state.find_running(self.home)
        if own is not None and own.supervisor.pid == os.getpid():
            state.withdraw(self.home)

    def kill(self) -> None:
        """End everything at once; the embedded servers still close their files in order."""
        self.supervisor.kill_all()
        self.services.stop()
        state.withdraw(self.home)

    def stay_up(self) -> NoReturn:
        """Keep everything running until somebody ends this process."""
        while True:
            self.supervisor.wait(lambda: False, seconds=3600)

    def summary(self) -> str:
        """Return what a person needs to go on: addresses, logins, a key."""
        lines = [f"Open {self.url}/ (admin: {self.url}/admin/, REST: {self.url}/runtime/docs)"]
        lines += [f"  {name:<10} {password}" for name, password in self.accounts.logins.items()]
        if "submitter" in self.accounts.api_keys:
            lines.append(f"  API key of submitter: {self.accounts.api_keys['submitter']}")
        lines.append(f"  also in {self.home / 'credentials'}")
        return "\n".join(lines)

    def count_live_tasks(self) -> int:
        """Return how many tasks will go on by themselves at the next start."""
        with (
            suppress(psycopg.Error),
            psycopg.connect(self.services.database_url, connect_timeout=2) as connection,
        ):
            row = connection.execute(
                "SELECT count(*) FROM tasks_app_task WHERE status IN"
                " ('queued', 'working', 'pausing', 'recovering')"
            ).fetchone()
            return int(row[0]) if row else 0
        return 0

    def environment(self, process: str = "", role: str = "") -> dict[str, str]:
        """Return the variables of one process of this stack, on top of our own environment."""
        given = os.environ.get
        hosts = {"localhost", "127.0.0.1", "[::1]", self.options.host}
        local = {
            **self.services.environment(),
            "DJANGO_SETTINGS_MODULE": "runtime_project.settings",
            "DJANGO_SECRET_KEY": state.secret_key(self.home),
            "DJANGO_ALLOWED_HOSTS": ",".join(sorted(hosts)),
            "RUNTIME_PROFILE": "demo",
            "RUNTIME_HOME": str(self.home),
            "RUNTIME_APPS": given("RUNTIME_APPS", ""),
            "MCP_OAUTH": given("MCP_OAUTH", "1"),
            "MCP_RESOURCE_URL": given("MCP_RESOURCE_URL", f"{self.url}/mcp"),
            "RUNTIME_ARTIFACT_ROOT": str(self.home / "artifacts"),
            "RUNTIME_STATIC_ROOT": str(self.home / "static"),
            "RUNTIME_INPUT_ROOTS": _paths(self._input_folders, given("RUNTIME_INPUT_ROOTS")),
            "RUNTIME_PUBLISH_ROOTS": _paths([self.published], given("RUNTIME_PUBLISH_ROOTS")),
        }
        if process:
            local |= {"RUNTIME_PROCESS": process, "PYTHONUNBUFFERED": "1"}
        if role and self._takes_roles:
            local["DATABASE_ROLE"] = role
        return local

    def _remember_inputs(self) -> list[Path]:
        """Return the folders that tasks may read, also for tasks of earlier runs that go on."""
        file = self.home / "input-folders"
        known = [Path(line) for line in file.read_text().splitlines()] if file.exists() else []
        folders = list(dict.fromkeys([self.inputs, *known, *self.options.input_folders]))
        file.write_text("".join(f"{folder}\n" for folder in folders))
        return folders

    def _keep_servers(self) -> None:
        for name in self.services.revive():
            self._report(f"{name} had ended and was started again")

    def _start_programs(self) -> None:
        for program in self._programs():
            self.supervisor.add(program)
        ready = self.supervisor.wait(self._is_ready, seconds=READY_SECONDS)
        if not ready:
            raise LocalStackError(
                "the web process is not ready",
                cause="it cannot reach the database, or its schema is older than the code",
                remedy="python3 manage.py up -v",
                log=self.supervisor.log("web"),
            )

    def _is_ready(self) -> bool:
        if self.supervisor.has_ended("web"):
            log = self.supervisor.log("web")
            cause, remedy = blame.find_cause(log)
            raise LocalStackError(
                "the web process ended while starting", cause=cause, remedy=remedy, log=log
            )
        return is_ready(self.url)

    def _programs(self) -> list[Program]:
        def program(name: str, role: str, more: Mapping[str, str], *command: str) -> Program:
            environment = {**os.environ, **self.environment(name, role), **more}
            return Program(name, [sys.executable, *command], environment, state.ROOT)

        descriptor = self.options.listener.fileno()
        web = ("-m", "runtime_project.local.web", str(descriptor))
        kept = {"DATABASE_CONN_MAX_AGE": "600"}
        return [
            replace(program("web", WEB_ROLE, {"DATABASE_POOL": "1"}, *web), pass_fds=[descriptor]),
            *(program(name, WORKER_ROLE, kept, *worker_command(name)) for name in WORKERS),
            program("sweep", WORKER_ROLE, kept, str(state.ROOT / "manage.py"), "sweep"),
        ]

    def _announcement(self) -> state.RunningStack:
        identity = ProcessIdentity.of(os.getpid())
        if identity is None:
            raise LocalStackError("this process cannot see itself in /proc")
        return state.RunningStack(identity, self.url, self.summary(), self.environment())


def worker_command(name: str) -> list[str]:
    """Return the arguments of one worker: Celery's, or with RUNTIME_POLL_CLAIM the polling one's."""
    if env.flag("RUNTIME_POLL_CLAIM"):
        return [str(state.ROOT / "manage.py"), "work", "--processes", "2"]
    command = ["-m", "celery", "-A", "runtime_project", "worker", "-Q", "slices", "-c", "2"]
    command += ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "INFO"]
    return [*command, "-n", f"{name}@%h"]


def _paths(folders: Sequence[Path], given: str | None) -> str:
    return os.pathsep.join([*map(str, folders), *([given] if given else [])])


def is_ready(url: str) -> bool:
    """Ask the readiness page once."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"{url}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
