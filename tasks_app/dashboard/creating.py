"""Starting a task: choose a workflow, fill in its form, hand it to admission."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from tasks_app.admission.tasks import admit_task
from tasks_app.dashboard import budgeting, forms
from tasks_app.dashboard.access import needs
from tasks_app.dashboard.posting import http_status, read_whole
from tasks_app.domain.errors import (
    FieldProblem,
    InvalidInputError,
    RuntimeFault,
    UnknownWorkflowError,
)
from tasks_app.domain.principal import Principal
from tasks_app.queries.snapshot import get_snapshot
from tasks_app.templatetags import refusals
from tasks_app.workflows import registry
from tasks_app.workflows.definition import WorkflowInfo

_DEFAULT_PRIORITY = 5
_Form = tuple[WorkflowInfo, forms.GoalForm, budgeting.BudgetForm]


@require_GET
@needs("tasks:create")
def choose(request: HttpRequest, principal: Principal) -> HttpResponse:
    """Show the workflows that can be started."""
    return render(request, "dashboard/new.html", {"workflows": registry.list_workflows()})


@require_http_methods(["GET", "HEAD", "POST"])
@needs("tasks:create")
def create(request: HttpRequest, principal: Principal, workflow: str) -> HttpResponse:
    """Show a workflow's form, or start a task from it."""
    flow = _find_workflow(workflow)
    if request.method != "POST":
        return _show(request, *_first_form(request, principal, flow))
    read = forms.read_goal(flow.schema, request.POST)
    try:
        task_id = _admit(request, principal, flow, read)
    except RuntimeFault as fault:
        again = _form_again(request, principal, flow, read, fault)
        return _show(request, *again, status=http_status(fault))
    return redirect("dashboard:task", task_id)


def _find_workflow(name: str) -> WorkflowInfo:
    try:
        return registry.get_workflow(name)
    except UnknownWorkflowError:
        raise Http404 from None


def _admit(
    request: HttpRequest, principal: Principal, flow: WorkflowInfo, read: forms.ReadGoal
) -> UUID:
    posted = request.POST
    priority = read_whole(posted.get("priority", "") or str(_DEFAULT_PRIORITY))
    problems = list(read.problems)
    if priority is None:
        problems.append(FieldProblem("/priority", "invalid_value", _("A whole number, 0 to 9.")))
    limits, wrong = budgeting.read(posted)
    problems += wrong
    if problems or priority is None:
        text = _("Some fields need another look. Nothing was stored.")
        raise InvalidInputError(text, problems)
    admitted = admit_task(
        principal,
        workflow=flow.name,
        goal=read.goal,
        title=posted.get("title", "").strip() or None,
        idempotency_key=posted.get("idempotency_key") or None,
        source="dashboard",
        priority=priority,
        budget=limits or None,
    )
    return admitted.task_id


@dataclass(frozen=True, slots=True)
class _Repeated:
    """What "Run again" fills the form with; nothing for a new task."""

    goal: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    limits: Mapping[str, int] = field(default_factory=dict)


def _first_form(request: HttpRequest, principal: Principal, flow: WorkflowInfo) -> _Form:
    before = _task_to_repeat(request, principal)
    form = forms.GoalForm(
        fields=forms.build_fields(flow.schema, before.goal),
        idempotency_key=str(uuid4()),
        title=before.title,
        priority=str(_DEFAULT_PRIORITY),
        filled=bool(before.goal),
    )
    return flow, form, budgeting.build(principal, flow, before.limits)


def _task_to_repeat(request: HttpRequest, principal: Principal) -> _Repeated:
    """Return what the task had that "Run again" was pressed on."""
    try:
        task_id = UUID(request.GET.get("from", ""))
    except ValueError:
        return _Repeated()
    snap = get_snapshot(principal, task_id)
    return _Repeated(snap.goal, snap.title, {line.kind: line.limit for line in snap.budget})


def _form_again(
    request: HttpRequest,
    principal: Principal,
    flow: WorkflowInfo,
    read: forms.ReadGoal,
    fault: RuntimeFault,
) -> _Form:
    problems = fault.errors if isinstance(fault, InvalidInputError) else ()
    fields = forms.build_fields(flow.schema, read.goal, problems)
    budget = budgeting.build(principal, flow, budgeting.posted_values(request.POST), problems)
    limited = [shown for p in problems if (shown := budget.problem_at(p.pointer))]
    others = [p for p in problems if budget.problem_at(p.pointer) is None]
    form = forms.GoalForm(
        fields=fields,
        idempotency_key=request.POST.get("idempotency_key", ""),
        title=request.POST.get("title", ""),
        priority=request.POST.get("priority", ""),
        problem=refusals.say(fault) if len(problems) != 1 else "",
        problems=(*forms.show_problems(fields, others), *limited),
        errors={p.pointer.lstrip("/"): refusals.detail(p) for p in problems},
        filled=True,
    )
    return flow, form, budget


def _show(
    request: HttpRequest,
    flow: WorkflowInfo,
    form: forms.GoalForm,
    budget: budgeting.BudgetForm,
    *,
    status: int = 200,
) -> HttpResponse:
    context = {"flow": flow, "form": form, "budget": budget}
    return render(request, "dashboard/new_form.html", context, status=status)
