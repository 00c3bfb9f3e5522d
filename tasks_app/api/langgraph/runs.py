"""Runs: made, listed, shown, deleted. What stays open until something happens is in `streams`."""

from collections.abc import Mapping
from typing import Any, ClassVar
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from tasks_app.admission import runs as writing
from tasks_app.admission.idempotency import HEADER
from tasks_app.admission.runs import CreatedRun
from tasks_app.api.base import trace_of
from tasks_app.api.langgraph.base import DoorView, RunObjectView, ThreadObjectView, located
from tasks_app.api.langgraph.inputs import ActionQuery, CancelMany, RunListQuery, RunPageQuery
from tasks_app.api.langgraph.render import run_json, time_text
from tasks_app.api.langgraph.threads import NO_CONTENT, selected
from tasks_app.domain.errors import FieldProblem, InvalidInputError
from tasks_app.domain.run_bodies import parse
from tasks_app.queries.runs import get_run, list_runs, page_runs

MAX_BATCH = 100


class RunListView(ThreadObjectView):
    """The runs of a thread, and the way to a new one."""

    capabilities: ClassVar = {"GET": "tasks:read", "POST": "tasks:create"}
    query_models: ClassVar = {"GET": RunListQuery}

    def get(self, request: Request, thread_id: str) -> Response:
        """Return runs, newest first."""
        query = self.query_as(RunListQuery)
        found = list_runs(
            self.principal,
            self.thread().id,
            status=query.status,
            limit=query.limit,
            offset=query.offset,
        )
        return Response([selected(run_json(row), query.select) for row in found])

    def post(self, request: Request, thread_id: str) -> Response:
        """Make a run, answer the one that waits, or return what the key made before."""
        return _created(self, thread_id)


class RunPageView(ThreadObjectView):
    """The runs of a thread in pages."""

    capabilities: ClassVar = {"GET": "tasks:read"}
    query_models: ClassVar = {"GET": RunPageQuery}

    def get(self, request: Request, thread_id: str) -> Response:
        """Return one page, newest first."""
        query = self.query_as(RunPageQuery)
        page = page_runs(
            self.principal, self.thread().id, before=query.before_run_id, limit=query.limit
        )
        last = page.runs[-1] if page.more else None
        return Response(
            {
                "data": [run_json(row) for row in page.runs],
                "has_more": page.more,
                "next_before_created_at": None if last is None else time_text(last.created_at),
                "next_before_run_id": None if last is None else str(last.head.task_id),
            }
        )


class RunView(RunObjectView):
    """One run."""

    capabilities: ClassVar = {"GET": "tasks:read", "DELETE": "tasks:cancel"}

    def get(self, request: Request, thread_id: str, run_id: UUID) -> Response:
        """Return the run."""
        return Response(run_json(get_run(self.principal, run_id, thread_id)))

    def delete(self, request: Request, thread_id: str, run_id: UUID) -> Response:
        """Take a run that has ended out of sight."""
        writing.delete_run(self.principal, task_id=self.run().task_id)
        return Response(status=NO_CONTENT)


class StatelessRunView(DoorView):
    """The way to a run in a thread of its own."""

    capabilities: ClassVar = {"POST": "tasks:create"}

    def post(self, request: Request) -> Response:
        """Make a run."""
        return _created(self, None)


class BatchView(DoorView):
    """The way to many runs at once."""

    capabilities: ClassVar = {"POST": "tasks:create"}

    def post(self, request: Request) -> Response:
        """Make each run by itself; the first that does not fit ends it, those before it stay."""
        bodies = self.document()
        if not isinstance(bodies, list) or not 1 <= len(bodies) <= MAX_BATCH:
            detail = f"A list of 1 to {MAX_BATCH} runs."
            raise InvalidInputError(detail, [FieldProblem("", "invalid_type", detail)])
        parts = [split_thread(body) for body in bodies]
        parsed = [(key, parse(body)) for key, body in parts]
        made = [
            writing.create_run(
                self.principal,
                thread_key=key,
                body=body,
                request_id=self.request_id,
                trace=trace_of(request),
            )
            for key, body in parsed
        ]
        return Response([run_json(get_run(self.principal, one.task_id)) for one in made])


class CancelManyView(DoorView):
    """The end of many runs."""

    capabilities: ClassVar = {"POST": "tasks:cancel"}
    query_models: ClassVar = {"POST": ActionQuery}

    def post(self, request: Request) -> Response:
        """Ask the caller's runs to end."""
        body = self.body(CancelMany)
        writing.cancel_runs(
            self.principal,
            action=self.query_as(ActionQuery).action,
            status=body.status,
            thread_key=body.thread_id,
            task_ids=body.run_ids,
        )
        return Response(status=NO_CONTENT)


def split_thread(body: Any) -> tuple[str | None, Any]:
    """Return the thread that a body of a batch names, and the rest of it.

    The JavaScript client names the assistant twice in a batch, in its own spelling and in ours.
    """
    if not isinstance(body, Mapping):
        return None, body
    rest = dict(body)
    if "assistant_id" in rest:
        rest.pop("assistantId", None)
    thread_key = rest.pop("thread_id") if isinstance(rest.get("thread_id"), str) else None
    return thread_key, rest


def replay_headers(created: CreatedRun) -> dict[str, str]:
    """Return what an answer says about a run that an earlier request made."""
    return {"Idempotent-Replayed": "true"} if created.replayed else {}


def _created(view: DoorView, thread_key: str | None) -> Response:
    created = writing.create_run(
        view.principal,
        thread_key=thread_key,
        body=parse(view.document()),
        idempotency_key=view.request.headers.get(HEADER),
        request_id=view.request_id,
        trace=trace_of(view.request),
    )
    row = get_run(view.principal, created.task_id)
    answer = located(Response(run_json(row)), row.head.thread_key, row.head.task_id)
    for name, value in replay_headers(created).items():
        answer.headers[name] = value
    return answer
