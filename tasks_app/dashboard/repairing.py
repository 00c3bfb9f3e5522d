"""The repair panel of a held task: its evidence, the verbs that can apply, and what was posted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from tasks_app.admission.repairs import Repaired, repair_task
from tasks_app.dashboard.access import needs
from tasks_app.dashboard.posting import (
    conflict_of,
    errors_by_field,
    http_status,
    read_uuid,
    read_whole,
)
from tasks_app.dashboard.taskpage import Head, get_head, task_context
from tasks_app.domain.errors import (
    InvalidInputError,
    NotFoundError,
    RuntimeFault,
    VersionConflictError,
)
from tasks_app.domain.principal import Principal
from tasks_app.domain.repairs import RepairVerb, Settlement, obstacle, read_texts
from tasks_app.domain.states import TaskStatus
from tasks_app.policy.capabilities import allows
from tasks_app.queries.commands import list_newest_commands
from tasks_app.queries.effects import list_effects_done
from tasks_app.queries.holds import Evidence, get_evidence, needs_of
from tasks_app.queries.repairs import list_newest_repairs
from tasks_app.templatetags import refusals
from tasks_app.templatetags.held import SETTLEMENTS, VERBS, Verb


@dataclass(frozen=True, slots=True)
class RepairForm:
    """What the panel's fields hold."""

    expected_version: str
    idempotency_key: str
    reason: str = ""
    verb: str = ""
    checkpoint: str = ""
    effect: str = ""
    outcome: str = ""
    proof: str = ""
    result: str = ""
    hold: bool = False
    goal: str = ""
    errors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VerbAct:
    """One verb on the panel; `denied` names a missing capability, `blocked` what comes first."""

    name: str
    words: Verb
    denied: str
    blocked: str
    opened: bool


def panel(
    principal: Principal, head: Head, form: RepairForm | None = None, **notes: object
) -> dict[str, Any]:
    """Return the context of the repair panel."""
    task_id = head.snap.task_id
    evidence = get_evidence(principal, task_id)
    shown = form or _fresh(head)
    return {
        "panel_template": "dashboard/_repair.html",
        "head": head,
        "snap": head.snap,
        "facts": head.facts,
        "form": shown,
        "evidence": evidence,
        "settlements": _settlements(evidence),
        "verbs": _verbs(principal, head, evidence, shown),
        "can_cancel": allows(principal, "tasks:cancel", head.snap),
        "sees_effects": principal.can("ledger:read"),
        "effects_done": list_effects_done(principal, task_id),
        "repairs": list_newest_repairs(principal, task_id),
        "commands": list_newest_commands(principal, task_id),
        **notes,
    }


@require_POST
@needs("tasks:read")
def repair(request: HttpRequest, principal: Principal, task_id: UUID) -> HttpResponse:
    """Carry out what the panel's form says, or show it again with its text."""
    head = get_head(principal, task_id)
    if request.POST.get("adopt"):
        form = _form(request.POST, version=request.POST["adopt"], key=str(uuid4()))
        return _page(request, principal, head, form, status=200)
    try:
        repaired = _submit(principal, task_id, request.POST)
    except NotFoundError:
        raise
    except RuntimeFault as fault:
        return _refused(request, principal, get_head(principal, task_id), fault)
    messages.success(request, _done_text(repaired))
    return redirect("dashboard:task", repaired.forked_task_id or task_id)


def _submit(principal: Principal, task_id: UUID, posted: QueryDict) -> Repaired:
    return repair_task(
        principal,
        task_id=task_id,
        repair_id=read_uuid(posted.get("idempotency_key", "")),
        verb=posted.get("verb", ""),
        payload=read_texts(
            posted.get("verb", ""), {name: str(value) for name, value in posted.items()}
        ),
        expected_version=read_whole(posted.get("expected_version", "")),
        reason=posted.get("reason", ""),
        source="dashboard",
    )


def _done_text(repaired: Repaired) -> str:
    if repaired.forked_task_id is not None:
        return _("This task replaces the held one, which has ended.")
    match TaskStatus(repaired.status):
        case TaskStatus.QUEUED if repaired.verb == RepairVerb.CLOSE:
            return _("The task ends as failed once what it did is undone.")
        case TaskStatus.QUEUED:
            return _("Repaired. Any worker takes it on from here.")
        case TaskStatus.DEAD_LETTERED:
            return _("The act is settled. The task is still held.")
        case _:
            return _("The task has ended.")


# --- the panel again ------------------------------------------------------------------------
def _refused(
    request: HttpRequest, principal: Principal, head: Head, fault: RuntimeFault
) -> HttpResponse:
    problems = fault.errors if isinstance(fault, InvalidInputError) else ()
    errors = errors_by_field(problems)
    posted = request.POST
    form = _form(
        posted, posted.get("expected_version", ""), posted.get("idempotency_key", ""), errors
    )
    if isinstance(fault, VersionConflictError):
        note: dict[str, object] = {"conflict": conflict_of(posted, head.snap, fault)}
    elif errors:
        note = {"problem": _("Some fields need another look. Nothing was sent.")}
    else:
        note = {"problem": refusals.say(fault)}
    return _page(request, principal, head, form, status=http_status(fault), **note)


def _page(
    request: HttpRequest,
    principal: Principal,
    head: Head,
    form: RepairForm,
    *,
    status: int,
    **notes: object,
) -> HttpResponse:
    """Show the task's page with the form as it was sent; a task that is not held has no form."""
    if head.snap.hold is None:
        messages.error(request, _("Nothing was sent: the task is not held any more."))
        return redirect("dashboard:task", head.snap.task_id)
    whole = task_context(principal, head.snap.task_id, "overview", {})
    context = whole | panel(principal, head, form, **notes)
    return render(request, "dashboard/task.html", context, status=status)


def _fresh(head: Head) -> RepairForm:
    return RepairForm(expected_version=str(head.snap.state_version), idempotency_key=str(uuid4()))


def _form(
    posted: QueryDict, version: str, key: str, errors: Mapping[str, str] | None = None
) -> RepairForm:
    names = ("reason", "checkpoint", "effect", "outcome", "proof", "result", "goal")
    return RepairForm(
        expected_version=version,
        idempotency_key=key,
        verb=posted.get("verb", "") or posted.get("was", ""),
        hold=bool(posted.get("hold")),
        errors=errors or {},
        **{name: posted.get(name, "") for name in names},
    )


def _verbs(principal: Principal, head: Head, evidence: Evidence, form: RepairForm) -> list[VerbAct]:
    acts: list[VerbAct] = []
    for verb, shown in VERBS.items():
        missing = (need for need in needs_of(verb) if not allows(principal, need, head.snap))
        code = obstacle(verb, evidence.state)
        acts.append(
            VerbAct(
                name=verb.value,
                words=shown,
                denied=next(missing, ""),
                blocked=str(refusals.REFUSALS[code]) if code else "",
                opened=form.verb == verb.value,
            )
        )
    return acts


def _settlements(evidence: Evidence) -> list[tuple[str, str]]:
    """Return the answers that can be given; to an opaque act nobody says "call again"."""
    opaque = bool(evidence.effects) and all(row.kind == "opaque" for row in evidence.effects)
    return [
        (outcome.value, str(text))
        for outcome, text in SETTLEMENTS.items()
        if not (opaque and outcome is Settlement.CALL_AGAIN)
    ]
