"""Brings schema, accounts and static files up to date before anything serves."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg

from runtime_project.local import state
from runtime_project.local.commands import CommandRunner

WEB_ROLE = "rt_web"
WORKER_ROLE = "rt_worker"


@dataclass(frozen=True)
class Accounts:
    """The demo tenant's people: passwords for pages, keys for programs."""

    logins: Mapping[str, str]
    api_keys: Mapping[str, str]


def prepare(commands: CommandRunner, home: Path) -> Accounts:
    """Migrate, make the accounts, and collect static files if they changed; side by side.

    Raises:
        LocalStackError: one of it failed.
    """
    module = "runtime_project.local.prepare"
    running = commands.start("prepare", ["-m", module, str(home / "credentials")])
    collected, wanted = home / "static" / "collected", _static_digest()
    has_static = collected.is_file() and collected.read_text() == wanted
    collecting = None if has_static else commands.start_management("collectstatic", "--no-input")
    data = json.loads(running.finish())
    if collecting is not None:
        collecting.finish()
        collected.write_text(wanted)
    return Accounts(data["logins"], data["api_keys"])


def has_roles(database_url: str) -> bool:
    """Tell whether this login may take the roles of the processes.

    A login that may not create roles migrates without them; then every process is the owner.
    """
    with psycopg.connect(database_url, connect_timeout=5) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_roles WHERE rolname = ANY(%s)"
            " AND pg_has_role(current_user, oid, 'SET')",
            ([WEB_ROLE, WORKER_ROLE],),
        ).fetchone()
    return row is not None and row[0] == 2


def _static_digest() -> str:
    """Return a digest of what static files come from: installed packages and our own files."""
    digest = hashlib.sha256((state.ROOT / "requirements" / "oauth.txt").read_bytes())
    digest.update(os.environ.get("RUNTIME_APPS", "").encode())
    for path in sorted((state.ROOT / "tasks_app" / "static").rglob("*")):
        status = path.stat()
        digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()
