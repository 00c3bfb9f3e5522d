"""Tasks: start one, list them, read where one stands."""

from typing import ClassVar, cast
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import override

from tasks_app.admission.idempotency import HEADER, clean_key
from tasks_app.admission.tasks import admit_task
from tasks_app.api.base import REPLAYED, Input, RuntimeView, answer, trace_of
from tasks_app.api.documented import documented
from tasks_app.api.inputs import TaskInput
from tasks_app.api.lists import TaskListQuery
from tasks_app.api.outputs import TaskCreated, TaskItem, TaskOut, TaskPage
from tasks_app.queries.snapshot import TaskSnapshot, get_snapshot, get_version
from tasks_app.queries.tasks import TaskFilters, estimate_tasks, list_tasks, require_visible


class TaskObjectView(RuntimeView):
    """A route below one task."""

    @override
    def look_up(self) -> None:
        """Refuse a task that is not visible."""
        require_visible(self.principal, self.kwargs["task_id"])


class TaskListView(RuntimeView):
    """All visible tasks, and the way to a new one."""

    capabilities: ClassVar = {"GET": "tasks:read", "POST": "tasks:create"}
    query_models: ClassVar = {"GET": TaskListQuery}

    @documented(
        "listTasks", "List tasks", capability="tasks:read", query=TaskListQuery, returns=TaskPage
    )
    def get(self, request: Request) -> Response:
        """Return the visible tasks, the newest first unless `sort` says otherwise."""
        query = self.query_as(TaskListQuery)
        found = self.page(TaskItem, list_tasks)
        if query.count is not None:
            found.data["estimate"] = estimate_tasks(
                self.principal, cast(TaskFilters, query.filters)
            )
        return found

    @documented(
        "createTask",
        "Start a task",
        capability="tasks:create",
        body=TaskInput,
        returns=TaskCreated,
        status=201,
        replays=True,
        replay_status=200,
        codes=(
            "not_found",
            "unknown_workflow",
            "workflow_failed",
            "budget_required",
            "budget_insufficient",
        ),
        example={
            "workflow": "contracts.review",
            "goal": {"folder": "/srv/contracts"},
            "checkpointPolicy": {"everySteps": 10, "maxSeconds": 60},
            "approvalPolicy": {"before": ["publish_report"]},
            "budget": {"steps": 10_000, "activeSeconds": 3_600},
        },
    )
    def post(self, request: Request) -> Response:
        """Take a task; a repeated Idempotency-Key gives back the first one."""
        body = self.body(TaskInput)
        admitted = admit_task(
            self.principal,
            workflow=body.workflow,
            goal=body.goal,
            title=body.title,
            idempotency_key=clean_key(request.headers.get(HEADER)),
            source="rest",
            priority=body.priority,
            checkpoint_policy=_given(body.checkpoint_policy),
            approval_policy=_given(body.approval_policy),
            budget=_given(body.budget),
            thread_id=body.thread_id,
            webhook=body.webhook or "",
            request_id=self.request_id,
            trace=trace_of(request),
        )
        snapshot = get_snapshot(self.principal, admitted.task_id)
        created = TaskCreated.of(snapshot)
        headers = {"Location": created.status_url}
        if admitted.replayed:
            headers[REPLAYED] = "true"
        return answer(created, status=200 if admitted.replayed else 201, headers=headers)


class TaskView(TaskObjectView):
    """One task."""

    capabilities: ClassVar = {"GET": "tasks:read"}

    @documented(
        "getTask",
        "Read a task's present state",
        capability="tasks:read",
        returns=TaskOut,
        etag=True,
    )
    def get(self, request: Request, task_id: UUID) -> Response:
        """Return the authoritative snapshot, or 304 when the caller has it already."""
        known = request.headers.get("If-None-Match")
        if known is not None and known == _etag(*get_version(self.principal, task_id)):
            return Response(status=304, headers={"ETag": known})
        snapshot = get_snapshot(self.principal, task_id)
        return answer(TaskOut.of(snapshot), headers={"ETag": _etag_of(snapshot)})


def _given(policy: Input | None) -> dict[str, object] | None:
    return None if policy is None else policy.model_dump(exclude_none=True)


def _etag_of(snapshot: TaskSnapshot) -> str:
    return _etag(snapshot.state_version, snapshot.seq)


def _etag(state_version: int, seq: int) -> str:
    return f'W/"{state_version}-{seq}"'
