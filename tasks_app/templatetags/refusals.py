"""What a refusal says to a reader of another language than English.

A refusal is worded in English where it is decided, with its facts. Other readers get the words for
its code, which never changes; a code without words is shown in English, never hidden.
"""

from collections.abc import Mapping

from django.utils.translation import get_language, gettext_lazy, gettext_noop
from django.utils.translation import gettext as _

from tasks_app.domain.errors import FieldProblem, RuntimeFault

# Messages whose codes, `invalid_input` and `invalid_value`, say nothing by themselves.
MESSAGES = (
    gettext_noop("A whole number from 0 (first) to 9 (last)."),
    gettext_noop("Name at least one field of the goal to change."),
    gettext_noop("The command is not valid."),
    gettext_noop("The decision is not valid."),
    gettext_noop("The repair is not valid."),
    gettext_noop("One of done, not_done, call_again."),
    gettext_noop("Several acts are open: name one."),
    gettext_noop("The result does not fit the act."),
    gettext_noop("The goal does not fit the workflow."),
    gettext_noop("The task's settings are not valid."),
)

REFUSALS = {
    "approval_changed": gettext_lazy("What waits now is not what you read."),
    "approval_decided": gettext_lazy("This approval is decided, expired or withdrawn already."),
    "approval_self": gettext_lazy("Someone else must decide: you asked for this, or shaped it."),
    "bad_address": gettext_lazy("Not an https address that can be published to."),
    "bad_pattern": gettext_lazy("Too many patterns, or one that is too long or has many stars."),
    "capability_required": gettext_lazy("You lack a capability that this needs."),
    "checkpoint_damaged": gettext_lazy("This checkpoint cannot be trusted; choose another."),
    "command_not_applicable": gettext_lazy("The command cannot apply to the task as it stands."),
    "deadline_passed": gettext_lazy("The task's own deadline has passed; it would fail at once."),
    "effect_in_doubt": gettext_lazy("Nobody knows whether an act has happened; settle it first."),
    "effect_not_in_doubt": gettext_lazy("No such act of this task is open."),
    "effect_not_repeatable": gettext_lazy(
        "The other side knows no keys: a second call would be a second act."
    ),
    "extra_forbidden": gettext_lazy("The workflow knows no such field."),
    "folder_not_absolute": gettext_lazy("Give the absolute path of a folder."),
    "folder_not_allowed": gettext_lazy("This folder is outside the folders that may be read."),
    "folder_not_found": gettext_lazy("There is no such folder."),
    "folder_not_readable": gettext_lazy("The folder may not be listed."),
    "host_not_allowed": gettext_lazy("Publishing to this host is not allowed."),
    "idempotency_mismatch": gettext_lazy("This form was sent before with other contents."),
    "initiator_revoked": gettext_lazy("Who asked for this task may not start tasks any more."),
    "literal_error": gettext_lazy("Choose one of the values offered."),
    "missing": gettext_lazy("This field is needed."),
    "no_documents": gettext_lazy("The folder holds no document to review."),
    "no_good_checkpoint": gettext_lazy("The task has no checkpoint that can be trusted."),
    "no_open_question": gettext_lazy("No question of this task waits for an answer."),
    "not_a_folder": gettext_lazy("This is a file, not a folder."),
    "not_found": gettext_lazy("Not found."),
    "not_json": gettext_lazy("This is not JSON."),
    "proof_required": gettext_lazy("Say how you know that it was done."),
    "reason_required": gettext_lazy("Say why, in 1 to 500 characters."),
    "reserved_key": gettext_lazy("Only the server states this."),
    "schema_mismatch": gettext_lazy("The answer does not fit the question."),
    "string_too_long": gettext_lazy("The text is too long."),
    "string_too_short": gettext_lazy("The text is too short."),
    "target_not_a_folder": gettext_lazy("This is a file, not a folder."),
    "target_not_absolute": gettext_lazy("Give the absolute path of a folder, or an https address."),
    "target_not_allowed": gettext_lazy("This folder is outside those that may be published to."),
    "task_closing": gettext_lazy("The task is ending already."),
    "task_dead_lettered": gettext_lazy("The task is held: repair it or cancel it."),
    "task_not_held": gettext_lazy("The task is not held any more."),
    "task_terminal": gettext_lazy("The task has ended; nothing changes it any more."),
    "repair_not_applicable": gettext_lazy("The repair cannot apply to the task as it stands."),
    "tenant_suspended": gettext_lazy("The tenant is suspended: it can be read, not changed."),
    "too_long": gettext_lazy("The list is too long."),
    "unknown_act": gettext_lazy("The workflow has no such act."),
    "unknown_command": gettext_lazy("There is no such command."),
    "unknown_field": gettext_lazy("There is no such field."),
    "unknown_focus": gettext_lazy("This is no category and no rule."),
    "version_required": gettext_lazy("The form does not say which version it acts on."),
}


def say(fault: RuntimeFault) -> str:
    """Return what a page says about a refusal."""
    errors: tuple[FieldProblem, ...] = getattr(fault, "errors", ())
    if errors and fault.message == errors[0].detail:
        return detail(errors[0])
    return _worded(fault.code, fault.message, fault.fields)


def detail(problem: FieldProblem) -> str:
    """Return what a page says at a field."""
    return _worded(problem.code, problem.detail, {})


def _worded(code: str, text: str, fields: Mapping[str, object]) -> str:
    if (get_language() or "en").startswith("en"):
        return text
    known = REFUSALS.get(code)
    if known is None:
        return _(text) if text else ""
    capability = fields.get("capability")
    return f"{known} ({capability})" if capability else str(known)
