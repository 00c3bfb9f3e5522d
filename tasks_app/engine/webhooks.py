"""Messages to other systems: owed in the commit of what they tell, sent by the sweeper's senders.

Each is a keyed act in the ledger under its task, of no step: begun in the commit that takes the
message, settled in the one that notes the answer. Whoever dies in between leaves it begun, and the
next sender calls again with the same key (security S145).
"""

import logging
import threading
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection, transaction

from ledger_app.domain.canonical import sha256_hex
from ledger_app.services import effects
from tasks_app import conf, syncpoints
from tasks_app.domain import tracing, webhooks
from tasks_app.domain.destinations import Destination, DestinationRefusedError, destination
from tasks_app.events.catalogue import EventType
from tasks_app.tools.outbound import Answer, Sent, post

logger = logging.getLogger(__name__)

SENDERS = 4
SENDER = "system:webhooks"
GONE = 410

_OWE = """, hooks AS (
    INSERT INTO tasks_app_webhookdelivery (tenant_id, endpoint_id, task_id, seq, status,
        state_version, created_at, state, tries, next_try_at, last_error)
    SELECT task.tenant_id, w.id, task.id, task.seq, task.told,
        task.state_version, clock_timestamp(), 'pending', 0, clock_timestamp(), ''
    FROM ({tasks}) AS task
    JOIN tasks_app_webhookendpoint w ON w.tenant_id = task.tenant_id
    WHERE w.disabled_at IS NULL
        AND (w.id = task.webhook_id OR (w.hears_all AND task.parent_id IS NULL))
)"""

# A part of the statement that moves a task (`transitions`): whoever is to be told is owed it.
OWED = _OWE.format(tasks="SELECT *, event_seq AS seq, status AS told FROM moved")

# A part of the step commit (`commit_sql`): the same for each notice of a budget among its events.
BUDGET_OWED = _OWE.format(
    tasks=f"""SELECT owned.*, owned.event_seq - %(event_count)s + e.number AS seq,
            '{webhooks.BUDGET_TOLD}' || (e.value -> 'data' ->> 'percent') AS told
        FROM owned, jsonb_array_elements(%(events)s::jsonb) WITH ORDINALITY AS e(value, number)
        WHERE e.value ->> 'type' = '{EventType.BUDGET}'"""
)
# What that part needs to know of the task.
BUDGET_COLUMNS = ", t.state_version, t.webhook_id, t.parent_id"

# The oldest message whose time has come, of an endpoint that is not to be left in peace.
_TAKE = """
WITH due AS (
    SELECT d.id FROM tasks_app_webhookdelivery d
    JOIN tasks_app_webhookendpoint w ON w.id = d.endpoint_id
        AND (w.next_try_at IS NULL OR w.next_try_at <= clock_timestamp())
    JOIN tasks_app_tenant n ON n.id = d.tenant_id AND n.status = 'active'
    WHERE d.state = 'pending' AND d.next_try_at <= clock_timestamp()
    ORDER BY d.next_try_at LIMIT 1 FOR UPDATE OF d SKIP LOCKED
), taken AS (
    UPDATE tasks_app_webhookdelivery d SET tries = d.tries + 1,
        next_try_at = clock_timestamp() + make_interval(secs => %(lease_seconds)s)
    FROM due WHERE d.id = due.id RETURNING d.*
), tried AS (
    -- One message finds out whether an endpoint that failed is back.
    UPDATE tasks_app_webhookendpoint w SET next_try_at = taken.next_try_at
    FROM taken WHERE w.id = taken.endpoint_id AND w.failures > 0
)
SELECT taken.id, taken.tenant_id, taken.endpoint_id, taken.task_id, taken.seq, taken.status,
    taken.state_version, taken.created_at, taken.tries,
    CASE WHEN t.webhook_id = w.id THEN t.webhook_url ELSE w.url END,
    CASE WHEN w.previous_until > clock_timestamp() THEN w.secret_version - 1 END,
    w.secret_version, h.key, extract(epoch FROM clock_timestamp())::bigint, t.traceparent
FROM taken
JOIN tasks_app_webhookendpoint w ON w.id = taken.endpoint_id
JOIN tasks_app_task t ON t.id = taken.task_id
LEFT JOIN tasks_app_thread h ON h.id = t.thread_id"""

