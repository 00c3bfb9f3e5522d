"""What runs next: owed to the broker in a row, sent after the commit, sent again if need be.

A message is a hint `(task, reason)`: safe to lose, repeat or reorder (E1). The claim deletes the
row; until then the sweeper sends again with growing pauses.

Where workers poll (RUNTIME_POLL_CLAIM) the due task itself is the message: nothing is owed or sent.
"""

import logging
from uuid import UUID

from celery import current_app
from django.db import connection, transaction
from kombu.exceptions import OperationalError
from redis import RedisError

from tasks_app import conf
from tasks_app.engine import queue
from tasks_app.models import Outbox

logger = logging.getLogger(__name__)

JOB_NAME = "tasks_app.jobs.run_slice"
QUEUE = "slices"
# So many messages at a time wake idle workers; who is awake takes the fairest task, not the named.
_FEW = 10


def owe(task_id: UUID, tenant_id: UUID, reason: str) -> None:
    """Owe a wake-up for a task and send it when the caller's transaction has committed.

    Transaction: the caller's. Several changes in a row owe one wake-up.
    """
    if conf.runtime().poll_claim:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            """
INSERT INTO tasks_app_outbox (tenant_id, task_id, kind, reason, created_at, tries, next_try_at)
VALUES (%s, %s, 'wake', %s, clock_timestamp(), 0, clock_timestamp() + make_interval(secs => %s))
ON CONFLICT (task_id, kind) DO UPDATE SET reason = EXCLUDED.reason, sent_at = NULL, tries = 0,
    next_try_at = EXCLUDED.next_try_at""",
            [tenant_id, task_id, reason, conf.runtime().outbox_retry_seconds],
        )
    transaction.on_commit(lambda: send(task_id, tenant_id, reason), robust=True)


def send(task_id: UUID, tenant_id: UUID, reason: str) -> bool:
    """Send the owed message now; the broker being away is no error, the sweeper tries again."""
    if conf.runtime().poll_claim:
        return False
    try:
        current_app.send_task(JOB_NAME, args=[str(task_id), reason], queue=QUEUE)
    except (OperationalError, OSError) as error:
        logger.warning(
            "continuation.not_sent", extra={"task_id": str(task_id), "error": str(error)}
        )
        return False
    # The claim may have answered already; then there is no row and nothing to note.
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE tasks_app_outbox SET sent_at = clock_timestamp() "
            "WHERE task_id = %s AND tenant_id = %s AND kind = 'wake' AND sent_at IS NULL",
            [task_id, tenant_id],
        )
    return True


def send_due(limit: int = 200) -> int:
    """Send owed messages whose time has come (again); return how many.

    Pauses between tries of one message double from the set time up to five minutes. They spare a
    broker whose messages wait for a free worker. One in which nothing waits may have lost them or
    come back just now: then some are sent again after the first pause. While it is away, nothing
    counts as tried.
    """
    waiting = count_waiting()
    if waiting is None:
        return 0
    owed = _take_due(limit)
    if not owed and not waiting:
        owed = _take_due(_FEW, whatever_pause=True)
    for task_id, tenant_id, reason in owed:
        if not send(task_id, tenant_id, reason):
            break
    return len(owed)


def _take_due(limit: int, *, whatever_pause: bool = False) -> list[tuple[UUID, UUID, str]]:
    """Return owed messages (task, tenant, reason) that are to be sent, and note the try."""
    pause = conf.runtime().outbox_retry_seconds
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute(
            """
WITH due AS (
    SELECT o.id FROM tasks_app_outbox o
    JOIN tasks_app_task t ON t.id = o.task_id
    WHERE t.next_wake_at <= clock_timestamp() AND (
        o.next_try_at <= clock_timestamp()
        OR (%(whatever_pause)s
            AND o.sent_at <= clock_timestamp() - make_interval(secs => %(pause)s)))
    ORDER BY o.next_try_at LIMIT %(limit)s FOR UPDATE OF o SKIP LOCKED
)
UPDATE tasks_app_outbox o SET tries = least(o.tries + 1, 30), sent_at = clock_timestamp(),
    next_try_at = clock_timestamp()
        + make_interval(secs => least(300, %(pause)s * power(2, least(o.tries, 10))))
FROM due WHERE o.id = due.id
RETURNING o.task_id, o.tenant_id, o.reason""",
            {"limit": limit, "pause": pause, "whatever_pause": whatever_pause},
        )
        return list(cursor.fetchall())


def count_waiting() -> int | None:
    """Return how many messages wait in the broker for a worker; None while it is away."""
    try:
        with current_app.producer_or_acquire() as producer:
            return int(producer.channel.client.llen(QUEUE))
    except (OperationalError, RedisError, OSError) as error:
        logger.warning("continuation.broker_away", extra={"error": str(error)})
        return None


def offer_place() -> None:
    """Send a wake-up for a task that a limit held back until now.

    Its own message may have come while no place was free, and would come again only in minutes.
    """
    found = queue.find_next()
    if found is not None:
        send(*found, "place")


def forget(task_id: UUID, tenant_id: UUID) -> None:
    """Drop the owed wake-up of a task that is not due any more."""
    Outbox.objects.for_tenant(tenant_id).filter(task_id=task_id).delete()
