"""`manage.py seed_demo`: the demo's tenant, people, agent and API keys. May run again and again."""

import json
import os
import secrets
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone
from typing_extensions import override

from tasks_app.admission.keys import create_key
from tasks_app.admission.members import found_member
from tasks_app.admission.principal import find_genuine_key, from_user
from tasks_app.domain.key_text import parse_key_text
from tasks_app.models import AgentIdentity, Tenant

TENANT = "demo"
# One person for each role: who submits is never who approves.
PEOPLE = ("operator", "approver", "submitter", "viewer", "admin", "auditor")
STAFF = frozenset({"operator", "approver", "admin", "auditor"})
KEY_OWNERS = ("submitter", "operator", "approver")
# Demo keys act for their owners, but make no further keys.
NOT_IN_KEYS = frozenset({"keys:manage"})
KEY_MARGIN = timedelta(days=1)


@dataclass
class Accounts:
    """What people need to sign in: as the file has it."""

    tenant: str = TENANT
    logins: dict[str, str] = field(default_factory=dict)
    api_keys: dict[str, str] = field(default_factory=dict)


class Command(BaseCommand):
    """Makes what is missing and keeps what is there."""

    # What authors declared is told by `check` and does not concern this command.
    requires_system_checks = []
    help = "Make the demo's tenant, users, agent and API keys; keeps those in the file."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON document")
        parser.add_argument(
            "--credentials",
            type=Path,
            required=True,
            metavar="FILE",
            help="where passwords and keys are kept, readable by its owner only",
        )

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        if settings.PRODUCTION:
            raise CommandError("seed_demo makes well-known users; it does not run in production.")
        accounts = _read(options["credentials"])
        for name in PEOPLE:
            accounts.logins.setdefault(name, secrets.token_urlsafe(12))
        # Kept before anything is stored: a password that nobody knows would lock its user out.
        _write(options["credentials"], accounts)
        tenant, _ = Tenant.objects.get_or_create(slug=TENANT, defaults={"name": "Demo"})
        people = _people(tenant, accounts.logins)
        _agent(tenant)
        for name in KEY_OWNERS:
            if not _works(accounts.api_keys.get(name, ""), people[name]):
                accounts.api_keys[name] = _new_key(tenant, people[name], name)
        _write(options["credentials"], accounts)
        self.stdout.write(_text(accounts, as_json=options["json"]))


def _people(tenant: Tenant, logins: Mapping[str, str]) -> dict[str, User]:
    found = {user.username: user for user in User.objects.filter(username__in=PEOPLE)}
    missing = [name for name in PEOPLE if name not in found]
    # Hashing takes almost half a second each and leaves the interpreter free meanwhile.
    with ThreadPoolExecutor(max_workers=4) as pool:
        hashes = list(pool.map(make_password, [logins[name] for name in missing]))
    for name, password in zip(missing, hashes, strict=True):
        found[name] = User.objects.create(username=name, password=password, is_staff=name in STAFF)
    for name, user in found.items():
        found_member(tenant_id=tenant.id, user_id=user.pk, roles=[name], by="seed_demo")
    return found


def _agent(tenant: Tenant) -> None:
    agents = AgentIdentity.objects.for_tenant(tenant.id)
    if not agents.filter(name="default").exists():
        AgentIdentity.objects.create(tenant=tenant, name="default")


def _works(text: str, owner: User) -> bool:
    """Tell whether a kept key is stored, not revoked and not about to expire."""
    parsed = parse_key_text(text)
    row = find_genuine_key(parsed) if parsed else None
    return (
        row is not None
        and row.owner_user_id == owner.pk
        and row.revoked_at is None
        and row.expires_at > timezone.now() + KEY_MARGIN
    )


def _new_key(tenant: Tenant, owner: User, name: str) -> str:
    principal = from_user(owner, tenant.id, via="command")
    scopes = sorted(principal.capabilities - NOT_IN_KEYS)
    return create_key(principal, name=f"demo {name}", scopes=scopes).text


def _read(file: Path) -> Accounts:
    try:
        data = json.loads(file.read_text())
        return Accounts(logins=dict(data["logins"]), api_keys=dict(data["api_keys"]))
    except FileNotFoundError:
        return Accounts()
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{file} is not a file of seed_demo; move it away.") from error


def _write(file: Path, accounts: Accounts) -> None:
    """Replace the file in one step; nobody else may ever read it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}.{os.getpid()}")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as out:
        out.write(_text(accounts, as_json=True) + "\n")
    new.replace(file)


def _text(accounts: Accounts, *, as_json: bool) -> str:
    if as_json:
        return json.dumps(
            {
                "tenant": accounts.tenant,
                "logins": accounts.logins,
                "api_keys": accounts.api_keys,
            },
            indent=2,
        )
    lines = [f"Tenant {accounts.tenant}"]
    lines += [f"  {name:<10} {password}" for name, password in accounts.logins.items()]
    lines += [f"  key of {name:<10} {text}" for name, text in accounts.api_keys.items()]
    return "\n".join(lines)
