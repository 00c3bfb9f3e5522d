"""Typed readers of environment variables: the only place that touches `os.environ` for settings.

Each reader names its variable in the error it raises, so a wrong value is found at start and not
in the middle of the night.
"""

import os
from collections.abc import Collection
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from django.core.exceptions import ImproperlyConfigured
from psycopg.conninfo import conninfo_to_dict

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off", ""})


def text(name: str, default: str = "") -> str:
    """Return the variable, or the default when it is unset."""
    return os.environ.get(name, default)


def flag(name: str, *, default: bool = False) -> bool:
    """Return a boolean; anything but the usual words is an error."""
    value = os.environ.get(name)
    if value is None:
        return default
    if value.lower() in _TRUE:
        return True
    if value.lower() in _FALSE:
        return False
    raise ImproperlyConfigured(f"{name} must be 1 or 0, not {value!r}")


def integer(name: str, default: int) -> int:
    """Return a whole number."""
    value = os.environ.get(name)
    try:
        return default if value is None else int(value)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} must be a whole number, not {value!r}") from error


def seconds(name: str, default: float) -> float:
    """Return a duration in seconds, fractions allowed, never negative."""
    value = os.environ.get(name)
    try:
        result = default if value is None else float(value)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} must be seconds, not {value!r}") from error
    if result < 0:
        raise ImproperlyConfigured(f"{name} must not be negative")
    return result


def words(name: str, default: str = "") -> tuple[str, ...]:
    """Return a comma-separated list without empty entries."""
    return tuple(word.strip() for word in text(name, default).split(",") if word.strip())


def counts(name: str, known: Collection[str] = ()) -> dict[str, int]:
    """Return positive whole numbers by name from a list like `review=2,agent=10`.

    Args:
        known: the names that there are; without it any name is one.
    """
    found = {}
    for word in words(name):
        key, _, value = word.partition("=")
        if not key.strip() or not value.strip().isdecimal() or int(value) < 1:
            raise ImproperlyConfigured(f"{name} must be name=number,…; {word!r} is not")
        if known and key.strip() not in known:
            raise ImproperlyConfigured(f"{name} knows {', '.join(known)}; not {key.strip()!r}")
        found[key.strip()] = int(value)
    return found


def paths(name: str) -> tuple[Path, ...]:
    """Return absolute folders from a list separated by the system's path separator."""
    return tuple(Path(part).resolve() for part in text(name).split(os.pathsep) if part)


def database(
    url: str, *, role: str, application: str, idle_transaction_seconds: float, prepare: bool
) -> dict[str, object]:
    """Return Django's database settings for a libpq URL or connection string.

    `role` is assumed right after connecting (SET ROLE), so that one login can serve processes with
    different rights; empty means the login's own role. The server ends a session that stays idle
    inside a transaction for longer than `idle_transaction_seconds`: a process that froze there
    would keep its row locks, and nobody could take its task over. `prepare` lets a connection keep
    the plans of statements that the server binds; Django's own are bound by the client.
    """
    parts = conninfo_to_dict(url)
    idle = f"-c idle_in_transaction_session_timeout={int(idle_transaction_seconds * 1000)}"
    options: dict[str, object] = {
        "application_name": application,
        "options": f"{idle} -c role={role}" if role else idle,
        "prepare_threshold": 3 if prepare else None,
    }
    return {
        "ENGINE": "runtime_project.postgresql",
        "NAME": parts.get("dbname", "postgres"),
        "USER": parts.get("user", ""),
        "PASSWORD": parts.get("password", ""),
        "HOST": parts.get("host", ""),
        "PORT": str(parts.get("port", "")),
        "OPTIONS": options,
    }


def redis_client(url: str) -> dict[str, object]:
    """Return keyword arguments of a redis client for a `redis://` or `unix://` address."""
    address = urlsplit(url)
    if address.scheme == "unix":
        number = parse_qs(address.query).get("db", ["0"])[0]
        return {"unix_socket_path": address.path, "db": int(number)}
    if address.scheme not in {"redis", "rediss"}:
        raise ImproperlyConfigured("REDIS_URL must begin with redis://, rediss:// or unix://")
    return {
        "host": address.hostname or "127.0.0.1",
        "port": address.port or 6379,
        "db": int(address.path.strip("/") or 0),
        "password": address.password,
        "ssl": address.scheme == "rediss",
    }


def broker_url(url: str) -> str:
    """Return the same Redis address in the spelling that Celery's transport wants."""
    address = urlsplit(url)
    if address.scheme != "unix":
        return url
    number = parse_qs(address.query).get("db", ["0"])[0]
    return f"redis+socket://{address.path}?virtual_host={number}"
