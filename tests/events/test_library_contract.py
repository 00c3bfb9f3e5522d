"""What is relied on or replaced in django-eventstream 5.3.4: a new version must still fit."""

import inspect
import json
from importlib import metadata
from typing import Any

import django_eventstream
import pytest
from django.core.checks import run_checks
from django.test import RequestFactory
from django.urls import URLResolver, get_resolver
from django_eventstream import eventstream, views
from django_eventstream.utils import sse_encode_error, sse_encode_event

from tasks_app.events import listening, transport
from tasks_app.events.channels import TaskChannelManager


def test_version_is_the_one_that_was_read() -> None:
    """A new version is adopted together with this file."""
    assert metadata.version("django-eventstream") == "5.3.4"


def test_our_manager_is_the_one_in_use() -> None:
    """`AppConfig.ready` put it there, and the library asks for it by name at each use."""
    assert isinstance(views.get_listener_manager(), listening.SupervisedListenerManager)
    assert "return listener_manager" in inspect.getsource(views.get_listener_manager)


def test_manager_answers_everything_that_the_library_asks() -> None:
    """Our manager has every public method of the library's, with the same parameters."""
    library = views.ListenerManager.__mro__[0]
    for name in ("add_listener", "remove_listener", "add_to_queues", "kick"):
        ours = inspect.signature(getattr(listening.SupervisedListenerManager, name))
        assert list(ours.parameters) == list(inspect.signature(getattr(library, name)).parameters)


def test_listener_has_the_parts_that_are_used() -> None:
    """Queue by channel, wake-up through the loop."""
    listener = views.Listener()
    assert listener.channel_items == {}
    assert listener.channels == set()
    assert callable(listener.assign_loop)
    assert callable(listener.wake_threadsafe)


def test_send_event_publishes_what_the_listener_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """One channel in Redis, one JSON object with four keys, through the replaceable client."""
    with transport.connect() as client, client.pubsub() as subscription:
        subscription.subscribe(transport.EVENTS_CHANNEL)
        assert _next_of(subscription, "subscribe")
        transport.send([("task-1", "progress", {"seq": 1})])
        message = _next_of(subscription, "message")
    assert json.loads(message["data"]) == {
        "channel": "task-1",
        "event_type": "progress",
        "data": '{"seq": 1}',
        "pub_id": None,
    }
    assert "redis_client.publish(" in inspect.getsource(eventstream.send_event)


def _next_of(subscription: Any, kind: str) -> Any:
    while True:
        message = subscription.get_message(timeout=10)
        assert message is not None
        if message["type"] == kind:
            return message


def test_sse_encoding_keeps_lines_apart() -> None:
    """No text can forge a second field or event."""
    text = sse_encode_event("a\r\nid: 1", "x\ny\r\nevent: z")
    assert text == "event: aid: 1\ndata: x\ndata: y\ndata: event: z\n\n"
    assert "id: error\n" in sse_encode_error("forbidden", "no")


def test_library_views_are_not_mounted_and_would_answer_nothing() -> None:
    """S26: no route of the library; and its view, called by hand, finds no channel."""
    modules = {
        getattr(pattern.callback, "__module__", "")
        for pattern in _patterns(get_resolver())
        if hasattr(pattern, "callback")
    }
    assert not any(module.startswith("django_eventstream") for module in modules)
    answer = views.events(RequestFactory().get("/?channel=task-1"))
    assert b"bad-request" in answer.content
    manager = TaskChannelManager()
    assert not manager.can_read_channel(None, "task-1")
    assert not manager.is_channel_reliable("task-1")


def _patterns(resolver: URLResolver) -> list[Any]:
    found: list[Any] = []
    for pattern in resolver.url_patterns:
        found += _patterns(pattern) if isinstance(pattern, URLResolver) else [pattern]
    return found


def test_wrong_settings_are_refused_at_start(settings: Any) -> None:
    """Each setting on which the guards rest has a system check."""
    assert [message for message in run_checks() if message.id in _OURS] == []
    settings.EVENTSTREAM_CHANNELMANAGER_CLASS = django_eventstream.__name__
    settings.EVENTSTREAM_STORAGE_CLASS = "django_eventstream.storage.DjangoModelStorage"
    del settings.EVENTSTREAM_REDIS
    assert {message.id for message in run_checks()} >= _OURS


_OURS = {"tasks_app.E001", "tasks_app.E002", "tasks_app.E003"}
