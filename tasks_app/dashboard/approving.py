"""The inbox of approvals and the page on which one act is decided."""

import difflib
import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core import signing
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from tasks_app.admission import approvals
from tasks_app.dashboard.access import needs
from tasks_app.dashboard.posting import http_status, read_whole
from tasks_app.domain.errors import (
    ApprovalChangedError,
    InvalidInputError,
    NotFoundError,
    RuntimeFault,
)
from tasks_app.domain.principal import Principal
from tasks_app.queries.approvals import (
    ApprovalRow,
    find_next_waiting,
    get_approval,
    list_inbox,
)
from tasks_app.queries.artifacts import list_outputs
from tasks_app.templatetags import acts, refusals
from tasks_app.templatetags.dashboard import has_odd

_READ_SALT = "dashboard.approval.read"
_READ_MAX = 16_000
_TABS = ("mine", "waiting", "decided")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a difference."""

    text: str
    gone: bool


@require_GET
@needs("approvals:read")
def inbox(request: HttpRequest, principal: Principal) -> HttpResponse:
    """Show what waits for a decision, nearest deadline first."""
    return render(request, "dashboard/approvals.html", _inbox_context(request, principal))


@require_GET
@needs("approvals:read")
def inbox_live(request: HttpRequest, principal: Principal) -> HttpResponse:
    """Return the rows of the inbox for a refresh in place."""
    return render(request, "dashboard/_approvals_live.html", _inbox_context(request, principal))


@require_http_methods(["GET", "HEAD", "POST"])
@needs("approvals:read")
def approval(request: HttpRequest, principal: Principal, approval_id: UUID) -> HttpResponse:
    """Show one act in full, or decide it."""
    if request.method != "POST":
        page = get_approval(principal, approval_id)
        return render(request, "dashboard/approval.html", _page_context(principal, page))
    try:
        _decide(request, principal, approval_id)
    except NotFoundError:
        raise
    except RuntimeFault as fault:
        return _refused(request, principal, approval_id, fault)
    return _decided(request, principal, approval_id)


def _decide(request: HttpRequest, principal: Principal, approval_id: UUID) -> None:
    approvals.decide_approval(
        principal,
        approval_id=approval_id,
        decision=request.POST.get("decision", ""),
        args_sha256=request.POST.get("args_sha256", ""),
        expected_version=read_whole(request.POST.get("version", "")),
        reason=request.POST.get("reason", ""),
        source="dashboard",
    )


def _decided(request: HttpRequest, principal: Principal, approval_id: UUID) -> HttpResponse:
    """Lead to the next waiting approval, or back to the inbox."""
    approved = request.POST.get("decision") == "approve"
    text = (
        _("%(tool)s approved. “%(title)s” goes on.")
        if approved
        else _("%(tool)s denied. “%(title)s” reads your reason.")
    )
    decided = get_approval(principal, approval_id)
    messages.success(request, text % {"tool": decided.tool, "title": decided.task_title})
    following = find_next_waiting(principal, after=approval_id)
    if following is not None:
        return redirect("dashboard:approval", following)
    return redirect("dashboard:approvals")


def _refused(
    request: HttpRequest, principal: Principal, approval_id: UUID, fault: RuntimeFault
) -> HttpResponse:
    page = get_approval(principal, approval_id)
    context = _page_context(principal, page) | {"reason": request.POST.get("reason", "")}
    if isinstance(fault, ApprovalChangedError):
        context["changed"] = _change(request, page)
    elif isinstance(fault, InvalidInputError) and any(
        p.pointer.endswith("/reason") for p in fault.errors
    ):
        context["reason_error"] = refusals.detail(fault.errors[0])
    else:
        context["problem"] = refusals.say(fault)
    return render(request, "dashboard/approval.html", context, status=http_status(fault))


def _change(request: HttpRequest, page: ApprovalRow) -> dict[str, Any]:
    """Return the difference between what the person read and what waits now."""
    before = request.POST.get("args_sha256", "")
    try:
        read = str(signing.loads(request.POST.get("read", ""), salt=_READ_SALT))
    except signing.BadSignature:
        return {"old": before, "new": page.args_sha256, "lines": ()}
    lines = difflib.ndiff(read.splitlines(), _as_text(page).splitlines())
    shown = [Line(line[2:], line.startswith("-")) for line in lines if line[:1] in "+-"]
    return {"old": before, "new": page.args_sha256, "lines": shown}


def _inbox_context(request: HttpRequest, principal: Principal) -> dict[str, Any]:
    can_decide = principal.can("approvals:decide")
    tab = request.GET.get("tab", "")
    if tab not in _TABS or (tab == "mine" and not can_decide):
        tab = "mine" if can_decide else "waiting"
    labels = {
        "mine": _("Waiting for me"),
        "waiting": _("All waiting"),
        "decided": _("Decided"),
    }
    return {
        "tab": tab,
        "tabs": [
            {"name": name, "label": labels[name]} for name in _TABS if can_decide or name != "mine"
        ],
        "approvals": [
            {
                "row": row,
                "act": acts.describe(row.workflow, row.tool, row.arguments),
                "own": row.requested_by.id == principal.user_id,
            }
            for row in list_inbox(principal, tab)
        ],
    }


def _page_context(principal: Principal, page: ApprovalRow) -> dict[str, Any]:
    text = _as_text(page)
    return {
        "item": page,
        "artifacts": list_outputs(principal, page.task_id, presented_only=True),
        "act": acts.describe(page.workflow, page.tool, page.arguments),
        "odd": has_odd(text) or has_odd(page.tool),
        "read": signing.dumps(text, salt=_READ_SALT, compress=True)
        if len(text) <= _READ_MAX
        else "",
        "denied_because": _denied_because(principal, page),
        "next_id": find_next_waiting(principal, after=page.id),
    }


def _denied_because(principal: Principal, page: ApprovalRow) -> str:
    """Return why the buttons are missing; admission decides, this only explains."""
    if not principal.can("approvals:decide"):
        return _("Needs the capability approvals:decide.")
    if page.requested_by.id == principal.user_id:
        return _("You asked for this; someone else must decide.")
    return ""


def _as_text(page: ApprovalRow) -> str:
    act = acts.describe(page.workflow, page.tool, page.arguments)
    facts = {argument.name: argument.value for argument in act.arguments}
    return json.dumps(facts, ensure_ascii=False, indent=2, sort_keys=True, default=str)
