"""The tables below a task's fields in the admin; the same reads as the task's own page."""

from uuid import UUID

from django.utils.translation import gettext as _

from tasks_app.admin.base import Panel, link
from tasks_app.domain.principal import Principal
from tasks_app.queries.approvals import list_task_approvals
from tasks_app.queries.artifacts import list_outputs
from tasks_app.queries.audit import list_newest_audit
from tasks_app.queries.checkpoints import list_newest_checkpoints
from tasks_app.queries.commands import list_newest_commands
from tasks_app.queries.effects import list_all_effects
from tasks_app.queries.events import list_newest_events
from tasks_app.queries.relatives import Relative, list_relatives
from tasks_app.queries.repairs import list_newest_repairs
from tasks_app.queries.steps import list_plan
from tasks_app.templatetags import words
from tasks_app.templatetags.dashboard import ago, duration, event_text, media, pill, size
from tasks_app.templatetags.held import cause_title, verb_label


def task_panels(principal: Principal, task_id: UUID) -> list[Panel]:
    """Return the tables of a task's page that the person may read."""
    panels = [
        _commands_panel(principal, task_id),
        *_repairs_panel(principal, task_id),
        _steps_panel(principal, task_id),
        _checkpoints_panel(principal, task_id),
    ]
    if principal.can("approvals:read"):
        panels.insert(0, _approvals_panel(principal, task_id))
    if principal.can("ledger:read"):
        panels.append(_effects_panel(principal, task_id))
    if principal.can("artifacts:read"):
        panels.append(_artifacts_panel(principal, task_id))
    parent, children = list_relatives(principal, task_id)
    if parent is not None:
        panels.append(_family_panel(_("Parent task"), (parent,)))
    if children:
        panels.append(_family_panel(_("Child tasks"), children))
    return [*panels, _events_panel(principal, task_id), _audit_panel(principal, task_id)]


def _approvals_panel(principal: Principal, task_id: UUID) -> Panel:
    rows = list_task_approvals(principal, task_id)
    return Panel(
        _("Approvals"),
        (_("Act"), _("State"), _("Asked"), _("Expires")),
        [
            (
                link("tasks_app_approval", row.id, row.tool),
                pill("approval", row.status),
                ago(row.created_at),
                ago(row.expires_at),
            )
            for row in rows
        ],
    )


def _commands_panel(principal: Principal, task_id: UUID) -> Panel:
    rows = list_newest_commands(principal, task_id, limit=50)
    return Panel(
        _("Commands"),
        (_("Command"), _("State"), _("By"), _("Reason"), _("Version"), _("Sent")),
        [
            (
                words.COMMANDS.get(row.type, row.type),
                pill("command", row.status),
                row.requested_by.username,
                row.reason,
                f"{row.old_version} → {row.new_version or '–'}",
                ago(row.created_at),
            )
            for row in rows
        ],
    )


def _repairs_panel(principal: Principal, task_id: UUID) -> list[Panel]:
    """Return what was done while the task was held; nothing for a task that never was."""
    rows = list_newest_repairs(principal, task_id, limit=50)
    columns = (_("Repair"), _("Held for"), _("State"), _("By"), _("Reason"), _("Version"), _("At"))
    shown = [
        (
            verb_label(row.verb),
            cause_title(row.cause),
            pill("task", row.status),
            row.requested_by.username,
            row.reason,
            f"{row.old_version} → {row.new_version}",
            ago(row.created_at),
        )
        for row in rows
    ]
    return [Panel(_("Repairs"), columns, shown)] if shown else []


def _steps_panel(principal: Principal, task_id: UUID) -> Panel:
    rows = list_plan(principal, task_id)[:50]
    return Panel(
        _("Steps"),
        (_("Step"), _("State"), _("Items"), _("Attempts"), _("Time")),
        [
            (
                row.key,
                pill("step", row.status),
                row.items_done or "",
                row.attempts or "",
                duration(row.seconds),
            )
            for row in rows
        ],
    )


def _checkpoints_panel(principal: Principal, task_id: UUID) -> Panel:
    rows = list_newest_checkpoints(principal, task_id, limit=10)
    return Panel(
        _("Checkpoints"),
        (_("Number"), _("Next step"), _("Why"), _("Checksum"), _("Size"), _("Written")),
        [
            (
                f"#{row.seq}",
                row.next_step or "–",
                words.code("checkpoint", row.reason),
                _("verified") if row.verified else _("mismatch"),
                size(row.size_bytes),
                ago(row.created_at),
            )
            for row in rows
        ],
    )


def _family_panel(title: str, rows: tuple[Relative, ...]) -> Panel:
    return Panel(
        title,
        (_("Step"), _("Task"), _("State")),
        [
            (row.step_key, link("tasks_app_task", row.task_id, row.title), pill("task", row.status))
            for row in rows
        ],
    )


def _effects_panel(principal: Principal, task_id: UUID) -> Panel:
    return Panel(
        _("Effects"),
        (_("Act"), _("State"), _("Key"), _("Attempts"), _("Settled")),
        [
            (
                link("ledger_app_effect", row.id, row.tool),
                pill("effect", row.state),
                row.key,
                row.attempts,
                ago(row.settled_at),
            )
            for row in list_all_effects(principal, task_id)
        ],
    )


def _artifacts_panel(principal: Principal, task_id: UUID) -> Panel:
    return Panel(
        _("Artifacts"),
        (_("Name"), _("Type"), _("Size"), "SHA-256"),
        [
            (
                link("tasks_app_artifact", row.id, row.name),
                media(row.media_type),
                size(row.size_bytes),
                row.sha256[:12],
            )
            for row in list_outputs(principal, task_id)
        ],
    )


def _events_panel(principal: Principal, task_id: UUID) -> Panel:
    page = list_newest_events(principal, task_id, limit=50)
    return Panel(
        _("Events"),
        (_("Number"), _("Type"), _("Facts"), _("At")),
        [
            (
                row.seq,
                words.look("event", row.type).word,
                event_text(row.type, row.data),
                ago(row.at),
            )
            for row in page.events
        ],
    )


def _audit_panel(principal: Principal, task_id: UUID) -> Panel:
    return Panel(
        _("Audit"),
        (_("Number"), _("Who"), _("What"), _("Version"), _("At")),
        [
            (
                row.seq,
                row.who,
                row.action,
                f"{row.old_version or '–'} → {row.new_version}" if row.new_version else "",
                ago(row.at),
            )
            for row in list_newest_audit(principal, task_id)[:50]
        ],
    )