_NOTE_DELIVERED = """
WITH noted AS (
    UPDATE tasks_app_webhookdelivery SET state = 'delivered', last_status = %(status)s,
        last_error = '', settled_at = clock_timestamp()
    WHERE id = %(id)s AND tries = %(tries)s AND state IN ('pending', 'held')
    RETURNING endpoint_id
), well AS (
    UPDATE tasks_app_webhookendpoint w SET failures = 0, next_try_at = NULL
    FROM noted WHERE w.id = noted.endpoint_id AND w.failures > 0
)
SELECT FROM noted"""

# What is given up, and the endpoint that is switched off with it.
_NOTE_FAILED = """
WITH counted AS (
    UPDATE tasks_app_webhookendpoint w SET failures = w.failures + 1,
        next_try_at = clock_timestamp() + make_interval(secs => least(%(max_pause)s,
            %(pause)s * power(2, least(w.failures, 20)))),
        disabled_at = CASE WHEN w.failures + 1 >= %(max_failures)s OR %(is_gone)s
            THEN coalesce(w.disabled_at, clock_timestamp()) ELSE w.disabled_at END,
        disabled_reason = CASE WHEN w.disabled_at IS NOT NULL THEN w.disabled_reason
            WHEN %(is_gone)s THEN 'gone'
            WHEN w.failures + 1 >= %(max_failures)s THEN 'failing' ELSE '' END
    FROM tasks_app_webhookdelivery d
    WHERE d.id = %(id)s AND d.tries = %(tries)s AND d.state IN ('pending', 'held')
        AND w.id = d.endpoint_id
    RETURNING w.id, w.disabled_at, %(is_gone)s OR d.created_at
        < clock_timestamp() - make_interval(secs => %(give_up)s) AS is_over
), noted AS (
    UPDATE tasks_app_webhookdelivery d SET last_status = %(status)s, last_error = %(reason)s,
        state = CASE WHEN is_over THEN 'failed'
            WHEN counted.disabled_at IS NULL THEN 'pending' ELSE 'held' END,
        settled_at = CASE WHEN is_over THEN clock_timestamp() END,
        next_try_at = clock_timestamp() + make_interval(secs => least(%(max_pause)s,
            %(pause)s * power(2, least(d.tries - 1, 20))))
    FROM counted WHERE d.id = %(id)s
    RETURNING d.state
)
SELECT noted.state, counted.disabled_at IS NOT NULL, counted.id FROM noted, counted"""


@dataclass(frozen=True, slots=True)
class _Message:
    """A message that this sender has taken."""

    id: int
    tenant_id: UUID
    endpoint_id: UUID
    task_id: UUID
    seq: int
    status: str
    state_version: int
    created_at: datetime
    tries: int
    url: str
    previous_version: int | None
    secret_version: int
    thread: str | None
    now: int
    traceparent: str

    @property
    def key(self) -> str:
        return webhooks.message_id(self.task_id, self.id)

    @property
    def trace(self) -> dict[str, str]:
        span = tracing.span_of(self.traceparent, self.key)
        return {"traceparent": span} if span else {}

    @property
    def body(self) -> bytes:
        return webhooks.body_of(
            task_id=self.task_id,
            thread=self.thread,
            status=self.status,
            seq=self.seq,
            state_version=self.state_version,
            at=self.created_at,
        )

    @property
    def act(self) -> effects.Act:
        return effects.Act(
            tenant_id=self.tenant_id,
            task_id=self.task_id,
            step_key="",
            key=self.key,
            kind="keyed",
            tool=webhooks.TOOL,
            target=self.url.partition("?")[0][:500],
            args_sha256=sha256_hex(self.body),
        )

    @property
    def secrets(self) -> list[bytes]:
        """Every secret that a receiver may hold now, the newest first."""
        versions = [self.secret_version]
        if self.previous_version is not None:
            versions.append(self.previous_version)
        roots = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
        return [
            webhooks.secret_of(root, self.endpoint_id, version)
            for root in roots
            for version in versions
        ]


