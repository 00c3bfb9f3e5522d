"""Plain functions that make rows for tests; every argument may be overridden.

Tasks made here are rows only, for read tests: nothing executes them and no event or audit entry
exists. Tests of behaviour go through `admission.tasks.admit_task`.
"""

import itertools
import uuid
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.utils import timezone

from tasks_app.conf import runtime
from tasks_app.domain.key_text import make_key_text
from tasks_app.models import AgentIdentity, ApiKey, Membership, Task, Tenant

PASSWORD = "correct horse battery staple"

_numbers = itertools.count(1)


def make_tenant(**overrides: Any) -> Tenant:
    """Return a new active tenant."""
    number = next(_numbers)
    values: dict[str, Any] = {"slug": f"tenant-{number}", "name": f"Tenant {number}", **overrides}
    return Tenant.objects.create(**values)


def set_tenant(tenant: Tenant, **columns: Any) -> None:
    """Change columns of a tenant's row."""
    Tenant.objects.filter(pk=tenant.pk).update(**columns)


def make_user(**overrides: Any) -> User:
    """Return a new user whose password is PASSWORD unless one is given."""
    values: dict[str, Any] = {
        "username": f"user-{next(_numbers)}",
        "password": PASSWORD,
        **overrides,
    }
    return User.objects.create_user(**values)


def make_member(
    tenant: Tenant, roles: Iterable[str] | str, user: User | None = None, **overrides: Any
) -> User:
    """Return a user (new unless given) who is an active member with these roles."""
    member = user or make_user()
    names = [roles] if isinstance(roles, str) else list(roles)
    Membership.objects.create(tenant=tenant, user=member, roles=names, **overrides)
    return member


def make_members(tenant: Tenant, roles: Sequence[str]) -> list[User]:
    """Return a new member for each role, all made with two statements."""
    password = make_password(PASSWORD)
    people = User.objects.bulk_create(
        User(username=f"user-{next(_numbers)}", password=password) for _ in roles
    )
    Membership.objects.for_tenant(tenant.id).bulk_create(
        Membership(tenant=tenant, user=person, roles=[role])
        for person, role in zip(people, roles, strict=True)
    )
    return people


def make_agent(tenant: Tenant, **overrides: Any) -> AgentIdentity:
    """Return the tenant's agent "default" unless another name is given, made when missing."""
    values: dict[str, Any] = {"name": "default", **overrides}
    rows = AgentIdentity.objects.for_tenant(tenant.id)
    found = rows.filter(name=values["name"]).first()
    return found or AgentIdentity.objects.create(tenant=tenant, **values)


def make_task(**overrides: Any) -> Task:
    """Return a task row, queued unless overridden; tenant, initiator and agent are made if missing.

    A completed one needs `receipt_id`, one with `lease_owner` the status working or pausing.
    """
    tenant = overrides.pop("tenant", None) or make_tenant()
    initiator = overrides.pop("initiator", None) or make_member(tenant, "submitter")
    agent = overrides.pop("agent", None) or make_agent(tenant)
    if overrides.get("status") == "completed":
        overrides.setdefault("receipt_id", uuid.uuid4())
    if overrides.get("status") == "dead_lettered":
        overrides.setdefault("held_at", timezone.now())
        overrides.setdefault("error", {"code": "too_many_recoveries", "message": "Held."})
    values: dict[str, Any] = {
        "workflow": "scripted",
        "workflow_version": 1,
        "title": f"Task {next(_numbers)}",
        "goal": {"steps": 3},
        "agent_version": agent.version,
        "source": "code",
        **overrides,
    }
    task = Task.objects.create(tenant=tenant, initiator=initiator, agent=agent, **values)
    task.refresh_from_db(from_queryset=Task.objects.for_tenant(tenant.id))
    return task


def make_api_key(
    tenant: Tenant,
    owner: User | AgentIdentity,
    scopes: Iterable[str] = ("tasks:read", "tasks:create", "tasks:steer", "tasks:cancel"),
    **overrides: Any,
) -> tuple[ApiKey, str]:
    """Return a key's row and its text; a key of an agent needs `created_by`."""
    key = make_key_text(runtime().key_environment)
    holder: dict[str, Any] = (
        {"owner_agent": owner}
        if isinstance(owner, AgentIdentity)
        else {"owner_user": owner, "created_by": owner}
    )
    values: dict[str, Any] = {
        "name": f"key {key.key_id}",
        "expires_at": timezone.now() + timedelta(days=90),
        **holder,
        **overrides,
    }
    row = ApiKey.objects.create(
        tenant=tenant, key_id=key.key_id, digest=key.digest, scopes=list(scopes), **values
    )
    return row, key.text
