"""Requests with an Idempotency-Key that make no row which knows the key: the first answer is kept.

The act and the kept answer are one commit, so a repeat finds both or neither. Tasks, commands and
repairs need none of this: their own rows hold the key.
"""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from ledger_app.services.statements import fetch_row
from tasks_app import conf
from tasks_app.admission import idempotency
from tasks_app.domain.errors import IdempotencyInProgressError
from tasks_app.domain.principal import Principal
from tasks_app.models import KeptAnswer

BATCH = 200

# Of PostgreSQL's pairs of advisory locks: ours, so that they meet no lease.
_LOCKS = 0x1DE9
_TRY_LOCK = "SELECT pg_try_advisory_xact_lock(%(locks)s, hashtext(%(name)s))"

_joined: ContextVar[bool] = ContextVar("joined", default=False)


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer as it is kept; `replayed` when an earlier request made it."""

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)
    replayed: bool = False


def own_transaction() -> transaction.Atomic:
    """Return a transaction for an act: its own, or the one in which its answer is kept."""
    return transaction.atomic(durable=not _joined.get())


def forget_old() -> int:
    """Delete answers that are kept long enough, the oldest first; return how many.

    Transaction: its own.
    """
    rows = KeptAnswer.objects.all_tenants("the sweeper serves the installation")
    # By key, which the index has in order of age: a pass that finds none has read one batch.
    oldest = list(rows.order_by("pk").values_list("pk", flat=True)[:BATCH])
    age = timedelta(seconds=conf.runtime().kept_answer_seconds)
    deleted, _ = rows.filter(pk__in=oldest, created_at__lt=Now() - age).delete()
    return int(deleted)


def once(
    principal: Principal, *, key: str, request: Mapping[str, object], act: Callable[[], Kept]
) -> Kept:
    """Carry out an act, or return what it was answered when the same request came before.

    A refused act keeps nothing: the same key may try again.

    Args:
        request: what makes two requests the same.

    Transaction: its own; the act joins it. Locks: the key, before anything else.
    Raises: IdempotencyMismatchError, IdempotencyInProgressError, and what the act raises.
    """
    fingerprint = idempotency.fingerprint_of(request)
    with transaction.atomic(durable=True):
        name = f"{principal.tenant_id}:{principal.actor}:{key}"
        locked = fetch_row(_TRY_LOCK, {"locks": _LOCKS, "name": name})
        if locked is None or not locked[0]:
            raise IdempotencyInProgressError("The first request with this key is still at work.")
        rows = KeptAnswer.objects.for_tenant(principal.tenant_id)
        found = rows.filter(actor=principal.actor, key=key).first()
        if found is not None:
            idempotency.require_same(found.fingerprint, fingerprint)
            return Kept(found.status, found.body, found.headers, replayed=True)
        token = _joined.set(True)
        try:
            kept = act()
        finally:
            _joined.reset(token)
        KeptAnswer.objects.create(
            tenant_id=principal.tenant_id,
            actor=principal.actor,
            key=key,
            fingerprint=fingerprint,
            status=kept.status,
            body=kept.body,
            headers=dict(kept.headers),
        )
    return replace(kept, replayed=False)
