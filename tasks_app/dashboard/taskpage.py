"""How one task's page is put together: head, banner, possible acts, tabs and their bodies."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from tasks_app import conf
from tasks_app.dashboard import gantt
from tasks_app.dashboard.posting import read_whole
from tasks_app.domain.principal import Principal
from tasks_app.domain.states import TERMINAL, TaskStatus
from tasks_app.policy.capabilities import allows
from tasks_app.queries import (
    artifacts,
    audit,
    checkpoints,
    effects,
    events,
    facts,
    plans,
    slices,
    steps,
)
from tasks_app.queries.snapshot import TaskSnapshot, get_snapshot
from tasks_app.templatetags import words

_UNTAKEN_SECONDS = 15


@dataclass(frozen=True, slots=True)
class Banner:
    """One sentence about what holds the task, and one act."""

    tone: str
    icon: str
    text: str
    more: str = ""
    since: datetime | None = None
    url: str = ""
    act: str = ""


@dataclass(frozen=True, slots=True)
class Act:
    """One thing a person can tell the task now; `denied` names the missing capability."""

    name: str
    label: str
    icon: str
    denied: str = ""


@dataclass(frozen=True, slots=True)
class Tab:
    """One part of the task with its own address."""

    name: str
    label: str
    url: str


@dataclass(frozen=True, slots=True)
class Head:
    """The upper part of the page."""

    snap: TaskSnapshot
    facts: facts.TaskFacts
    viewer_id: int | None = None

    @property
    def terminal(self) -> bool:
        """Tell whether the task has ended."""
        return self.snap.status in TERMINAL

    @property
    def cancelling(self) -> bool:
        """Tell whether a live task was asked to stop."""
        return self.snap.cancel_requested and not self.terminal

    @property
    def elapsed_seconds(self) -> float | None:
        """Return how long the task has run, or took."""
        if self.snap.started_at is None:
            return None
        return ((self.snap.finished_at or timezone.now()) - self.snap.started_at).total_seconds()

    @property
    def moved(self) -> str:
        """Return who changed the task last, and how."""
        last = self.facts.last_command
        if last is None:
            return ""
        return _("%(who)s: %(what)s.") % {
            "who": last.requested_by.username,
            "what": words.COMMANDS[last.type],
        }

    @property
    def own_from(self) -> int | None:
        """Return the version since which only the viewer's last command has changed the task.

        A form made at that version or later may follow the task: nobody else has moved it.
        """
        last = self.facts.last_command
        if last is None or last.requested_by.id != self.viewer_id:
            return None
        return last.old_version if last.new_version == self.snap.state_version else None

    @property
    def banner(self) -> Banner | None:
        """Return what a person should know first."""
        return _banner(self)


def get_head(principal: Principal, task_id: UUID) -> Head:
    """Return the head of a visible task; raises NotFoundError."""
    snap, more = get_snapshot(principal, task_id), facts.get_facts(principal, task_id)
    return Head(snap, more, principal.user_id)


def list_acts(principal: Principal, head: Head) -> list[Act]:
    """Return what can be told to the task in its state, with what the person lacks for it."""
    return [
        Act(name, str(label), icon, "" if allows(principal, need, head.snap) else need)
        for name, label, icon, need in _possible(head)
    ]


def task_context(
    principal: Principal, task_id: UUID, tab: str, query: Mapping[str, str]
) -> dict[str, Any]:
    """Return everything that the task page or its live fragment shows."""
    head = get_head(principal, task_id)
    before = read_whole(query.get("before", ""))
    live = {"tab": tab} | ({"before": str(before)} if before else {})
    return {
        "head": head,
        "snap": head.snap,
        "facts": head.facts,
        "tab": tab,
        "tabs": _tabs(task_id),
        "tab_label": _LABELS[tab](),
        "body_template": f"dashboard/tab_{tab}.html",
        "body": _BODIES[tab](principal, head, before),
        "live_query": urlencode(live),
    }


# --- banner and acts --------------------------------------------------------------------------
def _banner(head: Head) -> Banner | None:
    snap = head.snap
    if head.cancelling:
        return Banner("red", "stop", _("It stops at the next safe point."))
    match snap.status:
        case TaskStatus.INPUT_REQUIRED:
            return _waiting_banner(head)
        case TaskStatus.PAUSED | TaskStatus.PAUSING:
            return _paused_banner(head)
        case TaskStatus.RECOVERING:
            text = _("A worker vanished; another one takes over (recovery %(n)d of %(max)d).")
            numbers = {"n": head.facts.recoveries_in_a_row, "max": conf.runtime().max_recoveries}
            return Banner("teal", "recover", text % numbers)
        case TaskStatus.QUEUED:
            return _queued_banner(head)
        case TaskStatus.FAILED | TaskStatus.DEAD_LETTERED:
            return Banner("red", "warning", snap.status_message)
        case TaskStatus.COMPLETED if snap.refused_acts:
            return Banner(
                "amber",
                "warning",
                snap.status_message,
                url=reverse("dashboard:approval", args=[snap.refused_acts[-1].id]),
                act=_("Open the approval"),
            )
        case TaskStatus.CANCELLED:
            return Banner("neutral", "slash", _("Cancelled."), _because(head, "cancel"))
        case _:
            return None


def _waiting_banner(head: Head) -> Banner:
    snap = head.snap
    if snap.open_approval is not None:
        return Banner(
            "amber",
            "warning",
            _("Waits for a decision on %(tool)s.") % {"tool": snap.open_approval.tool},
            more=_("Expires"),
            since=snap.open_approval.expires_at,
            url=reverse("dashboard:approval", args=[snap.open_approval.id]),
            act=_("Open the approval"),
        )
    return Banner("amber", "warning", _("A question waits for an answer; see Steering."))


def _paused_banner(head: Head) -> Banner:
    if head.snap.stop_reason == "version_hold":
        return Banner("violet", "pause", head.snap.status_message)
    pausing = head.snap.status == TaskStatus.PAUSING
    text = _("Pauses at the next safe point.") if pausing else _("Paused.")
    return Banner("violet", "pause", text, _because(head, "pause"))


def _queued_banner(head: Head) -> Banner | None:
    due = head.facts.next_wake_at
    if due is None or (timezone.now() - due).total_seconds() < _UNTAKEN_SECONDS:
        return None
    return Banner("amber", "clock", _("No worker has taken it. Due since"), since=due)


def _because(head: Head, command_type: str) -> str:
    last = head.facts.last_command
    if last is None or last.type != command_type:
        return ""
    return f"{last.requested_by.username}: {last.reason}"


def _possible(head: Head) -> list[tuple[str, str, str, str]]:
    snap, steer = head.snap, "tasks:steer"
    if head.terminal:
        return []
    acts = []
    if snap.status != TaskStatus.DEAD_LETTERED:
        if snap.open_question is not None:
            acts.append(("provide_input", _("Answer the question"), "send", steer))
        if snap.status in {TaskStatus.PAUSED, TaskStatus.PAUSING}:
            acts.append(("resume", _("Resume task"), "play", steer))
        else:
            acts.append(("pause", _("Pause task"), "pause", steer))
        if not snap.closing_as:
            acts.append(("adjust_goal", _("Change goal…"), "flag", steer))
        acts.append(("set_priority", _("Priority…"), "clock", steer))
    if not snap.cancel_requested and not snap.closing_as:
        acts.append(("cancel", _("Cancel task…"), "stop", "tasks:cancel"))
    return acts


# --- tabs -------------------------------------------------------------------------------------
_LABELS: dict[str, Callable[[], str]] = {
    "overview": lambda: _("Overview"),
    "steps": lambda: _("Steps"),
    "checkpoints": lambda: _("Checkpoints"),
    "effects": lambda: _("Effects"),
    "artifacts": lambda: _("Artifacts"),
    "events": lambda: _("Events"),
    "audit": lambda: _("Audit"),
}
TABS = tuple(_LABELS)


def _tabs(task_id: UUID) -> list[Tab]:
    return [
        Tab(
            name,
            label(),
            reverse("dashboard:task", args=[task_id])
            if name == "overview"
            else reverse("dashboard:task-tab", args=[task_id, name]),
        )
        for name, label in _LABELS.items()
    ]


def _overview(principal: Principal, head: Head, _before: int | None) -> dict[str, Any]:
    snap = head.snap
    return {
        "presented": artifacts.list_outputs(principal, snap.task_id, presented_only=True),
        "steps": _at_rest(snap, steps.list_plan(principal, snap.task_id)),
        "events": events.list_newest_events(principal, snap.task_id, limit=8).events,
        "error": snap.error,
        "result": snap.result,
        "goal": snap.goal,
    }


def _at_rest(snap: TaskSnapshot, rows: list[steps.StepRow]) -> list[steps.StepRow]:
    """Show a begun step of a task that stands still as what it is: nobody works on it."""
    shown = {TaskStatus.DEAD_LETTERED: "held", TaskStatus.PAUSED: "paused"}.get(snap.status)
    if shown is None:
        return rows
    return [
        replace(row, status=shown, finished_at=row.finished_at or snap.updated_at)
        if row.status == "running"
        else row
        for row in rows
    ]


def _steps(principal: Principal, head: Head, _before: int | None) -> dict[str, Any]:
    task_id = head.snap.task_id
    rows = _at_rest(head.snap, steps.list_plan(principal, task_id, with_retired=True))
    taken = slices.list_newest_slices(principal, task_id)
    times = checkpoints.list_checkpoint_times(principal, task_id)
    return {
        "steps": rows,
        "plans": plans.list_newest_plans(principal, task_id),
        "attempts": slices.list_newest_attempts(principal, task_id),
        "slices": taken,
        "chart": gantt.draw(rows, taken, times, now=timezone.now()),
    }


def _checkpoints(principal: Principal, head: Head, _before: int | None) -> dict[str, Any]:
    return {"checkpoints": checkpoints.list_newest_checkpoints(principal, head.snap.task_id)}


def _effects(principal: Principal, head: Head, _before: int | None) -> dict[str, Any]:
    return {
        "effects": effects.list_all_effects(principal, head.snap.task_id),
        "denied": "" if principal.can("ledger:read") else "ledger:read",
    }


def _artifacts(principal: Principal, head: Head, _before: int | None) -> dict[str, Any]:
    return {"artifacts": artifacts.list_outputs(principal, head.snap.task_id)}


def _events(principal: Principal, head: Head, before: int | None) -> dict[str, Any]:
    page = events.list_newest_events(principal, head.snap.task_id, before=before)
    return {"events": page.events, "older": page.older, "before": before}


def _audit(principal: Principal, head: Head, _before: int | None) -> dict[str, Any]:
    return {"entries": audit.list_newest_audit(principal, head.snap.task_id)}


_BODIES: dict[str, Callable[[Principal, Head, int | None], dict[str, Any]]] = {
    "overview": _overview,
    "steps": _steps,
    "checkpoints": _checkpoints,
    "effects": _effects,
    "artifacts": _artifacts,
    "events": _events,
    "audit": _audit,
}
