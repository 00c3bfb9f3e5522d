"""Threads and their states."""

from collections.abc import Mapping
from typing import Any, ClassVar

from rest_framework.request import Request
from rest_framework.response import Response

from tasks_app.admission import threads as writing
from tasks_app.api.langgraph.base import DoorView, ThreadObjectView
from tasks_app.api.langgraph.inputs import (
    HistoryBody,
    HistoryQuery,
    StateAt,
    StateBody,
    StateQuery,
    ThreadBody,
    ThreadCount,
    ThreadPatch,
    ThreadQuery,
    ThreadSearch,
)
from tasks_app.api.langgraph.render import (
    Json,
    checkpoint_json,
    state_json,
    thread_json,
    waits_for_a_person,
)
from tasks_app.domain.errors import NotFoundError
from tasks_app.domain.principal import Principal
from tasks_app.queries.runs import get_head
from tasks_app.queries.thread_states import (
    StateRow,
    get_past_state,
    get_state,
    interrupts_of,
    list_history,
)
from tasks_app.queries.threads import ThreadFilters, ThreadRow, count_threads, search_threads

NO_CONTENT = 204


class ThreadListView(DoorView):
    """The way to a new thread."""

    capabilities: ClassVar = {"POST": "tasks:create"}

    def post(self, request: Request) -> Response:
        """Make a thread."""
        body = self.body(ThreadBody)
        made = writing.create_thread(
            self.principal, key=body.thread_id, metadata=body.metadata, if_exists=body.if_exists
        )
        self.kwargs["thread_id"] = made.key
        return Response(_shown(self.principal, self.thread()))


class ThreadSearchView(DoorView):
    """Threads by what they hold."""

    capabilities: ClassVar = {"POST": "tasks:read"}

    def post(self, request: Request) -> Response:
        """Return visible threads, newest first unless another order is asked for."""
        body = self.body(ThreadSearch)
        found = search_threads(
            self.principal,
            _filters(body, body.ids),
            limit=body.limit,
            offset=body.offset,
            sort_by=body.sort_by,
            descending=body.sort_order == "desc",
        )
        shown = [_shown(self.principal, row) for row in found]
        return Response([selected(one, body.select) for one in shown])


class ThreadCountView(DoorView):
    """How many threads there are."""

    capabilities: ClassVar = {"POST": "tasks:read"}

    def post(self, request: Request) -> Response:
        """Return the number."""
        return Response(count_threads(self.principal, _filters(self.body(ThreadCount))))


class ThreadView(ThreadObjectView):
    """One thread."""

    capabilities: ClassVar = {
        "GET": "tasks:read",
        "PATCH": "tasks:create",
        "DELETE": "tasks:create",
    }
    query_models: ClassVar = {"GET": ThreadQuery}

    def get(self, request: Request, thread_id: str) -> Response:
        """Return the thread with its values."""
        return Response(_shown(self.principal, self.thread()))

    def patch(self, request: Request, thread_id: str) -> Response:
        """Merge metadata."""
        body = self.body(ThreadPatch)
        writing.update_thread(self.principal, key=thread_id, metadata=body.metadata)
        if "return=minimal" in request.headers.get("Prefer", ""):
            return Response(status=NO_CONTENT)
        return Response(_shown(self.principal, self.thread()))

    def delete(self, request: Request, thread_id: str) -> Response:
        """Take the thread out of sight."""
        writing.delete_thread(self.principal, key=thread_id)
        return Response(status=NO_CONTENT)


class StateView(ThreadObjectView):
    """The values of a thread now."""

    capabilities: ClassVar = {"GET": "tasks:read", "POST": "tasks:create"}
    query_models: ClassVar = {"GET": StateQuery}

    def get(self, request: Request, thread_id: str) -> Response:
        """Return the present state."""
        return Response(state_json(get_state(self.principal, self.thread())))

    def post(self, request: Request, thread_id: str) -> Response:
        """Write values as the thread's newest state."""
        body = self.body(StateBody)
        stored = writing.write_state(
            self.principal,
            key=thread_id,
            values=body.values,
            metadata={"as_node": body.as_node} if body.as_node else {},
            checkpoint_id=body.checkpoint_id or _named(body.checkpoint),
        )
        return Response({"checkpoint": checkpoint_json(thread_id, str(stored.id))})


class PastStateView(ThreadObjectView):
    """One earlier state."""

    capabilities: ClassVar = {"GET": "tasks:read"}
    query_models: ClassVar = {"GET": StateQuery}

    def get(self, request: Request, thread_id: str, checkpoint_id: str) -> Response:
        """Return the state."""
        found = get_past_state(self.principal, self.thread(), checkpoint_id)
        return Response(state_json(found))


class StateAtView(ThreadObjectView):
    """One earlier state, named in a body."""

    capabilities: ClassVar = {"POST": "tasks:read"}

    def post(self, request: Request, thread_id: str) -> Response:
        """Return the state."""
        wanted = _named(self.body(StateAt).checkpoint)
        if wanted is None:
            return Response(state_json(get_state(self.principal, self.thread())))
        return Response(state_json(get_past_state(self.principal, self.thread(), wanted)))


class HistoryView(ThreadObjectView):
    """The states of a thread, newest first."""

    capabilities: ClassVar = {"GET": "tasks:read", "POST": "tasks:read"}
    query_models: ClassVar = {"GET": HistoryQuery}

    def get(self, request: Request, thread_id: str) -> Response:
        """Return the newest states."""
        query = self.query_as(HistoryQuery)
        return self._states(query.limit, query.before)

    def post(self, request: Request, thread_id: str) -> Response:
        """Return the newest states, or those behind one of them; of one checkpoint or metadata."""
        body = self.body(HistoryBody)
        wanted = _named(body.checkpoint)
        if wanted is not None:
            found = get_past_state(self.principal, self.thread(), wanted)
            return Response([state_json(found)])
        before = body.before if isinstance(body.before, str) else _named(body.before)
        return self._states(body.limit, before, body.metadata)

    def _states(
        self, limit: int, before: str | None, metadata: Mapping[str, Any] | None = None
    ) -> Response:
        def fits(state: StateRow) -> bool:
            return (metadata or {}).items() <= state.metadata.items()

        found = list_history(self.principal, self.thread(), limit=limit, before=before, fits=fits)
        return Response([state_json(state) for state in found])


def selected(shown: Json, names: list[str]) -> Json:
    """Return only what was asked for, or everything."""
    return {name: shown[name] for name in names if name in shown} if names else shown


def _shown(principal: Principal, row: ThreadRow) -> Json:
    if not waits_for_a_person(row) or row.run_id is None:
        return thread_json(row)
    try:
        run = get_head(principal, row.run_id)
    except NotFoundError:
        return thread_json(row)
    return thread_json(row, interrupts_of(principal, run))


def _filters(body: ThreadCount, keys: list[str] | None = None) -> ThreadFilters:
    return ThreadFilters(
        metadata=body.metadata, values=body.values, keys=keys or (), status=body.status
    )


def _named(checkpoint: Mapping[str, Any] | None) -> str | None:
    """Return the id in a checkpoint's name, which clients also nest in `configurable`."""
    named = checkpoint or {}
    inner = named.get("configurable")
    found = (inner if isinstance(inner, dict) else named).get("checkpoint_id")
    return found if isinstance(found, str) else None
