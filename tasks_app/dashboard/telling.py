"""Pages on which many tasks are told the same: chosen as in the list, previewed, each by itself."""

from typing import Any
from uuid import uuid4

from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from tasks_app.admission import bulk
from tasks_app.admission.bulk import Order, Refused, Target
from tasks_app.admission.commands import need_of
from tasks_app.dashboard.access import needs
from tasks_app.dashboard.posting import errors_by_field, http_status, read_uuid, read_whole
from tasks_app.dashboard.tasks import MANY, read_filters
from tasks_app.domain.errors import InvalidInputError, RuntimeFault
from tasks_app.domain.principal import Principal
from tasks_app.domain.states import TaskStatus
from tasks_app.domain.steering import CommandType
from tasks_app.policy.capabilities import allows
from tasks_app.queries.tasks import list_titles
from tasks_app.templatetags import refusals

# A preview is of what would be said; these words stand for it where nothing was said yet.
_UNSAID = "-"
_FILTERS = frozenset({"q", "state", "workflow", "cursor"})


@require_http_methods(["GET", "HEAD", "POST"])
@needs("tasks:read")
def many(request: HttpRequest, principal: Principal, kind: str) -> HttpResponse:
    """Preview one command for the tasks that the address chooses, or give it to those ticked."""
    if kind not in frozenset(bulk.BULK_TYPES) or not _chooses(request.GET):
        raise Http404
    if request.method != "POST":
        return _preview(request, principal, CommandType(kind))
    try:
        return _outcome(request, principal, CommandType(kind))
    except RuntimeFault as fault:
        return _preview(request, principal, CommandType(kind), fault)


def _chooses(query: QueryDict) -> bool:
    """Tell whether all of an address is understood: a misspelt filter would mean every task."""
    states = {state for state in query.getlist("state") if state}
    return query.keys() <= _FILTERS and states <= set(TaskStatus)


def _preview(
    request: HttpRequest, principal: Principal, kind: CommandType, fault: RuntimeFault | None = None
) -> HttpResponse:
    filters = read_filters(request.GET)
    choice = bulk.choose_tasks(principal, filters, request.GET.get("cursor") or None)
    denied = "" if allows(principal, need_of(kind)) else need_of(kind)
    blocked: dict[Any, str] = {}
    if not denied:
        order = Order(kind, {"priority": 5} if kind == CommandType.SET_PRIORITY else {}, _UNSAID)
        found = bulk.preview_tasks(principal, order, choice.targets)
        blocked = {
            one.task_id: refusals.say(one.fault) for one in found if isinstance(one, Refused)
        }
    posted = None if fault is None else _ticked(request.POST)
    rows = [_row(one, blocked.get(one.task_id, ""), posted) for one in choice.targets]
    problems = fault.errors if isinstance(fault, InvalidInputError) else ()
    next_query = request.GET.copy()
    next_query["cursor"] = choice.next_cursor or ""
    context = {
        "kind": kind.value,
        "label": _label(kind),
        "denied": denied,
        "rows": rows,
        "will": sum(1 for row in rows if row["ticked"]),
        "can": any(not row["blocked"] for row in rows),
        "next_query": next_query.urlencode() if choice.next_cursor else "",
        "bulk_id": request.POST.get("bulk_id") or str(uuid4()),
        "posted": request.POST,
        "errors": errors_by_field(problems),
        "problem": "" if fault is None or problems else refusals.say(fault),
    }
    status = 200 if fault is None else http_status(fault)
    return render(request, "dashboard/many.html", context, status=status)


def _label(kind: CommandType) -> str:
    """Return what the page does; the ellipsis of the list's button promised this page."""
    return str(MANY[kind]).rstrip("…")


def _ticked(posted: QueryDict) -> dict[str, str]:
    """Return the versions that were seen of the tasks that were ticked."""
    return {
        task: seen
        for task, _colon, seen in (text.partition(":") for text in posted.getlist("task"))
    }


def _row(one: Any, blocked: str, posted: dict[str, str] | None) -> dict[str, Any]:
    """Return a row of the preview; after a refusal the choice stands as it was posted.

    A task that was ticked keeps the version that its reader saw: what came since is a conflict.
    """
    key = str(one.task_id)
    if posted is None:
        return {
            "task": one,
            "blocked": blocked,
            "ticked": not blocked,
            "seen": one.expected_version,
        }
    seen = posted.get(key, one.expected_version)
    return {"task": one, "blocked": blocked, "ticked": not blocked and key in posted, "seen": seen}


def _outcome(request: HttpRequest, principal: Principal, kind: CommandType) -> HttpResponse:
    posted = request.POST
    targets = _targets(posted)
    payload: dict[str, Any] = {}
    if kind == CommandType.SET_PRIORITY:
        payload = {"priority": read_whole(posted.get("priority", ""))}
    outcomes = bulk.steer_tasks(
        principal,
        Order(kind, payload, posted.get("reason", "")),
        targets,
        bulk_id=read_uuid(posted.get("bulk_id", "")),
        source="dashboard",
    )
    titles = list_titles(principal, [target.task_id for target in targets])
    rows = [
        {
            "task_id": target.task_id,
            "title": titles.get(target.task_id, ""),
            "refused": refusals.say(one.fault) if isinstance(one, Refused) else "",
        }
        for target, one in zip(targets, outcomes, strict=True)
    ]
    done = sum(1 for row in rows if not row["refused"])
    context = {"label": _label(kind), "kind": kind.value, "rows": rows, "done": done,
               "query": request.GET.urlencode()}  # fmt: skip
    return render(request, "dashboard/many_outcome.html", context)


def _targets(posted: QueryDict) -> list[Target]:
    """Return the tasks that were ticked, each with the version that was seen."""
    targets = []
    for text in posted.getlist("task"):
        task_id, _colon, version = text.partition(":")
        targets.append(Target(read_uuid(task_id), read_whole(version)))
    if not targets:
        raise InvalidInputError(_("No task was chosen."))
    return targets
