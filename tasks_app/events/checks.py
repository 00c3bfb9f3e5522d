"""System checks: the library is set up the way the streams rely on (security S26)."""

from collections.abc import Sequence

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, register

CHANNEL_MANAGER = "tasks_app.events.channels.TaskChannelManager"


@register
def check_eventstream(
    app_configs: Sequence[AppConfig] | None, **options: object
) -> list[CheckMessage]:
    """Refuse to start with settings that would let the library answer requests by itself."""
    found: list[CheckMessage] = []
    if getattr(settings, "EVENTSTREAM_CHANNELMANAGER_CLASS", "") != CHANNEL_MANAGER:
        found.append(
            Error(
                "django-eventstream would let anybody read any channel.",
                hint=f'Set EVENTSTREAM_CHANNELMANAGER_CLASS = "{CHANNEL_MANAGER}".',
                id="tasks_app.E001",
            )
        )
    if getattr(settings, "EVENTSTREAM_STORAGE_CLASS", None):
        found.append(
            Error(
                "Stored events are rows of the journal; the library must store nothing.",
                hint="Remove EVENTSTREAM_STORAGE_CLASS.",
                id="tasks_app.E002",
            )
        )
    if not hasattr(settings, "EVENTSTREAM_REDIS"):
        found.append(
            Error(
                "Events could not reach other processes.",
                hint="Set EVENTSTREAM_REDIS.",
                id="tasks_app.E003",
            )
        )
    return found
