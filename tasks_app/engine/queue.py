"""The queue of due tasks: what limits it, whether anybody waits in it."""

import json
from typing import Any
from uuid import UUID

from django.db import connection

from ledger_app.services.statements import fetch_row
from tasks_app import conf
from tasks_app.engine import queue_sql


def limits(*, without: UUID | None = None) -> dict[str, Any]:
    """Return the parameters that every statement on lanes takes.

    Args:
        without: a running task that is not counted, as if it had given its place away.
    """
    limits = conf.runtime()
    return {
        "max_tasks": limits.max_concurrent_tasks,
        "workflow_limits": json.dumps(dict(limits.workflow_max_concurrent_tasks)),
        "except": without,
    }


def has_own_limits() -> bool:
    """Tell whether the installation limits claims, whatever its tenants do."""
    limits = conf.runtime()
    return bool(limits.max_concurrent_tasks or limits.workflow_max_concurrent_tasks)


def lock_limits() -> bool:
    """Tell whether any limit can concern a claim; if so, claims go one after the other.

    Transaction: the caller's, which claims in its next statement. Locks: that of the limits.
    """
    asked = {"limits_lock": queue_sql.LIMITS_LOCK, "limited": has_own_limits()}
    return fetch_row(queue_sql.LIMITS, asked) is not None


def find_next() -> tuple[UUID, UUID] | None:
    """Return id and tenant of a due task that may run now, if there is one; claims nothing."""
    with connection.cursor() as cursor:
        cursor.execute(queue_sql.OFFER, limits())
        found: tuple[UUID, UUID] | None = cursor.fetchone()
    return found


def is_anybody_waiting(*, besides: UUID | None = None) -> bool:
    """Tell whether a task is due that a free worker could execute now.

    Args:
        besides: a running task, as if it had given its place away.
    """
    with connection.cursor() as cursor:
        cursor.execute(queue_sql.WAITS, limits(without=besides))
        (waits,) = cursor.fetchone()
    return bool(waits)
