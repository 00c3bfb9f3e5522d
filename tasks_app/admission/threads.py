"""Threads from the programs' door: made, described, given values, closed (runs contract, section 2)."""

from collections.abc import Mapping
from typing import Any, Literal
from uuid import UUID, uuid4

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from tasks_app.admission import tenant_audit
from tasks_app.domain.errors import (
    FieldProblem,
    InvalidInputError,
    NotAllowedError,
    NotFoundError,
    RunActiveError,
    ThreadExistsError,
)
from tasks_app.domain.principal import Principal
from tasks_app.domain.run_bodies import check_no_secrets, check_thread_key
from tasks_app.domain.runs import Slot
from tasks_app.engine import thread_values, threads
from tasks_app.models import Run, Thread, ThreadState
from tasks_app.policy.capabilities import require


def create_thread(
    principal: Principal,
    *,
    key: str | None,
    metadata: Mapping[str, Any],
    if_exists: Literal["raise", "do_nothing"] = "raise",
) -> Thread:
    """Make a thread; a name that is taken is refused or, if wanted, returns what is there.

    The name of a deleted thread, and of one that the caller does not see, stays taken.

    Transaction: its own. Raises: NotAllowedError, TenantSuspendedError, InvalidInputError,
    ThreadExistsError.
    """
    require(principal, "tasks:create")
    if principal.user_id is None:
        raise NotAllowedError("tasks:create", "A thread needs a person who owns it.")
    if key is not None:
        check_thread_key(key)
    check_no_secrets(metadata, "/metadata")
    try:
        with transaction.atomic(durable=True):
            made: Thread = Thread.objects.create(
                tenant_id=principal.tenant_id,
                key=key or str(uuid4()),
                owner_id=principal.user_id,
                metadata=dict(metadata),
            )
    except IntegrityError as error:
        mine: Thread | None = (
            Thread.objects.visible_to(principal).filter(key=key, deleted_at=None).first()
        )
        if if_exists == "do_nothing" and mine is not None:
            return mine
        raise ThreadExistsError from error
    return made


def get_thread(principal: Principal, key: str) -> Thread:
    """Return a thread that the caller sees. Raises: NotFoundError, NotAllowedError."""
    require(principal, "tasks:read")
    found: Thread | None = (
        Thread.objects.visible_to(principal).filter(key=key, deleted_at=None).first()
    )
    if found is None:
        raise NotFoundError("Not found.")
    return found


def update_thread(principal: Principal, *, key: str, metadata: Mapping[str, Any]) -> Thread:
    """Merge metadata into a thread's.

    Transaction: its own. Locks: the thread. Raises: NotFoundError, NotAllowedError,
    InvalidInputError.
    """
    check_no_secrets(metadata, "/metadata")
    thread = _own(principal, key)
    with transaction.atomic(durable=True):
        thread = threads.lock(principal.tenant_id, thread.id)
        thread.metadata = {**thread.metadata, **metadata}
        rows = Thread.objects.for_tenant(principal.tenant_id).filter(pk=thread.id)
        rows.update(metadata=thread.metadata, updated_at=Now())
    return thread


def delete_thread(principal: Principal, *, key: str) -> None:
    """Take a thread out of sight; its tasks, ledger and audit stay, and its name stays taken.

    Transaction: its own. Locks: the thread; the tenant's audit stream last.
    Raises: NotFoundError, NotAllowedError, RunActiveError.
    """
    thread = _own(principal, key)
    with transaction.atomic(durable=True):
        threads.lock(principal.tenant_id, thread.id)
        runs = Run.objects.for_tenant(principal.tenant_id).filter(thread_id=thread.id)
        if runs.exclude(slot=Slot.RELEASED).exists():
            raise RunActiveError
        rows = Thread.objects.for_tenant(principal.tenant_id).filter(pk=thread.id)
        rows.update(deleted_at=Now(), updated_at=Now())
        tenant_audit.record(principal, "thread.deleted", f"thread:{thread.id}", None, {})


def write_state(
    principal: Principal,
    *,
    key: str,
    values: Mapping[str, Any] | None,
    metadata: Mapping[str, Any] | None = None,
    checkpoint_id: str | None = None,
) -> ThreadState:
    """Put values on top of a thread's head, or of an earlier state of it, as its newest state.

    Messages are added to those that are there; one with a known id takes the old one's place.

    Transaction: its own. Locks: the thread.
    Raises: NotFoundError, NotAllowedError, InvalidInputError, ThreadBusyError.
    """
    thread = _own(principal, key)
    given = dict(values or {})
    check_no_secrets(given, "/values")
    messages = given.pop("messages", [])
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        problem = FieldProblem("/values/messages", "invalid_type", "A list of messages.")
        raise InvalidInputError("The values do not fit.", [problem])
    with transaction.atomic(durable=True):
        thread = threads.lock(principal.tenant_id, thread.id)
        before = (
            threads.head_of(principal.tenant_id, thread.id)
            if checkpoint_id is None
            else find_state(thread, checkpoint_id)
        )
        base = thread_values.complete(before.values if before else {})
        changes = [("message", {"id": str(uuid4()), **message}) for message in messages]
        merged = thread_values.apply(base, [*changes, ("values", {"values": given})])
        return threads.write_state(thread, merged, metadata or {})


def find_state(thread: Thread, checkpoint_id: str) -> ThreadState:
    """Return a state of a thread by its id. Raises: NotFoundError."""
    try:
        wanted = UUID(checkpoint_id)
    except ValueError:
        raise NotFoundError("Not found.") from None
    states = ThreadState.objects.for_tenant(thread.tenant_id).filter(thread_id=thread.id)
    found: ThreadState | None = states.filter(pk=wanted).first()
    if found is None:
        raise NotFoundError("Not found.")
    return found


def _own(principal: Principal, key: str) -> Thread:
    """Return a thread that the caller may change: who sees all does not own all."""
    thread = get_thread(principal, key)
    require(principal, "tasks:create")
    if thread.owner_id != principal.user_id:
        raise NotAllowedError("tasks:create", "Only who made a thread changes it.")
    return thread
