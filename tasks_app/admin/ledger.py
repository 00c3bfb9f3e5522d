"""Admin pages of the ledger: effects, receipts, usage, audit. Nothing here changes anything."""

import json
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import QuerySet
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy
from typing_extensions import override

from ledger_app.models import AuditEntry, AuditStream, Effect, Receipt, Usage
from tasks_app.admin.base import (
    Column,
    ReadOnlyAdmin,
    code_column,
    code_filter,
    json_block,
    json_column,
    link,
    no_rows,
    pill_column,
    state_filter,
    yes_column,
)
from tasks_app.domain.principal import Principal
from tasks_app.models import Task
from tasks_app.templatetags.dashboard import money, short

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise


class LedgerAdmin(ReadOnlyAdmin):
    """Rows that name their tenant and task by plain id."""

    capability = "ledger:read"

    @override
    def visible_rows(self, principal: Principal) -> QuerySet[Any]:
        if not principal.can(self.capability):
            return no_rows(self.model)
        model: Any = self.model
        rows: QuerySet[Any] = model.objects.filter(tenant_id=principal.tenant_id)
        if not principal.sees_only_own(self.capability):
            return rows
        return rows.filter(task_id__in=Task.objects.visible_to(principal).values("pk"))

    @admin.display(description=gettext_lazy("task"))
    def task_link(self, obj: Any) -> SafeString:
        return link("tasks_app_task", obj.task_id, short(obj.task_id))


@admin.register(Effect)
class EffectAdmin(LedgerAdmin):
    """Acts on the outside world and their certainty."""

    list_display = ("tool", "status", "task_link", "key", "attempts", "settled_at")
    list_filter = (("state", state_filter("effect")), ("kind", code_filter("effect")))
    search_fields = ("key", "tool", "task_id__startswith")
    ordering = ("-id",)
    fields = readonly_fields = (
        "task_link", "tool", "target", "status", "kind_shown", "key", "step_key", "attempts", "fence",
        "approval_id", "args_sha256", "begun_at", "settled_at", "request_shown", "response_shown",
        "error_shown",
    )  # fmt: skip

    status = pill_column("effect", "state")
    kind_shown = code_column("effect", "kind", gettext_lazy("kind"))
    request_shown = json_column("request", gettext_lazy("request"))
    response_shown = json_column("response", gettext_lazy("answer"))
    error_shown = json_column("error", gettext_lazy("error"))


@admin.register(Receipt)
class ReceiptAdmin(LedgerAdmin):
    """What tasks delivered."""

    list_display = ("short_id", "ending", "task_link", "created_at")
    list_filter = (("outcome", code_filter("outcome")),)
    search_fields = ("task_id__startswith",)
    ordering = ("-created_at",)
    fields = readonly_fields = (
        "id", "task_link", "ending", "sha256", "created_at", "items_shown", "effects_shown",
    )  # fmt: skip

    @admin.display(description=gettext_lazy("receipt"))
    def short_id(self, obj: Receipt) -> str:
        return short(obj.pk)

    ending = code_column("outcome", "outcome", gettext_lazy("outcome"))
    items_shown = json_column("items", gettext_lazy("items"))
    effects_shown = json_column("effects", gettext_lazy("effects"))


@admin.register(Usage)
class UsageAdmin(LedgerAdmin):
    """What calls of models and paid tools used."""

    list_display = ("model", "task_link", "input_tokens", "output_tokens", "cost", "at")
    list_filter = ("model", "caller")
    search_fields = ("task_id__startswith",)
    ordering = ("-id",)
    fields = readonly_fields = (
        "task_link", "model", "caller", "source_id", "input_tokens", "output_tokens", "cost",
        "attributed_shown", "at",
    )  # fmt: skip

    attributed_shown = yes_column("attributed", gettext_lazy("attributed"))

    @admin.display(description=gettext_lazy("cost"))
    def cost(self, obj: Usage) -> str:
        return money(obj.cost_micros, obj.currency)


def _envelope_column(name: str, description: "_StrPromise") -> Column:
    @admin.display(description=description)
    def shown(_pages: ReadOnlyAdmin, obj: AuditEntry) -> str:
        return str(json.loads(obj.envelope).get(name, ""))

    return shown


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyAdmin):
    """The tenant's audit streams, entry by entry."""

    capability = "audit:read"
    list_display = ("stream", "seq", "at", "actor", "action", "target")
    search_fields = ("stream",)
    search_help_text = gettext_lazy("Name of a stream, for example task:<id>")
    ordering = ("-id",)
    fields = readonly_fields = (
        "stream", "seq", "at", "actor", "action", "target", "envelope_shown", "details_shown",
        "hash_hex", "previous_hex",
    )  # fmt: skip

    @override
    def visible_rows(self, principal: Principal) -> QuerySet[AuditEntry]:
        if not principal.can(self.capability):
            return AuditEntry.objects.none()
        streams = AuditStream.objects.filter(tenant_id=principal.tenant_id).values("stream")
        return AuditEntry.objects.filter(stream__in=streams)

    @override
    def heading(self, obj: AuditEntry) -> str:
        return f"{obj.stream} #{obj.seq}"

    actor = _envelope_column("actor", gettext_lazy("who"))
    action = _envelope_column("action", gettext_lazy("what"))
    target = _envelope_column("target", gettext_lazy("target"))

    @admin.display(description=gettext_lazy("envelope"))
    def envelope_shown(self, obj: AuditEntry) -> SafeString:
        return json_block(json.loads(obj.envelope))

    @admin.display(description=gettext_lazy("details"))
    def details_shown(self, obj: AuditEntry) -> SafeString | str:
        return json_block(json.loads(obj.details)) if obj.details else "–"

    @admin.display(description=gettext_lazy("hash"))
    def hash_hex(self, obj: AuditEntry) -> str:
        return bytes(obj.hash).hex()

    @admin.display(description=gettext_lazy("hash of the entry before"))
    def previous_hex(self, obj: AuditEntry) -> str:
        return bytes(obj.prev_hash).hex()
