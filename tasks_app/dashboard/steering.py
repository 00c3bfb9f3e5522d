"""The steering panel and the page that changes a goal: parse, submit, show the answer.

A refused command comes back as the same form with the text kept. A version conflict is never
resolved by the server: the person presses "Use version n", then sends again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from django.contrib import messages
from django.core import signing
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from tasks_app.admission import commands
from tasks_app.dashboard import forms, repairing
from tasks_app.dashboard.access import is_htmx, needs
from tasks_app.dashboard.posting import (
    conflict_of,
    errors_by_field,
    http_status,
    read_uuid,
    read_whole,
)
from tasks_app.dashboard.taskpage import Head, get_head, list_acts, task_context
from tasks_app.domain import json_text
from tasks_app.domain.errors import (
    InvalidInputError,
    NotFoundError,
    RuntimeFault,
    VersionConflictError,
)
from tasks_app.domain.principal import Principal
from tasks_app.engine.replanning import PlanPreview
from tasks_app.queries.commands import list_newest_commands
from tasks_app.queries.effects import list_effects_done
from tasks_app.queries.repairs import list_newest_repairs
from tasks_app.templatetags import refusals
from tasks_app.workflows import registry

_GOAL_SALT = "dashboard.goal"


@dataclass(frozen=True, slots=True)
class SteerForm:
    """What the panel's fields hold."""

    expected_version: str
    idempotency_key: str
    reason: str = ""
    answer: str = ""
    priority: str = ""
    type: str = ""
    fields: tuple[forms.FormField, ...] = ()
    errors: Mapping[str, str] = field(default_factory=dict)


@require_http_methods(["GET", "HEAD", "POST"])
@needs("tasks:read")
def steer(request: HttpRequest, principal: Principal, task_id: UUID) -> HttpResponse:
    """Return the panel, or submit the command that its form describes."""
    head = get_head(principal, task_id)
    if request.method != "POST":
        context = panel(principal, head)
        return render(request, context["panel_template"], context)
    if request.POST.get("adopt"):
        return _answer(request, principal, head, form=_adopted(request.POST, head), status=200)
    try:
        outcome = _submit(principal, task_id, request.POST, _payload(request.POST, head))
    except RuntimeFault as fault:
        return _refused(request, principal, task_id, fault)
    return _accepted(request, principal, task_id, outcome)


@require_http_methods(["GET", "HEAD", "POST"])
@needs("tasks:steer")
def goal(request: HttpRequest, principal: Principal, task_id: UUID) -> HttpResponse:
    """Show the goal as a form, or submit what was changed in it."""
    head = get_head(principal, task_id)
    schema = registry.get_workflow(head.snap.workflow).schema
    if request.method != "POST":
        return render(request, "dashboard/goal.html", _goal_context(head, schema))
    read = forms.read_goal(schema, request.POST)
    if request.POST.get("adopt"):
        return _goal_again(request, head, schema, read, None)
    try:
        payload = _goal_payload(request.POST, read)
        if request.POST.get("preview"):
            shown = _preview(principal, task_id, request.POST, payload)
            return _goal_again(request, head, schema, read, None, preview=shown)
        outcome = _submit(principal, task_id, request.POST, payload)
    except RuntimeFault as fault:
        return _goal_again(request, get_head(principal, task_id), schema, read, fault)
    messages.success(request, _accepted_text(outcome))
    return redirect("dashboard:task", task_id)


def panel(
    principal: Principal, head: Head, form: SteerForm | None = None, **notes: object
) -> dict[str, Any]:
    """Return the context of the steering panel; of a held task it is the repair panel."""
    if head.snap.hold is not None:
        return repairing.panel(principal, head, None, **notes)
    task_id = head.snap.task_id
    return {
        "panel_template": "dashboard/_steer.html",
        "head": head,
        "snap": head.snap,
        "facts": head.facts,
        "form": form or _fresh(head),
        "acts": list_acts(principal, head),
        "commands": list_newest_commands(principal, task_id),
        "repairs": list_newest_repairs(principal, task_id),
        "effects_done": [] if head.terminal else list_effects_done(principal, task_id),
        "can_create": principal.can("tasks:create"),
        **notes,
    }


