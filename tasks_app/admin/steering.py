"""Admin pages of what people told tasks: commands, and approvals with their act panel."""

from uuid import UUID

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_POST
from typing_extensions import override

from tasks_app.admin.base import (
    ActPanel,
    Panel,
    PanelAct,
    code_column,
    json_block,
    json_column,
    pill_column,
    read_whole,
    state_filter,
    word_filter,
)
from tasks_app.admin.execution import OfTask
from tasks_app.admission import approvals
from tasks_app.domain.principal import Principal
from tasks_app.models import Approval, Repair, SteeringCommand
from tasks_app.queries.approvals import get_approval
from tasks_app.templatetags import acts, words
from tasks_app.templatetags.dashboard import ago, command_word, pretty, visible
from tasks_app.templatetags.held import cause_title, verb_label


@admin.register(SteeringCommand)
class SteeringCommandAdmin(OfTask):
    """Stored instructions to tasks."""

    list_display = ("what", "state", "task_link", "asked_by", "versions", "created_at")
    list_select_related = ("task", "requested_by")
    list_filter = (("type", word_filter(command_word)), ("status", state_filter("command")))
    search_fields = ("task__id__startswith", "requested_by__username")
    ordering = ("-id",)
    fields = readonly_fields = (
        "task_link", "command_id", "what", "state", "rejection", "asked_by", "door",
        "reason_shown", "versions", "created_at", "applied_at", "payload_shown",
    )  # fmt: skip

    state = pill_column("command")
    door = code_column("source", "source", gettext_lazy("source"))

    @admin.display(description=gettext_lazy("type"), ordering="type")
    def what(self, obj: SteeringCommand) -> str:
        return command_word(obj.type)

    @admin.display(description=gettext_lazy("by"))
    def asked_by(self, obj: SteeringCommand) -> str:
        return obj.requested_by.get_username()

    @admin.display(description=gettext_lazy("version"))
    def versions(self, obj: SteeringCommand) -> str:
        return f"{obj.old_version} → {obj.new_version or '–'}"

    @admin.display(description=gettext_lazy("reason"))
    def reason_shown(self, obj: SteeringCommand) -> SafeString:
        return visible(obj.reason)

    payload_shown = json_column("payload", gettext_lazy("payload"))


@admin.register(Repair)
class RepairAdmin(OfTask):
    """What people did with held tasks."""

    list_display = ("what", "held_for", "task_link", "asked_by", "versions", "created_at")
    list_select_related = ("task", "requested_by")
    list_filter = (("verb", word_filter(verb_label)), ("cause", word_filter(cause_title)))
    search_fields = ("task__id__startswith", "requested_by__username")
    ordering = ("-id",)
    fields = readonly_fields = (
        "task_link", "what", "held_for", "left_as", "asked_by", "door", "reason_shown", "versions",
        "created_at", "payload_shown",
    )  # fmt: skip

    left_as = pill_column("task")
    door = code_column("source", "source", gettext_lazy("source"))

    @admin.display(description=gettext_lazy("type"), ordering="verb")
    def what(self, obj: Repair) -> str:
        return verb_label(obj.verb)

    @admin.display(description=gettext_lazy("held for"), ordering="cause")
    def held_for(self, obj: Repair) -> str:
        return cause_title(obj.cause)

    @admin.display(description=gettext_lazy("by"))
    def asked_by(self, obj: Repair) -> str:
        return obj.requested_by.get_username()

    @admin.display(description=gettext_lazy("version"))
    def versions(self, obj: Repair) -> str:
        return f"{obj.old_version} → {obj.new_version}"

    @admin.display(description=gettext_lazy("reason"))
    def reason_shown(self, obj: Repair) -> SafeString:
        return visible(obj.reason)

    payload_shown = json_column("payload", gettext_lazy("payload"))


