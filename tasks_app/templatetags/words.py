"""The word, icon and colour of every state a page can show. Never colour alone."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise


@dataclass(frozen=True, slots=True)
class Look:
    """How one state appears."""

    word: "str | _StrPromise"
    icon: str
    tone: str


CANCELLING = Look(_("Cancelling"), "stop", "red")

LOOKS: dict[str, dict[str, Look]] = {
    "task": {
        "queued": Look(_("Queued"), "ring", "neutral"),
        "working": Look(_("Working"), "play", "blue"),
        "input_required": Look(_("Input required"), "warning", "amber"),
        "pausing": Look(_("Pausing"), "pause", "violet"),
        "paused": Look(_("Paused"), "pause", "violet"),
        "recovering": Look(_("Recovering"), "recover", "teal"),
        "completed": Look(_("Completed"), "check", "green"),
        "failed": Look(_("Failed"), "cross", "red"),
        "timed_out": Look(_("Timed out"), "clock", "red"),
        "cancelled": Look(_("Cancelled"), "slash", "neutral"),
        "dead_lettered": Look(_("Needs repair"), "tray", "red"),
    },
    "effect": {
        "planned": Look(_("Planned"), "ring", "neutral"),
        "begun": Look(_("In flight"), "send", "blue"),
        "succeeded": Look(_("Succeeded"), "check", "green"),
        "failed": Look(_("Failed"), "cross", "red"),
        "in_doubt": Look(_("Unknown"), "warning", "amber"),
        "compensated": Look(_("Compensated"), "recover", "teal"),
    },
    "step": {
        "planned": Look(_("Planned"), "ring", "neutral"),
        "running": Look(_("Running"), "play", "blue"),
        "waiting": Look(_("Waiting"), "clock", "amber"),
        "succeeded": Look(_("Succeeded"), "check", "green"),
        "failed": Look(_("Failed"), "cross", "red"),
        "skipped": Look(_("Skipped"), "slash", "neutral"),
        "superseded": Look(_("Superseded"), "slash", "neutral"),
    },
    "approval": {
        "pending": Look(_("Waiting"), "warning", "amber"),
        "approved": Look(_("Approved"), "check", "blue"),
        "consumed": Look(_("Done"), "check", "green"),
        "denied": Look(_("Denied"), "cross", "red"),
        "expired": Look(_("Expired"), "clock", "neutral"),
        "superseded": Look(_("Superseded"), "slash", "neutral"),
        "cancelled": Look(_("Cancelled"), "slash", "neutral"),
    },
    "event": {
        "task.snapshot": Look(_("Continued"), "recover", "teal"),
        "status": Look(_("State"), "flag", "blue"),
        "progress": Look(_("Progress"), "play", "neutral"),
        "log": Look(_("Log"), "note", "neutral"),
        "artifact": Look(_("Artifact"), "doc", "green"),
        "checkpoint": Look(_("Checkpoint"), "check", "neutral"),
        "steering.applied": Look(_("Command"), "flag", "violet"),
        "input_required": Look(_("Input required"), "warning", "amber"),
        "terminal": Look(_("Ended"), "stop", "neutral"),
    },
    "command": {
        "pending": Look(_("Pending"), "clock", "amber"),
        "applied": Look(_("Applied"), "check", "green"),
        "rejected": Look(_("Rejected"), "cross", "red"),
        "superseded": Look(_("Superseded"), "slash", "neutral"),
    },
}


COMMANDS: "dict[str, str | _StrPromise]" = {
    "pause": _("Pause"),
    "resume": _("Resume"),
    "cancel": _("Cancel"),
    "adjust_goal": _("Change goal"),
    "provide_input": _("Answer"),
    "set_priority": _("Priority"),
}

STEP_KINDS: "dict[str, str | _StrPromise]" = {
    "step": _("step"),
    "map": _("for every item"),
    "approval": _("asks a person"),
    "question": _("asks a person"),
    "effect": _("acts outside"),
    "sleep": _("waits"),
}


def look(kind: str, value: str) -> Look:
    """Return how a state appears; an unknown one is shown by its own name, never hidden."""
    return LOOKS[kind].get(value) or Look(value.replace("_", " ").capitalize(), "dot", "neutral")
