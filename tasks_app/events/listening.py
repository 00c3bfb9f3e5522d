"""Receives pushed events for the streams of this process, whatever happens to Redis.

Takes the place of django-eventstream's listener manager, which dies for good in an outage and
drops bursts in silence (docs/decisions/eventstream-wrapped.md). One supervised thread holds the
subscription; each listener has a bounded queue, and whatever is lost becomes one `resync`.
"""

import asyncio
import json
import logging
import threading
import time
from contextlib import suppress

import redis
from django_eventstream import views
from django_eventstream.event import Event
from typing_extensions import override

from tasks_app.events import transport
from tasks_app.events.catalogue import StreamNotice

logger = logging.getLogger(__name__)

# What one slow reader may keep in memory; more becomes one `resync`.
MAX_QUEUED = 500
CONNECT_SECONDS = 2.0
POLL_SECONDS = 1.0
PING_SECONDS = 5.0
SILENCE_SECONDS = 10.0
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event at most so long; tell whether it was set.

    Unlike `asyncio.wait_for`, which until Python 3.12 forgets a cancellation that comes in the same
    turn of the loop as the event: a client that hung up just then would never have left.
    """
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await event.wait()
    except TimeoutError:
        return False
    return True


class SupervisedListenerManager(views.ListenerManager):  # type: ignore[misc]
    """The library's manager with a subscription that heals and queues that cannot lose silently."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.listeners_by_channel: dict[str, set[views.Listener]] = {}
        self.is_connected = False
        self.is_ending = False
        self._thread: threading.Thread | None = None

    @override
    def add_listener(self, listener: views.Listener) -> None:
        """Register a listener; its events arrive from now on if `is_connected`."""
        with self.lock:
            for channel in listener.channels:
                self.listeners_by_channel.setdefault(channel, set()).add(listener)
            # A thread that did not survive a fork is not alive either.
            if self._thread is None or not self._thread.is_alive():
                self.is_connected = False
                self._thread = threading.Thread(
                    target=self._supervise, name="event-listener", daemon=True
                )
                self._thread.start()

    async def wait_connected(self, listener: views.Listener, timeout_seconds: float) -> bool:
        """Wait until the subscription stands; then forget what was queued for the listener."""
        if not self.is_connected:
            await set_within(listener.aevent, timeout_seconds)
        self.take(listener)
        return self.is_connected

    def take(self, listener: views.Listener) -> list[Event]:
        """Empty the listener's queue and return what was in it, each channel in its order."""
        with self.lock:
            items = [event for events in listener.channel_items.values() for event in events]
            listener.channel_items = {}
            listener.aevent.clear()
        return items

    def end_all(self) -> None:
        """Tell every listener that this server stops."""
        self.is_ending = True
        with self.lock:
            for listener in self._listeners():
                _wake(listener)

    def _listeners(self) -> set[views.Listener]:
        return {one for many in self.listeners_by_channel.values() for one in many}

    @override
    def add_to_queues(self, channel: str, event: Event) -> None:
        """Queue an event for each listener of the channel; too many become one `resync`."""
        with self.lock:
            for listener in self.listeners_by_channel.get(channel, ()):
                queued = sum(map(len, listener.channel_items.values()))
                if queued < MAX_QUEUED:
                    listener.channel_items.setdefault(channel, []).append(event)
                    _wake(listener)
                else:
                    _resync(listener)

    def _supervise(self) -> None:
        """Keep the subscription up until nobody listens any more."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            began = time.monotonic()
            failure = self._listen_or_fail()
            self.is_connected = False
            if self._retire():
                return
            logger.warning("listener.disconnected", extra={"error": failure})
            if time.monotonic() - began > SILENCE_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _listen_or_fail(self) -> str:
        try:
            self._listen()
        except (redis.RedisError, OSError) as error:
            return type(error).__name__
        except Exception:  # streams must not go deaf for any reason
            logger.exception("listener.failed")
            return "bug"
        return ""

    def _listen(self) -> None:
        """Pass on events until the connection breaks, falls silent, or nobody listens."""
        options = {"socket_timeout": CONNECT_SECONDS, "socket_connect_timeout": CONNECT_SECONDS}
        with transport.connect(**options) as client, client.pubsub() as subscription:
            subscription.subscribe(transport.EVENTS_CHANNEL)
            heard_at = pinged_at = time.monotonic()
            while True:
                message = subscription.get_message(timeout=POLL_SECONDS)
                now = time.monotonic()
                if message is not None:
                    heard_at = now
                    self._handle(message)
                elif not self.listeners_by_channel:
                    return
                elif now - heard_at > SILENCE_SECONDS:
                    raise redis.ConnectionError("the subscription fell silent")
                elif now - max(heard_at, pinged_at) > PING_SECONDS:
                    subscription.ping()
                    pinged_at = now

    def _retire(self) -> bool:
        """End the thread's duty if nobody listens; the next listener starts a new one."""
        with self.lock:
            if self.listeners_by_channel:
                return False
            self._thread = None
            return True

    def _handle(self, message: dict[str, object]) -> None:
        if message["type"] == "subscribe":
            self._start_anew()
        elif message["type"] == "message" and self.listeners_by_channel:
            with suppress(ValueError, KeyError, TypeError):
                sent = json.loads(str(message["data"], "utf-8"))  # type: ignore[call-overload]
                event = Event(sent["channel"], sent["event_type"], sent["data"])
                self.add_to_queues(event.channel, event)

    def _start_anew(self) -> None:
        """Tell every listener that it may have missed something until now."""
        with self.lock:
            self.is_connected = True
            for listener in self._listeners():
                _resync(listener)


def _resync(listener: views.Listener) -> None:
    channel = next(iter(listener.channels))
    listener.channel_items = {channel: [Event(channel, StreamNotice.RESYNC, "{}")]}
    _wake(listener)


def _wake(listener: views.Listener) -> None:
    # The loop of a stopped test server is closed; its listener is about to be removed.
    with suppress(RuntimeError):
        listener.wake_threadsafe()


def install() -> None:
    """Put the supervised manager in the library's place; safe to call twice."""
    if not isinstance(views.listener_manager, SupervisedListenerManager):
        views.listener_manager = SupervisedListenerManager()


def manager() -> SupervisedListenerManager:
    """Return this process's manager."""
    found = views.get_listener_manager()
    if not isinstance(found, SupervisedListenerManager):
        raise TypeError("tasks_app.apps did not install the supervised listener manager")
    return found
