"""What runs next: owed to the broker in a row, sent after the commit, sent again if need be.

A message is a hint `(task, reason)`: safe to lose, repeat or reorder (E1). The claim deletes the
row; until then the sweeper sends again with growing pauses.

A message wakes a worker, and a worker that is awake takes one due task after the other. So while
enough messages wait in the broker, no more are sent: whoever takes one of them finds the task.

Where workers poll (RUNTIME_POLL_CLAIM) the due task itself is the message: nothing is owed or sent.
"""

import logging
from collections.abc import Sequence
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
# So many messages that nobody has taken mean that every worker is awake, or about to be.
ENOUGH_WAITING = 8


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
    return send_all([(task_id, tenant_id, reason)])


def send_all(owed: Sequence[tuple[UUID, UUID, str]]) -> bool:
    """Send owed messages (task, tenant, reason), as many as are needed to wake workers.

    Returns False when the broker was away.
    """
    if conf.runtime().poll_claim or not owed:
        return True
    try:
        waiting = count_waiting()
        if waiting is None:
            return False
        for task_id, _tenant_id, reason in owed[: max(0, ENOUGH_WAITING - waiting)]:
            current_app.send_task(JOB_NAME, args=[str(task_id), reason], queue=QUEUE)
    except (OperationalError, OSError) as error:
        told = {"task_id": str(owed[0][0]), "owed": len(owed), "error": str(error)}
        logger.warning("continuation.not_sent", extra=told)
        return False
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
        owed = _take_due(ENOUGH_WAITING, whatever_pause=True)
    send_all(owed)
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


def wake_another() -> None:
    """Wake one more worker, which wakes the next, unless a message for it waits already.

    Where messages are few because enough waited, idle workers are woken so, one by the other.
    """
    if not conf.runtime().poll_claim and count_waiting() == 0:
        offer_place()


def forget(task_id: UUID, tenant_id: UUID) -> None:
    """Drop the owed wake-up of a task that is not due any more."""
    Outbox.objects.for_tenant(tenant_id).filter(task_id=task_id).delete()
