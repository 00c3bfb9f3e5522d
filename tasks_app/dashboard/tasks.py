"""Pages of tasks: the list, one task with its parts, their live fragments, downloads."""

from typing import Any
from uuid import UUID

from django.http import FileResponse, Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET

from tasks_app.admission.commands import need_of
from tasks_app.dashboard import steering
from tasks_app.dashboard.access import needs
from tasks_app.dashboard.taskpage import TABS, task_context
from tasks_app.domain.principal import Principal
from tasks_app.domain.states import TaskStatus
from tasks_app.domain.steering import CommandType
from tasks_app.queries.artifacts import get_artifact
from tasks_app.queries.tasks import TaskFilters, count_tasks, list_tasks
from tasks_app.tools import artifact_store
from tasks_app.workflows import registry

_MAX_QUERY = 200

# What many tasks can be told at once; the pages for it are in `telling`.
MANY = {
    CommandType.PAUSE: gettext_lazy("Pause tasks…"),
    CommandType.RESUME: gettext_lazy("Resume tasks…"),
    CommandType.SET_PRIORITY: gettext_lazy("Set priority…"),
    CommandType.CANCEL: gettext_lazy("Cancel tasks…"),
}


@require_GET
@needs("tasks:read")
def index(request: HttpRequest, principal: Principal) -> HttpResponse:
    """Lead to the list of tasks."""
    return redirect("dashboard:tasks")


@require_GET
@needs("tasks:read")
def task_list(request: HttpRequest, principal: Principal) -> HttpResponse:
    """Show the newest tasks that fit the address bar's filter."""
    return render(request, "dashboard/tasks.html", _list_context(principal, request.GET))


@require_GET
@needs("tasks:read")
def task_list_live(request: HttpRequest, principal: Principal) -> HttpResponse:
    """Return the rows of the list for a refresh in place."""
    return render(request, "dashboard/_tasks_live.html", _list_context(principal, request.GET))


@require_GET
@needs("tasks:read")
def task(
    request: HttpRequest, principal: Principal, task_id: UUID, tab: str = "overview"
) -> HttpResponse:
    """Show one task: head, steering panel and one of its parts."""
    if tab not in TABS:
        raise Http404
    context = task_context(principal, task_id, tab, request.GET.dict())
    return render(
        request, "dashboard/task.html", context | steering.panel(principal, context["head"])
    )


@require_GET
@needs("tasks:read")
def task_live(request: HttpRequest, principal: Principal, task_id: UUID) -> HttpResponse:
    """Return head and body of a task's page for a refresh in place."""
    tab = request.GET.get("tab", "overview")
    if tab not in TABS:
        raise Http404
    context = task_context(principal, task_id, tab, request.GET.dict())
    return render(request, "dashboard/_live.html", context)


@require_GET
@needs("artifacts:read")
def artifact(request: HttpRequest, principal: Principal, artifact_id: UUID) -> FileResponse:
    """Send one output as a download; the browser never runs or draws it."""
    row = get_artifact(principal, artifact_id)
    try:
        data = artifact_store.open_blob(principal.tenant_id, row.sha256)
    except FileNotFoundError:
        raise Http404 from None
    name = row.name.rsplit("/", 1)[-1]
    answer = FileResponse(data, as_attachment=True, filename=name, content_type=row.media_type)
    answer["Content-Length"] = str(row.size_bytes)
    answer["Content-Security-Policy"] = "sandbox"
    answer["X-Content-Type-Options"] = "nosniff"
    return answer


def read_filters(query: QueryDict) -> TaskFilters:
    """Return the filter that stands in the address of the list."""
    return TaskFilters(
        q=query.get("q", "").replace("\x00", "").strip()[:_MAX_QUERY],
        states=tuple(s for s in query.getlist("state") if s in set(TaskStatus)),
        workflow=query.get("workflow", "").replace("\x00", "")[:100],
    )


def _list_context(principal: Principal, query: QueryDict) -> dict[str, Any]:
    filters = read_filters(query)
    cursor = query.get("cursor") or None
    page = list_tasks(principal, filters, cursor)
    return {
        "filters": filters,
        "page": page,
        "chips": _chips(filters, count_tasks(principal, filters)),
        "workflows": [info.name for info in registry.list_workflows()],
        "can_create": principal.can("tasks:create"),
        "many": _many(principal),
        "query": _query(filters, cursor=cursor),
        "first_query": _query(filters),
        "next_query": _query(filters, cursor=page.next_cursor),
        "has_previous": cursor is not None,
    }


def _many(principal: Principal) -> list[tuple[str, Any]]:
    """Return what all tasks of the list may be told at once, with its words."""
    return [
        (kind.value, label)
        for kind, label in MANY.items()
        if principal.can(need_of(kind)) and not principal.suspended
    ]


def _chips(filters: TaskFilters, counts: dict[str, int]) -> list[dict[str, Any]]:
    chips: list[dict[str, Any]] = [
        {
            "state": "",
            "count": sum(counts.values()),
            "active": not filters.states,
            "query": _query(filters, states=()),
        }
    ]
    for status in TaskStatus:
        if counts.get(status) or status in filters.states:
            left = tuple(s for s in filters.states if s != status)
            active = status in filters.states
            chips.append(
                {
                    "state": str(status),
                    "count": counts.get(status, 0),
                    "active": active,
                    "query": _query(filters, states=left if active else (*left, str(status))),
                }
            )
    return chips


def _query(
    filters: TaskFilters,
    *,
    states: tuple[str, ...] | None = None,
    cursor: str | None = None,
) -> str:
    query = QueryDict(mutable=True)
    if filters.q:
        query["q"] = filters.q
    query.setlist("state", list(filters.states if states is None else states))
    if filters.workflow:
        query["workflow"] = filters.workflow
    if cursor:
        query["cursor"] = cursor
    return query.urlencode()
