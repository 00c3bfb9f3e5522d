"""Names of the channels, and the rule that nobody reads one through the library's own views."""

from collections.abc import Mapping
from uuid import UUID

from django.http import HttpRequest
from django_eventstream.channelmanager import ChannelManagerBase
from typing_extensions import override


def task_channel(task_id: UUID) -> str:
    """Return the channel of one task."""
    return f"task-{task_id}"


def inbox_channel(tenant_id: UUID) -> str:
    """Return the channel that tells when a tenant's open questions may have changed."""
    return f"tenant-{tenant_id}-inbox"


def tasks_channel(tenant_id: UUID) -> str:
    """Return the channel that tells when a tenant's list of tasks may have changed."""
    return f"tenant-{tenant_id}-tasks"


class TaskChannelManager(ChannelManagerBase):  # type: ignore[misc]
    """Shuts the library's own views: channels are chosen by the server only (security S25, S26).

    Whoever may listen is decided in the stream views, once, before a listener exists; so this
    class needs no database and a stream holds no connection.
    """

    @override
    def get_channels_for_request(
        self, request: HttpRequest, view_kwargs: Mapping[str, object]
    ) -> set[str]:
        """Return no channel, whatever the request asks for."""
        return set()

    @override
    def can_read_channel(self, user: object, channel: str) -> bool:
        """Refuse: a request that comes here did not pass a stream view."""
        return False

    @override
    def is_channel_reliable(self, channel: str) -> bool:
        """Tell the library to keep nothing: durable events are rows of the journal."""
        return False
