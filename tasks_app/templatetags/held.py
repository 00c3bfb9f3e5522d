"""Words about held tasks: what each cause means, what each verb does. A test compares the docs."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django import template
from django.utils.translation import gettext_lazy as _

from tasks_app.domain.repairs import RepairVerb, Settlement

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise

register = template.Library()


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a task is held, in a few words and in a sentence."""

    title: "str | _StrPromise"
    meaning: "str | _StrPromise"


@dataclass(frozen=True, slots=True)
class Verb:
    """A button for one verb, and what pressing it will do."""

    label: "str | _StrPromise"
    doing: "str | _StrPromise"
    icon: str


CAUSES = {
    "checkpoint_damaged": Cause(
        _("Checkpoint damaged"),
        _("The newest checkpoint cannot be trusted. Nothing was executed after that was seen."),
    ),
    "effect_in_doubt": Cause(
        _("Outcome of an act unknown"),
        _("A call was made and its answer was lost. It may have happened or not."),
    ),
    "effect_key_reused": Cause(
        _("Act under a used key"),
        _("The workflow's code changed: its act does not fit the one in the ledger."),
    ),
    "too_many_recoveries": Cause(
        _("Too many recoveries"),
        _("Its workers vanished again and again, and no step was finished in between."),
    ),
    "step_failed": Cause(
        _("Step failed"), _("A step has used up its tries, and its workflow asks a person.")
    ),
    "compensation_failed": Cause(
        _("Could not be undone"), _("An act that should be undone could not be.")
    ),
    "artifact_damaged": Cause(
        _("Output damaged"), _("An output that would be delivered is not what was stored.")
    ),
    "configuration_error": Cause(
        _("Code does not fit"), _("The workflow's code cannot run the stored plan.")
    ),
    "result_invalid": Cause(
        _("Wrong result"),
        _("A function returned something else than its annotation promises."),
    ),
    "not_repeatable": Cause(
        _("Function took another way"),
        _("Called again, the function did other things than what is stored of it."),
    ),
    "scope_full": Cause(
        _("Too many calls in one turn"),
        _("A function or one turn of its loop made more calls than are kept for it."),
    ),
    "state_too_large": Cause(
        _("State too large"), _("What a function carries from turn to turn is too large.")
    ),
}

VERBS = {
    RepairVerb.CONTINUE_FROM: Verb(
        _("Continue from a checkpoint"),
        _("The task goes on behind that checkpoint. Finished steps keep their results."),
        "play",
    ),
    RepairVerb.SETTLE_EFFECT: Verb(
        _("Settle the act"),
        _("The ledger keeps what you found out; then the task goes on."),
        "shield",
    ),
    RepairVerb.REQUEUE: Verb(
        _("Requeue task"),
        _("Any worker goes on with it, with fresh recoveries and fresh tries of the open step."),
        "recover",
    ),
    RepairVerb.FORK: Verb(
        _("Fork as a new task"),
        _("A new task for the same person begins anew; this one ends as cancelled."),
        "plus",
    ),
    RepairVerb.CLOSE: Verb(
        _("Close as failed"),
        _("The task ends as failed and cannot be repaired any more. Results stay readable."),
        "cross",
    ),
}

SETTLEMENTS = {
    Settlement.DONE: _("Done: it has happened, and is not called again"),
    Settlement.NOT_DONE: _("Not done: it has certainly not happened; the step calls anew"),
    Settlement.CALL_AGAIN: _("Call again, with the same key"),
}


@register.filter
def cause_title(code: str) -> str:
    """Return a cause in a few words; an unknown one by its own name, never hidden."""
    known = CAUSES.get(code)
    return str(known.title) if known else code.replace("_", " ").capitalize()


@register.filter
def cause_meaning(code: str) -> str:
    """Return what a cause means."""
    known = CAUSES.get(code)
    return str(known.meaning if known else _("The task cannot go on by itself."))


@register.filter
def verb_label(name: str) -> str:
    """Return the word for a verb."""
    return str(VERBS[RepairVerb(name)].label)


@register.simple_tag
def settlements() -> list[tuple[str, str]]:
    """Return what a person can say about an act in doubt, with its words."""
    return [(outcome.value, str(text)) for outcome, text in SETTLEMENTS.items()]
