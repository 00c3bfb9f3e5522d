"""Where local state lies, and what a running stack tells about itself.

`.runtime/stack.json` is written by the stack that runs and read by every other command.
"""

import json
import os
import secrets
from collections.abc import MutableMapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from runtime_project.local.processes import ProcessIdentity

ROOT = Path(__file__).resolve().parent.parent.parent


def home() -> Path:
    """Return the folder of this copy's local state: RUNTIME_HOME or `.runtime` in the project."""
    given = os.environ.get("RUNTIME_HOME")
    return Path(given).resolve() if given else ROOT / ".runtime"


@dataclass(frozen=True)
class RunningStack:
    """One live stack: who supervises it, where it answers, what points settings at it.

    `summary` is what a person reads: addresses and logins.
    """

    supervisor: ProcessIdentity
    url: str
    summary: str
    environment: dict[str, str]


def find_running(folder: Path) -> RunningStack | None:
    """Return the stack that runs from `folder`; a file left by a dead one is ignored."""
    try:
        data = json.loads((folder / "stack.json").read_text())
        stack = RunningStack(
            supervisor=ProcessIdentity(**data["supervisor"]),
            url=data["url"],
            summary=data["summary"],
            environment=data["environment"],
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return stack if stack.supervisor.is_alive() else None


def announce(folder: Path, stack: RunningStack) -> None:
    """Make the stack known to other commands of this copy."""
    write_private(folder / "stack.json", json.dumps(asdict(stack), indent=1) + "\n")


def withdraw(folder: Path) -> None:
    """Forget the stack that has ended."""
    (folder / "stack.json").unlink(missing_ok=True)


def use_running_stack(environ: MutableMapping[str, str]) -> bool:
    """Point settings at the running local stack; variables that are set win.

    Returns:
        Whether a local stack is running.
    """
    stack = find_running(home())
    if stack is None:
        return False
    if "DATABASE_URL" not in environ:
        for name, value in stack.environment.items():
            environ.setdefault(name, value)
    return True


def secret_key(folder: Path) -> str:
    """Return this copy's signing key, made once; sessions survive a restart."""
    path = folder / "secret-key"
    with suppress(OSError):
        key = path.read_text().strip()
        if len(key) >= 50:
            return key
    write_private(path, secrets.token_urlsafe(64) + "\n")
    return path.read_text().strip()


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, complete or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    new.replace(path)
