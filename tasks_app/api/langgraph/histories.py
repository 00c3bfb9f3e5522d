"""What a thread's runs said and did, and what they used."""

from typing import ClassVar
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import override

from tasks_app.api.langgraph.base import RunObjectView, ThreadObjectView
from tasks_app.api.langgraph.inputs import EventsQuery, MessagesQuery, UsageQuery
from tasks_app.api.langgraph.render import changes_json, event_json, stored_types, usage_json
from tasks_app.queries.conversations import RunEvents, Window, list_messages, list_run_events
from tasks_app.queries.runs import usage_of_thread
from tasks_app.queries.workspaces import workspace_changes


class ThreadMessagesView(ThreadObjectView):
    """The messages of a thread."""

    capabilities: ClassVar = {"GET": "tasks:read"}
    query_models: ClassVar = {"GET": MessagesQuery}

    def get(self, request: Request, thread_id: str) -> Response:
        """Return the newest messages, oldest first."""
        found = self.messages()
        return Response([event_json(event, thread_id) for event in found.events])

    def messages(self) -> RunEvents:
        """Return what the query asks for."""
        query = self.query_as(MessagesQuery)
        return list_messages(
            self.principal,
            self.thread().id,
            Window(query.limit, query.before_seq, query.after_seq),
            include_superseded=query.include_superseded,
        )


class ThreadMessagesPageView(ThreadMessagesView):
    """The messages of a thread in pages."""

    @override
    def get(self, request: Request, thread_id: str) -> Response:
        """Return the newest messages and how to go on."""
        found = self.messages()
        first = found.events[0].thread_seq if found.events and found.more else None
        return Response(
            {
                "data": [event_json(event, thread_id) for event in found.events],
                "has_more": found.more,
                "next_before_seq": first,
            }
        )


class RunMessagesView(RunObjectView):
    """The messages of one run."""

    capabilities: ClassVar = {"GET": "tasks:read"}
    query_models: ClassVar = {"GET": MessagesQuery}

    def get(self, request: Request, run_id: UUID, thread_id: str | None = None) -> Response:
        """Return the newest messages, oldest first."""
        run, query = self.run(), self.query_as(MessagesQuery)
        window = Window(query.limit, query.before_seq, query.after_seq)
        found = list_messages(self.principal, run.thread_id, window, task_id=run.task_id)
        data = [event_json(event, run.thread_key) for event in found.events]
        return Response({"data": data, "has_more": found.more})


class RunEventsView(RunObjectView):
    """The events of one run."""

    capabilities: ClassVar = {"GET": "tasks:read"}
    query_models: ClassVar = {"GET": EventsQuery}

    def get(self, request: Request, run_id: UUID, thread_id: str) -> Response:
        """Return events in order."""
        run, query = self.run(), self.query_as(EventsQuery)
        names = [name.strip() for name in query.event_types.split(",") if name.strip()]
        types, message_types = stored_types(names)
        found = list_run_events(
            self.principal,
            run.task_id,
            after=query.after_seq,
            limit=query.limit,
            types=types if names else None,
            message_types=message_types,
            child=query.child,
        )
        shown = [event_json(event, thread_id) for event in found]
        return Response([one for one in shown if not names or one["event_type"] in names])


class WorkspaceChangesView(RunObjectView):
    """What a run changed in the files of its thread."""

    capabilities: ClassVar = {"GET": "tasks:read"}

    def get(self, request: Request, run_id: UUID, thread_id: str) -> Response:
        """Return created and modified files, by path; nothing while the run has not begun."""
        return Response(changes_json(workspace_changes(self.principal, self.run())))


class TokenUsageView(ThreadObjectView):
    """What a thread's runs used."""

    capabilities: ClassVar = {"GET": "tasks:read"}
    query_models: ClassVar = {"GET": UsageQuery}

    def get(self, request: Request, thread_id: str) -> Response:
        """Return the sums over runs that ended, or over all."""
        active = self.query_as(UsageQuery).include_active
        usage = usage_of_thread(self.principal, self.thread().id, include_active=active)
        return Response(usage_json(thread_id, usage))