# --- submitting ---------------------------------------------------------------------------------
def _submit(
    principal: Principal, task_id: UUID, posted: QueryDict, payload: Mapping[str, Any]
) -> commands.Submitted:
    """Hand the command to admission, which decides everything."""
    return commands.submit_command(
        principal,
        task_id=task_id,
        command_id=read_uuid(posted.get("idempotency_key", "")),
        type=posted.get("type", "adjust_goal"),
        payload=payload,
        expected_version=read_whole(posted.get("expected_version", "")),
        reason=posted.get("reason", ""),
        source="dashboard",
    )


def _preview(
    principal: Principal, task_id: UUID, posted: QueryDict, payload: Mapping[str, Any]
) -> PlanPreview:
    """Ask what the command would do; a reason need not be given for looking."""
    return commands.preview_command(
        principal,
        task_id=task_id,
        type="adjust_goal",
        payload=payload,
        expected_version=read_whole(posted.get("expected_version", "")),
        reason=posted.get("reason", "").strip() or "preview",
    )


def _payload(posted: QueryDict, head: Head) -> dict[str, Any]:
    match posted.get("type"):
        case "set_priority":
            priority = read_whole(posted.get("priority", ""))
            return {"priority": posted.get("priority", "") if priority is None else priority}
        case "provide_input":
            return {"answer": _answer_value(posted, head)}
        case _:
            return {}


def _answer_value(posted: QueryDict, head: Head) -> Any:
    schema = _question_schema(head)
    if schema.get("properties"):
        read = forms.read_goal(schema, posted)
        if read.problems:
            raise InvalidInputError(_("The answer is not complete."), read.problems)
        return read.goal
    text = posted.get("answer", "")
    try:
        return json_text.loads(text)
    except ValueError:
        return text


def _goal_payload(posted: QueryDict, read: forms.ReadGoal) -> dict[str, Any]:
    if read.problems:
        raise InvalidInputError(
            _("Some fields need another look. Nothing was sent."), read.problems
        )
    patch = forms.merge_patch(_base_goal(posted), read.goal)
    if not patch:
        raise InvalidInputError(_("Nothing was changed, so nothing was sent."))
    return patch


def _base_goal(posted: QueryDict) -> dict[str, Any]:
    """Return the goal that the person started from, so that only their changes are sent."""
    try:
        return dict(signing.loads(posted.get("base", ""), salt=_GOAL_SALT))
    except signing.BadSignature:
        raise InvalidInputError(_("The form is damaged. Load the page again.")) from None


# --- answering ----------------------------------------------------------------------------------
def _accepted(
    request: HttpRequest, principal: Principal, task_id: UUID, outcome: commands.Submitted
) -> HttpResponse:
    if not is_htmx(request):
        messages.success(request, _accepted_text(outcome))
        return redirect("dashboard:task", task_id)
    head = get_head(principal, task_id)
    return _answer(request, principal, head, status=200, accepted=_accepted_text(outcome))


def _refused(
    request: HttpRequest, principal: Principal, task_id: UUID, fault: RuntimeFault
) -> HttpResponse:
    """Show the form again with its text, and why nothing was sent."""
    if isinstance(fault, NotFoundError):
        raise fault
    head = get_head(principal, task_id)
    form = _kept(request.POST, head, fault)
    if isinstance(fault, VersionConflictError):
        note: dict[str, object] = {"conflict": conflict_of(request.POST, head.snap, fault)}
    elif not form.errors:
        note = {"problem": refusals.say(fault)}
    else:
        note = {"problem": _("Some fields need another look. Nothing was sent.")}
    return _answer(request, principal, head, form=form, status=http_status(fault), **note)


def _answer(
    request: HttpRequest,
    principal: Principal,
    head: Head,
    *,
    status: int,
    form: SteerForm | None = None,
    **notes: object,
) -> HttpResponse:
    context = panel(principal, head, form, **notes)
    if is_htmx(request):
        return render(request, context["panel_template"], context, status=status)
    whole = task_context(principal, head.snap.task_id, "overview", {}) | context
    return render(request, "dashboard/task.html", whole, status=status)


