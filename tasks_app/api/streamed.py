"""How the event stream of a task looks in OpenAPI; `stream` answers it, without REST framework."""

from typing import ClassVar
from uuid import UUID

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from tasks_app.api.base import Input, RuntimeView
from tasks_app.api.documented import documented


class StreamQuery(Input):
    """Where a stream goes on."""

    last_event_id: int | None = Field(
        None,
        ge=0,
        description="The id of the last event that the client has, as in the header Last-Event-ID.",
    )


class TaskEventsDescription(RuntimeView):
    """Never mounted: it describes."""

    capabilities: ClassVar = {"GET": "tasks:read"}
    query_models: ClassVar = {"GET": StreamQuery}

    @documented(
        "followTask",
        "Follow a task",
        capability="tasks:read",
        query=StreamQuery,
        returns=str,
        codes=("too_many_streams",),
    )
    def get(self, request: Request, task_id: UUID) -> Response:
        """Stream the task's events, beginning with its present state.

        Events are hints to read the snapshot again; docs/reference/events.md lists them. The
        stream ends with the task, and with the caller's right to read it.
        """
        raise NotImplementedError
