"""The one place that calls django-eventstream's `send_event`, with a client that fails fast."""

import logging
import threading
from collections.abc import Iterable, Mapping
from typing import Any, cast

import redis
from django.conf import settings
from django_eventstream import eventstream
from redis.backoff import NoBackoff
from redis.retry import Retry

logger = logging.getLogger(__name__)

SEND_SECONDS = 0.5

# The library's name of its one channel in Redis; a test compares it with the library.
EVENTS_CHANNEL = "events_channel"

# Channel, type and data of one event.
Message = tuple[str, str, Mapping[str, object]]

_lock = threading.Lock()
_client: redis.Redis | None = None


def connect(**options: object) -> redis.Redis:
    """Return a client of the events' Redis that never retries by itself."""
    given = {"retry": Retry(NoBackoff(), 0), **options}
    return redis.Redis(**cast("dict[str, Any]", {**settings.EVENTSTREAM_REDIS, **given}))


def is_anybody_listening() -> bool:
    """Tell whether a process has subscribed.

    While none has, no event need be sent: who subscribes later reads a snapshot afterwards, and
    that tells what the event would have told.

    Raises:
        redis.RedisError: Redis did not answer within SEND_SECONDS.
    """
    ((_, subscribers),) = _impatient_client().pubsub_numsub(EVENTS_CHANNEL)
    return bool(subscribers)


def send(messages: Iterable[Message]) -> None:
    """Hand events to every process that listens, in this order, in one round trip.

    Not for two threads at once.

    Raises:
        redis.RedisError: Redis did not take them within SEND_SECONDS; they are lost.
    """
    with _impatient_client().pipeline(transaction=False) as pipeline:
        # The library publishes with this name of its module; the pipeline keeps it all until later.
        eventstream.redis_client = pipeline
        for message in messages:
            _encode(*message)
        pipeline.execute()


def _encode(channel: str, event_type: str, data: Mapping[str, object]) -> None:
    try:
        eventstream.send_event(channel, event_type, data)
    except (TypeError, ValueError):
        # One event that has no JSON form costs the others nothing.
        logger.exception("publisher.event_refused")


def _impatient_client() -> redis.Redis:
    """Return a client in place of the library's, which waits up to a minute for a hung server."""
    global _client
    with _lock:
        if _client is None:
            _client = connect(socket_timeout=SEND_SECONDS, socket_connect_timeout=SEND_SECONDS)
        return _client
