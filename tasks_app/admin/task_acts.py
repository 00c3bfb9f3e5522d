"""What the admin's panel and list actions tell a task: commands, and repairs of a held one."""

from typing import Any
from uuid import UUID

from django.utils import timezone
from django.utils.translation import gettext as _

from tasks_app.admin.base import PanelAct, read_whole
from tasks_app.admission import commands, repairs
from tasks_app.domain import json_text
from tasks_app.domain.errors import InvalidInputError
from tasks_app.domain.principal import Principal
from tasks_app.domain.repairs import RepairVerb, obstacle, offered, read_texts
from tasks_app.domain.states import TERMINAL, TaskStatus
from tasks_app.models import Task
from tasks_app.policy.capabilities import allows
from tasks_app.queries.holds import needs_of, read_state
from tasks_app.templatetags import refusals, words
from tasks_app.templatetags.held import VERBS, verb_label


def word_of(type_: str) -> str:
    """Return the word for a command or a repair."""
    return verb_label(type_) if type_ in VERBS else str(words.COMMANDS.get(type_, ""))


def submit(principal: Principal, task_id: UUID, posted: dict[str, str]) -> None:
    """Hand one command or repair to admission, which decides everything."""
    type_ = posted.get("type", "")
    if type_ in VERBS:
        repairs.repair_task(
            principal,
            task_id=task_id,
            repair_id=_read_key(posted.get("idempotency_key", "")),
            verb=type_,
            payload=read_texts(type_, posted),
            expected_version=read_whole(posted.get("expected_version", "")),
            reason=posted.get("reason", ""),
            source="admin",
        )
        return
    commands.submit_command(
        principal,
        task_id=task_id,
        command_id=_read_key(posted.get("idempotency_key", "")),
        type=posted.get("type", ""),
        payload=_payload(posted),
        expected_version=read_whole(posted.get("expected_version", "")),
        reason=posted.get("reason", ""),
        source="admin",
    )


def _read_key(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise InvalidInputError(_("The form is damaged. Load the page again.")) from None


def _payload(posted: dict[str, str]) -> dict[str, Any]:
    match posted.get("type"):
        case "set_priority":
            text = posted.get("priority", "")
            priority = read_whole(text)
            return {"priority": text if priority is None else priority}
        case "adjust_goal":
            return _read_patch(posted.get("patch", ""))
        case "provide_input":
            return {"answer": _read_answer(posted.get("answer", ""))}
        case _:
            return {}


def _read_patch(text: str) -> dict[str, Any]:
    try:
        patch = json_text.loads(text or "{}")
    except ValueError as error:
        raise InvalidInputError(_("The change is not JSON: %(why)s") % {"why": error}) from None
    if not isinstance(patch, dict):
        raise InvalidInputError(_("The change must be a JSON object."))
    return patch


def _read_answer(text: str) -> Any:
    try:
        return json_text.loads(text)
    except ValueError:
        return text


def list_acts(principal: Principal, task: Task) -> list[PanelAct]:
    """Return the buttons for a task's state, with what the person lacks for each."""

    def act(
        value: str, label: str, *, need: str = "tasks:steer", danger: bool = False, input_: str = ""
    ) -> PanelAct:
        denied = "" if allows(principal, need, task) else need
        return PanelAct(value, label, danger=danger, denied=denied, input=input_)

    acts = []
    if task.status != TaskStatus.DEAD_LETTERED:
        if task.status in {TaskStatus.PAUSED, TaskStatus.PAUSING}:
            acts.append(act("resume", _("Resume task")))
        else:
            acts.append(act("pause", _("Pause task")))
        if task.status == TaskStatus.INPUT_REQUIRED:
            acts.append(act("provide_input", _("Send answer"), input_="answer"))
        if not task.closing_as:
            acts.append(act("adjust_goal", _("Change goal"), input_="patch"))
        acts.append(act("set_priority", _("Set priority"), input_="priority"))
    else:
        acts += _repair_acts(principal, task)
    if task.cancel_requested_at is None and not task.closing_as:
        acts.append(act("cancel", _("Cancel task"), need="tasks:cancel", danger=True))
    return acts


def _repair_acts(principal: Principal, task: Task) -> list[PanelAct]:
    """Return the verbs that can apply to a held task, with what the person lacks for each."""
    inputs = {
        RepairVerb.CONTINUE_FROM: "checkpoint",
        RepairVerb.SETTLE_EFFECT: "settle",
        RepairVerb.FORK: "goal",
    }
    state = read_state(task, now=timezone.now())
    return [
        PanelAct(
            verb.value,
            verb_label(verb),
            danger=verb is RepairVerb.CLOSE,
            denied=next((n for n in needs_of(verb) if not allows(principal, n, task)), ""),
            input=inputs.get(verb, ""),
        )
        for verb in offered(state)
    ]


def skipped_because(principal: Principal, task: Task, type_: str) -> str:
    """Return why a task of a list will not change; empty: it will."""
    status = TaskStatus(task.status)
    if status in TERMINAL:
        return _("already ended")
    if type_ in VERBS:
        return _not_repaired_because(principal, task, RepairVerb(type_))
    need = "tasks:cancel" if type_ == "cancel" else "tasks:steer"
    if not allows(principal, need, task):
        return _("needs the capability %(cap)s") % {"cap": need}
    if type_ == "resume" and status not in {TaskStatus.PAUSED, TaskStatus.PAUSING}:
        return _("is not paused")
    return ""


def _not_repaired_because(principal: Principal, task: Task, verb: RepairVerb) -> str:
    if task.status != TaskStatus.DEAD_LETTERED:
        return _("is not held")
    missing = next((n for n in needs_of(verb) if not allows(principal, n, task)), "")
    if missing:
        return _("needs the capability %(cap)s") % {"cap": missing}
    code = obstacle(verb, read_state(task, now=timezone.now()))
    return str(refusals.REFUSALS[code]) if code else ""
