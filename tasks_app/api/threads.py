"""Threads as /runtime lists them; what is in them is the run door's, under /api."""

from typing import ClassVar

from rest_framework.request import Request
from rest_framework.response import Response

from tasks_app.api.base import RuntimeView
from tasks_app.api.documented import documented
from tasks_app.api.lists import ThreadListQuery
from tasks_app.api.records import ThreadOut, ThreadPage
from tasks_app.queries.threads import list_threads


class ThreadListView(RuntimeView):
    """The threads that the caller sees."""

    capabilities: ClassVar = {"GET": "tasks:read"}
    query_models: ClassVar = {"GET": ThreadListQuery}

    @documented("listThreads", "List threads", capability="tasks:read", query=ThreadListQuery,
                returns=ThreadPage)  # fmt: skip
    def get(self, request: Request) -> Response:
        """Return threads, newest first by default; tasks of one: `/runtime/tasks?threadId=`."""
        return self.page(ThreadOut, list_threads)
