"""The one place that calls django-eventstream's `send_event`, with a client that fails fast."""

import threading
from collections.abc import Mapping
from typing import Any, cast

import redis
from django.conf import settings
from django_eventstream import eventstream
from redis.backoff import NoBackoff
from redis.retry import Retry

SEND_SECONDS = 0.5

_lock = threading.Lock()
_client: redis.Redis | None = None


def connect(**options: object) -> redis.Redis:
    """Return a client of the events' Redis that never retries by itself."""
    given = {"retry": Retry(NoBackoff(), 0), **options}
    return redis.Redis(**cast("dict[str, Any]", {**settings.EVENTSTREAM_REDIS, **given}))


def send(channel: str, event_type: str, data: Mapping[str, object]) -> None:
    """Hand one event to every process that listens.

    Raises:
        redis.RedisError: Redis did not take it within SEND_SECONDS; it is lost.
    """
    if _client is None or eventstream.redis_client is not _client:
        _use_impatient_client()
    eventstream.send_event(channel, event_type, data)


def _use_impatient_client() -> None:
    """Replace the library's client: its default waits up to a minute for a hung server."""
    global _client
    with _lock:
        if _client is None:
            _client = connect(socket_timeout=SEND_SECONDS, socket_connect_timeout=SEND_SECONDS)
        eventstream.redis_client = _client
