"""Embedded PostgreSQL and Redis: real servers, killed and started again."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from runtime_project.local import processes
from runtime_project.local.postgres import SUPERUSER, EmbeddedPostgres, packaged_programs
from runtime_project.local.processes import LocalStackError, ProcessIdentity
from runtime_project.local.services import LocalServices, socket_folder

# Servers are really started and killed here, with the slow real things.
pytestmark = pytest.mark.crash

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder with a short path, as sockets need one."""
    folder = Path(tempfile.mkdtemp(prefix="perdure-local-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def embedded(home: Path) -> LocalServices:
    return LocalServices(home, environment={})


def test_services_keep_data_and_durability_over_a_clean_restart(home: Path) -> None:
    """Data written before a stop is there after the next start; the owner is no superuser."""
    with embedded(home) as services:
        with psycopg.connect(services.database_url) as connection:
            connection.execute("CREATE TABLE note AS SELECT 'kept' AS text")
            settings = "SELECT current_setting('fsync'), current_setting('listen_addresses')"
            assert connection.execute(settings).fetchone() == ("on", "")
            rights = "SELECT rolsuper, rolcreaterole FROM pg_roles WHERE rolname = current_user"
            assert connection.execute(rights).fetchone() == (False, True)
        client = redis.Redis.from_url(services.redis_url)
        client.set("note", "kept")
        assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
        assert client.config_get("port")["port"] == "0"
        client.close()

    with embedded(home) as services:
        with psycopg.connect(services.database_url) as connection:
            assert connection.execute("SELECT text FROM note").fetchone() == ("kept",)
        client = redis.Redis.from_url(services.redis_url)
        assert client.get("note") == b"kept"
        client.close()


def test_postgres_starts_again_after_kill_with_a_stale_lock_of_a_living_pid(home: Path) -> None:
    """A killed server's lock file never blocks the next start, even when its pid lives again."""
    with embedded(home) as services:
        with psycopg.connect(services.database_url) as connection:
            connection.execute("CREATE TABLE note AS SELECT 'kept' AS text")
        assert services.postgres.process is not None
        services.postgres.process.kill()
        services.postgres.process.wait()
        lock = services.postgres.data / "postmaster.pid"
        lines = lock.read_text().splitlines()
        lock.write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")

    with embedded(home) as again, psycopg.connect(again.database_url) as connection:
        assert connection.execute("SELECT text FROM note").fetchone() == ("kept",)


def test_services_revive_what_was_killed(home: Path) -> None:
    """A server that was killed while the stack runs is started again with its data."""
    with embedded(home) as services:
        with psycopg.connect(services.database_url) as connection:
            connection.execute("CREATE TABLE note AS SELECT 'kept' AS text")
        assert services.revive() == []
        for server in (services.postgres, services.redis):
            assert server.process is not None
            server.process.kill()
            server.process.wait()
        assert services.revive() == ["Redis", "PostgreSQL"]
        with psycopg.connect(services.database_url) as connection:
            assert connection.execute("SELECT text FROM note").fetchone() == ("kept",)


def test_services_end_when_their_owner_is_killed_and_can_be_started_again(home: Path) -> None:
    """SIGKILL of the owner leaves no server behind, and the next owner gets the data."""
    code = (
        "import sys; from pathlib import Path\n"
        "from runtime_project.local.services import LocalServices\n"
        "s = LocalServices(Path(sys.argv[1]), environment={}).start()\n"
        "print(s.postgres.process.pid, s.redis.process.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code, str(home)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner:
        assert owner.stdout is not None
        identities = [ProcessIdentity.of(int(pid)) for pid in owner.stdout.readline().split()]
        assert all(identities)
        owner.kill()
    gone = processes.wait_until(
        lambda: not any(i.is_alive() for i in identities if i is not None), seconds=10
    )
    assert gone
    with embedded(home) as services, psycopg.connect(services.database_url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_services_of_one_folder_have_one_holder(home: Path) -> None:
    """A second holder is refused and does not disturb the first."""
    with embedded(home) as services:
        with pytest.raises(LocalStackError, match="another process runs the servers"):
            embedded(home).start()
        with psycopg.connect(services.database_url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


def test_services_named_in_the_environment_win(home: Path) -> None:
    """With both addresses given, nothing is started and nothing is created but the folder."""
    given = {"DATABASE_URL": "postgresql://elsewhere/x", "REDIS_URL": "redis://elsewhere"}
    with LocalServices(home, environment=given) as services:
        assert services.environment() == given
        assert services.postgres.process is None
        assert services.redis.process is None


def test_sockets_of_a_long_path_lie_in_a_short_private_folder() -> None:
    """A socket path never exceeds what the system allows; two folders never share one."""
    long = [Path(tempfile.gettempdir()) / ("x" * 120) / str(number) for number in range(2)]
    folders = [socket_folder(path) for path in long]
    try:
        assert folders[0] != folders[1]
        for folder in folders:
            assert len(os.fsencode(folder / "postgres" / ".s.PGSQL.5432")) < 104
            assert folder.stat().st_mode & 0o066 == 0
    finally:
        for folder in folders:
            folder.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to give up its rights")
def test_postgres_as_root_works_below_a_closed_folder_without_opening_it() -> None:
    """Started by root, the server runs as somebody else and no parent folder changes its mode."""
    closed = Path(tempfile.mkdtemp(prefix="perdure-closed-"))
    package = packaged_programs().parent.parent
    programs = closed / package.name / "pginstall18" / "bin"
    shutil.copytree(packaged_programs().parent, programs.parent)
    shutil.copytree(f"{package}.libs", closed / f"{package.name}.libs")
    server = EmbeddedPostgres(
        closed / "postgres", closed / "sockets", closed / "log", programs=programs
    )
    try:
        server.start()
        with psycopg.connect(server.url(user=SUPERUSER), autocommit=True) as connection:
            connection.execute("CREATE TABLE note AS SELECT 1 AS n")
            connection.execute("CHECKPOINT")
        assert server.process is not None
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        uids = next(x for x in status.splitlines() if x.startswith("Uid:")).split()[1:]
        assert "0" not in uids
        assert closed.stat().st_mode & 0o777 == 0o700
    finally:
        server.stop()
        shutil.rmtree(closed)


def test_launcher_refuses_to_run_for_a_dead_parent() -> None:
    """A command whose parent ended before it began is never left running alone."""
    line = processes.launch_command(["/bin/true"], death_signal=signal.SIGKILL)
    line[line.index("--parent") + 1] = "1"
    answer = subprocess.run(line, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert "parent ended" in answer.stderr
