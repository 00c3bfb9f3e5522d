"""Rules: the scripts of deploy/ do what they say, run for real where no container is needed."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import yaml
from typing_extensions import override

from runtime_project.local import postgres
from runtime_project.local.postgres import EmbeddedPostgres
from tests.architecture.sources import ROOT

DEPLOY = ROOT / "deploy"


def _run(
    command: list[str], *, env: dict[str, str] | None = None, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env={"PATH": os.environ["PATH"], **(env or {})},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of secrets that make-secrets.sh made in a copy of deploy/."""
    folder = tmp_path_factory.mktemp("deploy")
    shutil.copy(DEPLOY / "make-secrets.sh", folder)
    answer = _run(["sh", "make-secrets.sh"], cwd=folder)
    assert answer.returncode == 0, answer.stderr
    return folder / "secrets"


@pytest.mark.parametrize("script", ["entrypoint.sh", "make-secrets.sh", "postgres-init.sh"])
def test_script_is_executable_and_plain_shell(script: str) -> None:
    """POSIX shell without syntax errors, stops at the first error."""
    path = DEPLOY / script
    assert os.access(path, os.X_OK)
    assert "\nset -eu\n" in path.read_text()
    assert _run(["sh", "-n", str(path)]).returncode == 0


def test_secrets_are_made_once(secrets: Path) -> None:
    """Every secret of compose.yaml exists, is long and its own; a second run changes nothing."""
    declared = set(yaml.safe_load((DEPLOY / "compose.yaml").read_text())["secrets"])
    before = {path.name: path.read_text() for path in secrets.iterdir()}
    assert set(before) == declared
    assert secrets.stat().st_mode & 0o777 == 0o700
    assert len(before["django_secret_key"]) >= 50
    passwords = [text for name, text in before.items() if name.endswith("_password")]
    assert len(set(passwords)) == len(passwords) == 5
    assert all(len(password) == 48 for password in passwords)
    answer = _run(["sh", "make-secrets.sh"], cwd=secrets.parent)
    assert answer.returncode == 0
    assert {path.name: path.read_text() for path in secrets.iterdir()} == before
    assert not any(password in answer.stdout for password in passwords)


def _entrypoint(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    python = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["sh", str(DEPLOY / "entrypoint.sh"), *arguments]
    return _run(command, env={**python, **env})


@pytest.mark.slow
def test_entrypoint_reads_secrets_from_files(secrets: Path) -> None:
    """Settings load with nothing but the files that compose.yaml mounts."""
    answer = _entrypoint(
        "manage",
        "shell",
        "-c",
        "from django.conf import settings as s; print(s.DATABASES['default']['USER'], len(s.SECRET_KEY))",
        DJANGO_SECRET_KEY_FILE=str(secrets / "django_secret_key"),
        DATABASE_URL_FILE=str(secrets / "database_url_web"),
        REDIS_URL_FILE=str(secrets / "redis_url"),
        DJANGO_SETTINGS_MODULE="runtime_project.settings",
        RUNTIME_HOME=str(secrets),
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.split()[-2:] == ["rt_web", "96"]


def test_entrypoint_refuses_what_is_unclear(secrets: Path) -> None:
    """A value and its file together, a missing file, an unknown process: a message, no start."""
    file = str(secrets / "redis_url")
    both = _entrypoint("web", REDIS_URL="redis://x", REDIS_URL_FILE=file)
    missing = _entrypoint("web", REDIS_URL_FILE="/nowhere")
    unknown = _entrypoint("shell")
    codes = (both.returncode, missing.returncode, unknown.returncode)
    assert codes == (64, 66, 64)
    assert "REDIS_URL" in both.stderr
    assert "REDIS_URL_FILE" in missing.stderr
    assert not any("redis://" in answer.stderr for answer in (both, missing))


class _BareServer(EmbeddedPostgres):
    """A cluster as the image of PostgreSQL has it before its init scripts."""

    @override
    def _ensure_database(self) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with tempfile.TemporaryDirectory(prefix="perdure-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        database = _BareServer(folder / "postgres", folder / "socket", folder / "postgres.log")
        database.start()
        yield database
        database.stop()


@pytest.mark.slow
def test_roles_of_deploy_suffice_to_migrate_and_to_work(
    secrets: Path, server: EmbeddedPostgres
) -> None:
    """The init script, then all migrations as owner; web and worker logins have their rights."""
    init = _run(
        ["sh", str(DEPLOY / "postgres-init.sh")],
        env={
            "PATH": f"{postgres.packaged_programs()}:{os.environ['PATH']}",
            "PGHOST": str(server.socket_folder),
            "SECRETS": str(secrets),
        },
    )
    assert init.returncode == 0, init.stderr
    migrate = _entrypoint(
        "migrate",
        DJANGO_SECRET_KEY_FILE=str(secrets / "django_secret_key"),
        DATABASE_URL=_local(secrets / "database_url_owner", server),
        REDIS_URL="redis://localhost:6379/0",
        RUNTIME_HOME=str(secrets),
    )
    assert migrate.returncode == 0, migrate.stderr
    for name in ("database_url_web", "database_url_worker"):
        with psycopg.connect(_local(secrets / name, server), autocommit=True) as connection:
            assert connection.execute("SELECT count(*) FROM tasks_app_task").fetchone() == (0,)
            assert connection.execute("SHOW statement_timeout").fetchone() != ("0",)
            for refused in (
                "DELETE FROM tasks_app_task",
                "TRUNCATE tasks_app_event",
                "DELETE FROM ledger_app_auditentry",
                "CREATE TABLE own (id int)",
                "CREATE ROLE another",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(refused)


def _local(file: Path, server: EmbeddedPostgres) -> str:
    """Return the secret's address with the test's server in the place of the container."""
    user = urlsplit(file.read_text()).username
    assert user
    return server.url(user=user)


def test_health_check_says_no_when_nothing_answers() -> None:
    """Exit code 1, no traceback."""
    with socket.socket() as taken:
        # Bound but not listening: nobody else gets the port and nothing answers on it.
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
        answer = _run([sys.executable, str(DEPLOY / "healthcheck.py"), port])
    assert (answer.returncode, answer.stderr) == (1, "")