def _accepted_text(outcome: commands.Submitted) -> str:
    if outcome.status == "applied":
        return _("It has taken effect.")
    return _("Accepted. It takes effect at the next safe point.")


# --- forms --------------------------------------------------------------------------------------
def _fresh(head: Head) -> SteerForm:
    return SteerForm(
        expected_version=str(head.snap.state_version),
        idempotency_key=str(uuid4()),
        priority=str(head.snap.priority),
        fields=forms.build_fields(_question_schema(head), {}),
    )


def _kept(posted: QueryDict, head: Head, fault: RuntimeFault) -> SteerForm:
    """Return the form as it was sent; a conflict keeps its version until the person adopts."""
    problems = fault.errors if isinstance(fault, InvalidInputError) else ()
    schema = _question_schema(head)
    return SteerForm(
        expected_version=posted.get("expected_version", ""),
        idempotency_key=posted.get("idempotency_key", "") or str(uuid4()),
        reason=posted.get("reason", ""),
        answer=posted.get("answer", ""),
        priority=posted.get("priority", ""),
        type=posted.get("type", ""),
        fields=forms.build_fields(schema, forms.read_goal(schema, posted).goal, problems),
        errors=errors_by_field(problems),
    )


def _adopted(posted: QueryDict, head: Head) -> SteerForm:
    """Return the form on the newest version that the person agreed to act on."""
    schema = _question_schema(head)
    return SteerForm(
        expected_version=posted.get("adopt", ""),
        idempotency_key=str(uuid4()),
        reason=posted.get("reason", ""),
        answer=posted.get("answer", ""),
        priority=posted.get("priority", ""),
        type=posted.get("was", ""),
        fields=forms.build_fields(schema, forms.read_goal(schema, posted).goal),
    )


def _question_schema(head: Head) -> Mapping[str, Any]:
    """Return the schema of the open question's answer, needed fields first: jsonb has no order."""
    if head.snap.open_question is None:
        return {}
    schema = dict(head.snap.open_question.schema)
    needed = schema.get("required", [])
    fields = schema.get("properties", {})
    schema["properties"] = dict(sorted(fields.items(), key=lambda item: item[0] not in needed))
    return schema


def _goal_context(head: Head, schema: Mapping[str, Any]) -> dict[str, Any]:
    form = forms.GoalForm(
        fields=forms.build_fields(schema, head.snap.goal),
        idempotency_key=str(uuid4()),
        expected_version=str(head.snap.state_version),
    )
    return {"head": head, "snap": head.snap, "form": form, "base": _signed_goal(head, schema)}


def _goal_again(
    request: HttpRequest,
    head: Head,
    schema: Mapping[str, Any],
    read: forms.ReadGoal,
    fault: RuntimeFault | None,
    preview: PlanPreview | None = None,
) -> HttpResponse:
    """Show the goal's form with what was typed, and why nothing was sent or what would be done."""
    problems = fault.errors if isinstance(fault, InvalidInputError) else ()
    conflict = fault if isinstance(fault, VersionConflictError) else None
    fields = forms.build_fields(schema, read.goal, problems)
    posted = request.POST
    adopt = posted.get("adopt", "")
    form = forms.GoalForm(
        fields=fields,
        idempotency_key=str(uuid4()) if adopt else posted.get("idempotency_key", ""),
        expected_version=adopt or posted.get("expected_version", ""),
        reason=posted.get("reason", ""),
        problem="" if conflict or fault is None else refusals.say(fault),
        problems=forms.show_problems(fields, problems),
        errors=errors_by_field(problems),
    )
    context: dict[str, Any] = {"head": head, "snap": head.snap, "form": form, "preview": preview}
    context["base"] = posted.get("base", "") or _signed_goal(head, schema)
    if conflict is not None:
        context["conflict"] = conflict_of(posted, head.snap, conflict)
    status = 200 if fault is None else http_status(fault)
    return render(request, "dashboard/goal.html", context, status=status)


def _signed_goal(head: Head, schema: Mapping[str, Any]) -> str:
    shown = forms.goal_as_shown(schema, head.snap.goal)
    return signing.dumps(shown, salt=_GOAL_SALT, compress=True)
