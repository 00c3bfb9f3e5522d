"""Words for the columns that admin pages show under their own names.

Given to the fields when a page is registered: Django writes a `verbose_name` that stands in a
model into its migrations, and a word is no reason to change a table.
"""

from typing import Any

from django.db.models import Field, Model
from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop, pgettext_lazy

LABELS = {
    "actor": _("actor"),
    "allowed_cidrs": _("networks"),
    "applied_at": _("applied at"),
    "approval_id": _("approval"),
    "args_sha256": _("digest of the arguments"),
    "at": _("at"),
    "attempts": pgettext_lazy("count", "attempts"),
    "attributed": _("attributed"),
    "begun_at": _("begun at"),
    "caller": _("caller"),
    "cancel_action": _("cancel action"),
    "cancel_reason": _("cancel reason"),
    "catch_up_limit": _("catch-up limit"),
    "command_id": _("command id"),
    "created_at": _("created at"),
    "cron": _("cron expression"),
    "disconnect_deadline": _("disconnect deadline"),
    "due_at": _("due at"),
    "ended_at": _("ended at"),
    "expires_at": _("expires at"),
    "fence": _("fence"),
    "finished_at": _("finished at"),
    "fired": _("times fired"),
    "fires_at": _("fires at"),
    "granted_at": _("granted at"),
    "hidden_at": _("hidden at"),
    "id": _("id"),
    "input_tokens": _("input tokens"),
    "interval_seconds": _("interval in seconds"),
    "items_failed": _("items failed"),
    "jitter_seconds": _("jitter in seconds"),
    "key": _("key"),
    "key_id": _("key id"),
    "kind": _("kind"),
    "last_fired_at": _("last fired at"),
    "last_used_at": _("last used at"),
    "max_autonomy": _("max autonomy"),
    "max_concurrent_tasks": _("most running tasks"),
    "media_type": _("media type"),
    "method": _("method"),
    "model": _("model"),
    "name": _("name"),
    "next_item": _("next item"),
    "next_step": _("next step"),
    "next_try_at": _("next try at"),
    "not_before": _("not before"),
    "number": _("number"),
    "outcome": _("outcome"),
    "output_tokens": _("output tokens"),
    "overlap": _("overlap"),
    "pause_reason": _("reason of the pause"),
    "paused_at": _("paused at"),
    "phase": _("phase"),
    "plan_version": _("plan version"),
    "presented": _("presented"),
    "priority": _("priority"),
    "reason": _("reason"),
    "recovered": _("took over"),
    "recoveries_total": _("recoveries in total"),
    "rejection": _("rejection"),
    "retired_in": _("replaced by plan"),
    "retry_at": _("again at"),
    "revoked_at": _("revoked at"),
    "revoked_reason": _("reason of the revocation"),
    "schema_version": _("schema version"),
    "sent_at": _("sent again at"),
    "seq": _("number"),
    "settled_at": _("settled at"),
    "sha256": _("SHA-256"),
    "skipped": _("times skipped"),
    "slot": _("slot"),
    "slug": _("short name"),
    "source": _("source"),
    "source_id": _("source id"),
    "started_at": _("started at"),
    "state": _("state"),
    "state_version": _("version"),
    "status": _("state"),
    "step_key": _("step"),
    "steps": pgettext_lazy("count", "steps"),
    "strategy": _("strategy"),
    "stream": _("stream"),
    "target": _("target"),
    "time_zone": _("time zone"),
    "title": _("title"),
    "tool": _("act"),
    "tries": _("tries"),
    "type": _("type"),
    "updated_at": _("updated at"),
    "version": _("version"),
    "weight": _("weight"),
    "worker": _("worker"),
    "workflow": _("workflow"),
    "workflow_version": _("workflow version"),
}

# Texts of Django's admin that its own Chinese catalogue lacks, or renders word by word.
DJANGOS = (
    gettext_noop(" By %(filter_title)s "),
    gettext_noop("Add link"),
    gettext_noop("Change or view list link"),
    gettext_noop("Error:"),
    gettext_noop("Forgotten your login credentials?"),
    gettext_noop("Model name"),
    gettext_noop("None available"),
)


def name_fields(model: type[Model]) -> None:
    """Give a model's fields the words under which people read them."""
    for field in model._meta.get_fields():  # noqa: SLF001 - Django's name
        if isinstance(field, Field) and field.name in LABELS:
            known: Any = LABELS[field.name]
            field.verbose_name = known