@admin.register(Approval)
class ApprovalAdmin(OfTask):
    """Approvals: every argument in full, decided through admission like everywhere else."""

    capability = "approvals:read"
    list_display = ("tool", "state", "task_link", "asked_by", "expires", "needed")
    list_select_related = ("task__initiator",)
    list_filter = (("status", state_filter("approval")), "tool")
    search_fields = ("tool", "task__id__startswith")
    ordering = ("-created_at",)
    fields = readonly_fields = (
        "task_link", "tool", "state", "asked_by", "needed", "created_at", "expires",
        "args_sha256", "arguments_shown", "show_shown",
    )  # fmt: skip

    @override
    def heading(self, obj: Approval) -> str:
        return _("Approval of %(tool)s") % {"tool": obj.tool}

    state = pill_column("approval")

    @admin.display(description=gettext_lazy("asked for by"))
    def asked_by(self, obj: Approval) -> str:
        return obj.task.initiator.get_username()

    @admin.display(description=gettext_lazy("expires"), ordering="expires_at")
    def expires(self, obj: Approval) -> SafeString:
        return ago(obj.expires_at)

    @admin.display(description=gettext_lazy("needs"))
    def needed(self, obj: Approval) -> str:
        text = ngettext("%(n)d approval", "%(n)d approvals", obj.required)
        return text % {"n": obj.required}

    @admin.display(description=gettext_lazy("arguments"))
    def arguments_shown(self, obj: Approval) -> SafeString:
        act = acts.describe(obj.task.workflow, obj.tool, obj.arguments)
        return format_html_join(
            "",
            '<p class="rt-arg"><code>{}</code></p><pre class="rt-json" dir="auto">{}</pre>',
            ((visible(a.name), pretty(a.value)) for a in act.arguments),
        )

    @admin.display(description=gettext_lazy("what it would publish"))
    def show_shown(self, obj: Approval) -> SafeString | str:
        show = obj.display.get("show")
        return "–" if show is None else json_block(show)

    @override
    def panels(self, principal: Principal, obj: Approval) -> list[Panel]:
        rows = [
            (
                d.by.username,
                words.code("decision", d.decision),
                d.reason,
                words.code("source", d.via),
                ago(d.at),
            )
            for d in get_approval(principal, obj.pk).decisions
        ]
        columns = (_("Who"), _("Decision"), _("Reason"), _("Through"), _("At"))
        return [Panel(_("Decisions"), columns, rows)]

    @override
    def act_panel(self, principal: Principal, obj: Approval) -> ActPanel | None:
        if obj.status != "pending":
            return None
        need = "approvals:decide"
        denied = "" if principal.can(need) else need
        note = ""
        if obj.task.initiator_id == principal.user_id:
            note = _("You asked for this; someone else must decide.")
        buttons = [
            PanelAct("approve", _("Approve %(tool)s") % {"tool": obj.tool}, denied=denied),
            PanelAct("deny", _("Deny %(tool)s") % {"tool": obj.tool}, danger=True, denied=denied),
        ]
        return ActPanel(
            url=reverse("admin:tasks_app_approval_act", args=[obj.pk]),
            hidden={"version": obj.version, "args_sha256": obj.args_sha256},
            acts=[] if note else buttons,
            button="decision",
            note=note
            or _("You decide the request with digest %(d)s.") % {"d": obj.args_sha256[:12]},
        )

    @override
    def get_urls(self) -> list[URLPattern]:
        act = self.admin_site.admin_view(self.act)
        route = path("<uuid:approval_id>/act/", act, name="tasks_app_approval_act")
        return [route, *super().get_urls()]

    @method_decorator(require_POST)
    def act(self, request: HttpRequest, approval_id: UUID) -> HttpResponse:
        """Submit one decision from the act panel."""
        approved = request.POST.get("decision") == "approve"
        return self.acted(
            request, approval_id, _decide, _("Approved.") if approved else _("Denied.")
        )


def _decide(principal: Principal, approval_id: UUID, posted: dict[str, str]) -> None:
    approvals.decide_approval(
        principal,
        approval_id=approval_id,
        decision=posted.get("decision", ""),
        args_sha256=posted.get("args_sha256", ""),
        expected_version=read_whole(posted.get("version", "")),
        reason=posted.get("reason", ""),
        source="admin",
    )
