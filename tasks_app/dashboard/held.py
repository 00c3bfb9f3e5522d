"""Pages of held tasks: grouped by what holds them, and one verb for many of them."""

from typing import Any
from uuid import UUID, uuid4

from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from tasks_app.admission.repairs import Refused, repair_tasks
from tasks_app.dashboard.access import needs
from tasks_app.dashboard.posting import errors_by_field, http_status, read_uuid, read_whole
from tasks_app.domain.errors import InvalidInputError, RuntimeFault
from tasks_app.domain.principal import Principal
from tasks_app.domain.repairs import BULK_MAX, RepairVerb, read_texts
from tasks_app.policy.capabilities import allows
from tasks_app.queries.holds import (
    HeldFilters,
    count_causes,
    list_candidates,
    list_held,
    needs_of,
)
from tasks_app.templatetags import refusals
from tasks_app.templatetags.held import SETTLEMENTS, VERBS

# Tasks of one cause on the page of all causes; the cause's own page has the rest.
_SHOWN = 5


@require_GET
@needs("tasks:read")
def index(request: HttpRequest, principal: Principal) -> HttpResponse:
    """Show what is held, grouped by cause, the most frequent first."""
    return render(request, "dashboard/held.html", _groups(principal))


@require_GET
@needs("tasks:read")
def index_live(request: HttpRequest, principal: Principal) -> HttpResponse:
    """Return the groups for a refresh in place."""
    return render(request, "dashboard/_held_live.html", _groups(principal))


@require_GET
@needs("tasks:read")
def cause(request: HttpRequest, principal: Principal, cause: str) -> HttpResponse:
    """Show every task that is held for one cause, and the verbs for all of them."""
    cursor = request.GET.get("cursor") or None
    page = list_held(principal, HeldFilters(cause=cause), cursor)
    counts = {found.cause: found.count for found in count_causes(principal)}
    context = {
        "cause": cause,
        "count": counts.get(cause, 0),
        "page": page,
        "has_previous": cursor is not None,
        "verbs": _verbs(principal),
        "most": BULK_MAX,
    }
    return render(request, "dashboard/held_cause.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@needs("tasks:read")
def many(request: HttpRequest, principal: Principal, cause: str, verb: str) -> HttpResponse:
    """Preview one verb for all tasks of a cause, or carry it out on those that were shown."""
    if verb not in frozenset(RepairVerb):
        raise Http404
    if request.method != "POST":
        return _preview(request, principal, cause, RepairVerb(verb))
    try:
        return _outcome(request, principal, cause, RepairVerb(verb))
    except RuntimeFault as fault:
        return _preview(request, principal, cause, RepairVerb(verb), fault)


def _groups(principal: Principal) -> dict[str, Any]:
    return {
        "groups": [
            {
                "found": found,
                "rows": list_held(principal, HeldFilters(cause=found.cause), limit=_SHOWN).items,
            }
            for found in count_causes(principal)
        ]
    }


def _verbs(principal: Principal) -> list[dict[str, Any]]:
    return [
        {
            "name": verb.value,
            "words": shown,
            "denied": next((need for need in needs_of(verb) if not allows(principal, need)), ""),
        }
        for verb, shown in VERBS.items()
    ]


def _preview(
    request: HttpRequest,
    principal: Principal,
    cause: str,
    verb: RepairVerb,
    fault: RuntimeFault | None = None,
) -> HttpResponse:
    problems = fault.errors if isinstance(fault, InvalidInputError) else ()
    errors = errors_by_field(problems)
    candidates = [
        {
            "row": found.row,
            "blocked": str(refusals.REFUSALS[found.code]) if found.code else "",
        }
        for found in list_candidates(principal, cause, verb)
    ]
    context = {
        "cause": cause,
        "verb": verb.value,
        "words": VERBS[verb],
        "denied": next((need for need in needs_of(verb) if not allows(principal, need)), ""),
        "candidates": candidates,
        "will": sum(1 for found in candidates if not found["blocked"]),
        "settlements": [(one.value, text) for one, text in SETTLEMENTS.items()],
        "bulk_id": request.POST.get("bulk_id") or str(uuid4()),
        "posted": request.POST,
        "errors": errors,
        "settle": request.POST.dict() | {"errors": errors},
        "problem": "" if fault is None or problems else refusals.say(fault),
    }
    status = 200 if fault is None else http_status(fault)
    return render(request, "dashboard/held_many.html", context, status=status)


def _outcome(
    request: HttpRequest, principal: Principal, cause: str, verb: RepairVerb
) -> HttpResponse:
    posted = request.POST.dict()
    targets = _targets(request.POST)
    titles = {
        found.row.task_id: found.row.title for found in list_candidates(principal, cause, verb)
    }
    outcomes = repair_tasks(
        principal,
        tasks=targets,
        bulk_id=read_uuid(posted.get("bulk_id", "")),
        verb=verb.value,
        payload=read_texts(verb, posted),
        reason=posted.get("reason", ""),
        source="dashboard",
    )
    rows = [
        {
            "task_id": one.task_id,
            "title": titles.get(one.task_id, ""),
            "refused": refusals.say(one.fault) if isinstance(one, Refused) else "",
            "status": "" if isinstance(one, Refused) else one.status,
            "forked": None if isinstance(one, Refused) else one.forked_task_id,
        }
        for one in outcomes
    ]
    done = sum(1 for row in rows if not row["refused"])
    context = {"cause": cause, "words": VERBS[verb], "rows": rows, "done": done}
    return render(request, "dashboard/held_outcome.html", context)


def _targets(posted: QueryDict) -> list[tuple[UUID, int | None]]:
    """Return the tasks that the preview showed, each with the version that was seen."""
    targets = []
    for text in posted.getlist("task"):
        task_id, _colon, version = text.partition(":")
        targets.append((read_uuid(task_id), read_whole(version)))
    if not targets:
        raise InvalidInputError(_("No task was chosen."))
    return targets
