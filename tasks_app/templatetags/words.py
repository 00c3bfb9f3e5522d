"""The word, icon and colour of every state a page can show. Never colour alone."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop

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
        # What pages say of a running one when its task stands still.
        "held": Look(_("Held"), "warning", "red"),
        "paused": Look(_("Paused"), "pause", "neutral"),
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
        "message": Look(_("Message"), "note", "blue"),
        "values": Look(_("Values"), "doc", "neutral"),
        "checkpoint": Look(_("Checkpoint"), "check", "neutral"),
        "steering.applied": Look(_("Command"), "flag", "violet"),
        "budget": Look(_("Budget"), "warning", "amber"),
        "repaired": Look(_("Repaired"), "recover", "violet"),
        "input_required": Look(_("Input required"), "warning", "amber"),
        "child": Look(_("Child task"), "note", "blue"),
        "model_error": Look(_("Model error"), "warning", "amber"),
        "delivery": Look(_("Delivery"), "doc", "green"),
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
    "loop": _("goes in turns"),
    "child": _("starts a task"),
}

# Codes that tables show in small: what ended a slice, why a checkpoint was written, which door a
# request used, and what an act does when it is tried twice.
BUDGETS: "dict[str, str | _StrPromise]" = {
    "steps": _("Steps"),
    "active_seconds": _("Active time"),
    "tool_calls": _("Tool calls"),
    "tokens": _("Tokens"),
    "money_micros": _("Money"),
}

CODES: "dict[str, dict[str, str | _StrPromise]]" = {
    "outcome": {
        "running": _("running"),
        "slice_spent": _("handed on"),
        "shutdown": _("worker stopped"),
        "retry": _("tries again"),
        "sleeping": _("sleeping"),
        "child": _("waits for a child task"),
        "input_required": _("waits for a person"),
        "paused": _("paused"),
        "cancelled": _("cancelled"),
        "completed": _("completed"),
        "failed": _("failed"),
        "dead_lettered": _("needs repair"),
        "version_hold": _("held for other code"),
        "lost": _("lost"),
        "crashed": _("crashed"),
    },
    "checkpoint": {
        "policy": _("policy"),
        "hand_on": _("handed on"),
        "steering": _("steering"),
        "expensive": _("after expensive work"),
        "failure": _("failure"),
        "approval": _("approval"),
        "question": _("question"),
        "sleep": _("sleep"),
        "child": _("child task"),
        "effect": _("effect"),
        "dead_letter": _("dead letter"),
        "end": _("end"),
        "version_hold": _("held for other code"),
        "rewind": _("continued from an older one"),
    },
    "plan": {
        "admission": _("started"),
        "adjust_goal": _("goal changed"),
        "migration": _("migrated to other code"),
        "compensation": _("undoing"),
        "repair": _("repair"),
    },
    "source": {
        "rest": _("REST"),
        "mcp": _("MCP"),
        "admin": _("admin"),
        "dashboard": _("dashboard"),
        "schedule": _("schedule"),
        "webhook": _("webhook"),
        "code": _("code"),
        "child": _("parent task"),
        "session": _("session"),
        "api_key": _("API key"),
        "system": _("system"),
    },
    "effect": {"keyed": _("keyed"), "queryable": _("queryable"), "opaque": _("opaque")},
    "decision": {"approve": _("approved"), "deny": _("denied")},
    "member": {
        "active": _("active"),
        "disabled": _("disabled"),
        "suspended": _("suspended"),
        "closed": _("closed"),
    },
    "role": {
        "viewer": _("viewer"),
        "submitter": _("submitter"),
        "operator": _("operator"),
        "approver": _("approver"),
        "admin": _("administrator"),
        "auditor": _("auditor"),
    },
    # Values of a report's facts that are words.
    "level": {
        "low": _("low"),
        "medium": _("medium"),
        "high": _("high"),
        "critical": _("critical"),
    },
    "kind": {"folder": _("folder"), "http": _("HTTP")},
}

# Names of facts in results and events. A name that is not here is shown as it is stored.
FACTS: "dict[str, str | _StrPromise]" = {
    "artifact_id": _("Artifact"),
    "attempt": _("Attempt"),
    "changed": _("Changed"),
    "clauses": _("Clauses"),
    "code": _("Code"),
    "critical": _("Critical"),
    "documents": _("Documents"),
    "files": _("Files"),
    "folder": _("Folder"),
    "high": _("High"),
    "item": _("Item"),
    "kind": _("Kind"),
    "level": _("Level"),
    "levels": _("Levels"),
    "low": _("Low"),
    "media_type": _("Media type"),
    "medium": _("Medium"),
    "name": _("Name"),
    "path": _("Path"),
    "publication": _("Publication"),
    "reason": _("Reason"),
    "reference": _("Reference"),
    "replayed": _("Replayed"),
    "retry": _("Retry"),
    "reviewed": _("Reviewed"),
    "rules": _("Rules"),
    "score": _("Score"),
    "sha256": _("SHA-256"),
    "size_bytes": _("Size"),
    "step": _("Step"),
    "target": _("Target"),
    "title": _("Title"),
    "top_risks": _("Top risks"),
    "unreadable": _("Unreadable"),
    "uri": _("Uri"),
}

# Phases that the engine itself stores; those of workflows are marked where they are declared.
PHASES = (gettext_noop("Waiting for approval"), gettext_noop("Waiting for an answer"))


def code(kind: str, value: str) -> str:
    """Return the word for a code; an unknown one is shown as it is."""
    return str(CODES[kind].get(value, value))


def fact(name: str) -> str:
    """Return the name of a fact for reading."""
    return str(FACTS.get(name) or name.replace("_", " ").strip().capitalize())


def look(kind: str, value: str) -> Look:
    """Return how a state appears; an unknown one is shown by its own name, never hidden."""
    return LOOKS[kind].get(value) or Look(value.replace("_", " ").capitalize(), "dot", "neutral")