def send_until(stop: threading.Event) -> None:
    """Send what is owed until told to stop; any number of senders may."""
    while not stop.is_set():
        try:
            if _is_on() and send_next():
                continue
        except (DatabaseError, InterfaceError) as error:
            logger.warning("webhook.database_unavailable", extra={"error": str(error)})
            connection.close()
        except Exception:
            # One message must not end the sender; another try of it comes when its lease has ended.
            logger.exception("webhook.failed")
        stop.wait(conf.runtime().sweep_seconds)


def send_all() -> int:
    """Send whatever is due now; return how many messages there were."""
    number = 0
    while send_next():
        number += 1
    return number


def send_next() -> bool:
    """Send the oldest message that is due; False when there is none.

    Transaction: one before the call and one after it. Locks: the message, its endpoint; the effect,
    then the audit stream of the task.
    """
    message = _take()
    if message is None:
        return False
    answer = _send(message)
    syncpoints.reach("webhook.after_call", message.task_id, message.tries)
    with transaction.atomic(durable=True):
        _note(message, answer)
    return True


def _take() -> _Message | None:
    timeout_seconds = conf.runtime().webhook_timeout_seconds
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute(_TAKE, {"lease_seconds": 2 * timeout_seconds + 10})
        row = cursor.fetchone()
        if row is None:
            return None
        message = _Message(*row)
        effects.begin(message.act, fence=message.tries, request={"status": message.status})
    return message


def _send(message: _Message) -> Answer:
    try:
        to = where(message.url)
    except DestinationRefusedError:
        return Answer(Sent.NOT_SENT, reason="host_not_allowed")
    body = message.body
    headers = webhooks.headers_of(message.secrets, message.key, message.now, body)
    return post(
        to,
        body,
        {**headers, **message.trace, "User-Agent": "perdure-webhooks/1"},
        timeout_seconds=conf.runtime().webhook_timeout_seconds,
    )


def _is_on() -> bool:
    limits = conf.runtime()
    return bool(limits.webhook_hosts or limits.webhook_private_hosts)


def where(url: str) -> Destination:
    """Return where a webhook leads. Raises: DestinationRefusedError."""
    limits = conf.runtime()
    return destination(url, hosts=limits.webhook_hosts, private_hosts=limits.webhook_private_hosts)


def _note(message: _Message, answer: Answer) -> None:
    """Note an answer, unless another sender has the message by now.

    Transaction: the caller's.
    """
    known = {"id": message.id, "tries": message.tries, "status": answer.status}
    with connection.cursor() as cursor:
        if answer.is_success:
            cursor.execute(_NOTE_DELIVERED, known)
            if cursor.rowcount:
                effects.succeed(**_entry(message), response={"status": answer.status})
            return
        cursor.execute(_NOTE_FAILED, {**known, **_limits(), "reason": _told(answer)[:100],
                                      "is_gone": answer.status == GONE})  # fmt: skip
        noted = cursor.fetchone()
        if noted is None:
            return
        state, is_off, endpoint_id = noted
        if is_off:
            cursor.execute(
                "UPDATE tasks_app_webhookdelivery SET state = 'held'"
                " WHERE endpoint_id = %s AND state = 'pending'",
                [endpoint_id],
            )
    logger.warning(
        "webhook.not_delivered",
        extra={"delivery_id": message.id, "reason": _told(answer), "state": state},
    )
    # What may have arrived stays begun while it is tried again: the receiver knows the key.
    error = {"code": answer.sent.value, "message": _told(answer)}
    if answer.sent is not Sent.UNCLEAR:
        effects.fail(**_entry(message), error=error)
    elif state == "failed":
        effects.mark_in_doubt(**_entry(message), error=error)


class _Entry(TypedDict):
    tenant_id: UUID
    task_id: UUID
    key: str
    fence: int
    actor: str


def _entry(message: _Message) -> _Entry:
    return {
        "tenant_id": message.tenant_id,
        "task_id": message.task_id,
        "key": message.key,
        "fence": message.tries,
        "actor": SENDER,
    }


def _limits() -> dict[str, float]:
    limits = conf.runtime()
    return {
        "pause": limits.webhook_retry_seconds,
        "give_up": limits.webhook_give_up_seconds,
        "max_pause": webhooks.MAX_PAUSE_SECONDS,
        "max_failures": webhooks.MAX_FAILURES,
    }


def _told(answer: Answer) -> str:
    return answer.reason if answer.status is None else f"{answer.status} {answer.reason}".strip()
