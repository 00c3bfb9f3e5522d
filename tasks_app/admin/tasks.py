"""Admin pages of tasks: read in full, with the panel and the list actions that tell them what to do."""

from typing import Any
from uuid import UUID, uuid4

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST
from typing_extensions import override

from tasks_app.admin.base import (
    ActPanel,
    Panel,
    ReadOnlyAdmin,
    code_column,
    json_column,
    refusal_text,
)
from tasks_app.admin.panels import task_panels
from tasks_app.admin.task_acts import list_acts, skipped_because, submit, word_of
from tasks_app.admission.session import find_principal
from tasks_app.domain.errors import RuntimeFault
from tasks_app.domain.principal import Principal
from tasks_app.domain.repairs import RepairVerb
from tasks_app.domain.states import TERMINAL, TaskStatus, progress_of
from tasks_app.models import Task
from tasks_app.queries.snapshot import split_owner
from tasks_app.queries.tasks import is_cancelling
from tasks_app.templatetags import words
from tasks_app.templatetags.dashboard import ago, percent, pill, translated
from tasks_app.templatetags.held import VERBS


class StatusFilter(admin.SimpleListFilter):
    """Narrow a list of tasks to one status."""

    title = gettext_lazy("status")
    parameter_name = "status"

    @override
    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(str(s), str(words.look("task", s).word)) for s in TaskStatus]

    @override
    def queryset(self, request: HttpRequest, queryset: QuerySet[Task]) -> QuerySet[Task]:
        return queryset.filter(status=self.value()) if self.value() else queryset


@admin.register(Task)
class TaskAdmin(ReadOnlyAdmin):
    """Tasks: read in full, told what to do through the same admission as everywhere else."""

    list_display = ("title", "state", "progress", "phase_shown", "lease", "updated")
    list_filter = (StatusFilter, "workflow")
    search_fields = ("title", "id__startswith")
    search_help_text = gettext_lazy("Title, or the beginning of the id")
    ordering = ("-created_at", "-id")
    actions = (
        "pause_tasks", "resume_tasks", "cancel_tasks", "set_priority_of_tasks", "requeue_tasks",
        "close_tasks",
    )  # fmt: skip
    fields = (
        "id", "workflow_and_version", "state", "progress", "phase_shown", "lease", "state_version",
        "plan_version", "priority", "recoveries_total", "started_by", "door", "created_at",
        "started_at", "finished_at", "goal_shown", "result_shown", "error_shown",
    )  # fmt: skip
    readonly_fields = fields

    @override
    def heading(self, obj: Task) -> str:
        return obj.title

    # --- columns --------------------------------------------------------------------------
    @admin.display(description=gettext_lazy("state"), ordering="status")
    def state(self, obj: Task) -> SafeString:
        return pill("task", obj.status, cancelling=is_cancelling(obj))

    @admin.display(description=gettext_lazy("progress"))
    def progress(self, obj: Task) -> str:
        share = progress_of(TaskStatus(obj.status), obj.progress_done, obj.progress_total)
        return percent(share) or "–"

    @admin.display(description=gettext_lazy("lease"))
    def lease(self, obj: Task) -> str:
        if obj.lease_owner is None:
            return "–"
        host, pid = split_owner(obj.lease_owner)
        return f"{host} #{pid}, {_('fence')} {obj.fence}"

    @admin.display(description=gettext_lazy("updated"), ordering="updated_at")
    def updated(self, obj: Task) -> SafeString:
        return ago(obj.updated_at)

    @admin.display(description=gettext_lazy("started by"))
    def started_by(self, obj: Task) -> str:
        return obj.initiator.get_username()

    @admin.display(description=gettext_lazy("workflow"))
    def workflow_and_version(self, obj: Task) -> str:
        return f"{obj.workflow} v{obj.workflow_version}"

    @admin.display(description=gettext_lazy("phase"))
    def phase_shown(self, obj: Task) -> str:
        return translated(obj.phase) or "–"

    door = code_column("source", "source", gettext_lazy("source"))
    goal_shown = json_column("goal", gettext_lazy("goal"))
    result_shown = json_column("result", gettext_lazy("result"))
    error_shown = json_column("error", gettext_lazy("error"))

    # --- panels ---------------------------------------------------------------------------
    @override
    def panels(self, principal: Principal, obj: Task) -> list[Panel]:
        return task_panels(principal, obj.pk)

    @override
    def act_panel(self, principal: Principal, obj: Task) -> ActPanel | None:
        if TaskStatus(obj.status) in TERMINAL:
            return None
        return ActPanel(
            url=reverse("admin:tasks_app_task_act", args=[obj.pk]),
            hidden={"expected_version": obj.state_version, "idempotency_key": uuid4()},
            acts=list_acts(principal, obj),
            button="type",
            note=_("Acting on version %(version)s.") % {"version": obj.state_version},
        )

    # --- acting on one --------------------------------------------------------------------
    @override
    def get_urls(self) -> list[URLPattern]:
        act = self.admin_site.admin_view(self.act)
        return [path("<uuid:task_id>/act/", act, name="tasks_app_task_act"), *super().get_urls()]

    @method_decorator(require_POST)
    def act(self, request: HttpRequest, task_id: UUID) -> HttpResponse:
        """Submit one command, or one repair of a held task, from the act panel."""
        type_ = request.POST.get("type", "")
        text = _("%(command)s accepted. It takes effect at the next safe point.")
        if type_ in VERBS:
            text = _("%(command)s: done.")
        return self.acted(request, task_id, submit, text % {"command": word_of(type_)})

    # --- acting on many -------------------------------------------------------------------
    @admin.action(description=gettext_lazy("Pause tasks…"))
    def pause_tasks(self, request: HttpRequest, queryset: QuerySet[Task]) -> HttpResponse:
        return self._bulk(request, queryset, "pause")

    @admin.action(description=gettext_lazy("Resume tasks…"))
    def resume_tasks(self, request: HttpRequest, queryset: QuerySet[Task]) -> HttpResponse:
        return self._bulk(request, queryset, "resume")

    @admin.action(description=gettext_lazy("Cancel tasks…"))
    def cancel_tasks(self, request: HttpRequest, queryset: QuerySet[Task]) -> HttpResponse:
        return self._bulk(request, queryset, "cancel")

    @admin.action(description=gettext_lazy("Set priority…"))
    def set_priority_of_tasks(self, request: HttpRequest, queryset: QuerySet[Task]) -> HttpResponse:
        return self._bulk(request, queryset, "set_priority")

    @admin.action(description=gettext_lazy("Requeue held tasks…"))
    def requeue_tasks(self, request: HttpRequest, queryset: QuerySet[Task]) -> HttpResponse:
        return self._bulk(request, queryset, RepairVerb.REQUEUE)

    @admin.action(description=gettext_lazy("Close held tasks…"))
    def close_tasks(self, request: HttpRequest, queryset: QuerySet[Task]) -> HttpResponse:
        return self._bulk(request, queryset, RepairVerb.CLOSE)

    def _bulk(self, request: HttpRequest, queryset: QuerySet[Task], type_: str) -> HttpResponse:
        """Show what would change; on the second post submit one command for each row."""
        principal = find_principal(request)
        tasks = list(queryset[:100])
        if principal is None:
            return self.back(tasks[0])
        confirmed = request.POST.get("confirmed") == "yes"
        rows = [self._bulk_row(request, principal, task, type_, confirmed) for task in tasks]
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Outcome") if confirmed else word_of(type_),
            "rows": rows,
            "done": confirmed,
            "type": type_,
            "action": request.POST.get("action", ""),
            "reason": request.POST.get("reason", ""),
            "will": sum(1 for row in rows if row["will"]),
        }
        return TemplateResponse(request, "admin/rt/bulk.html", context)

    def _bulk_row(
        self, request: HttpRequest, principal: Principal, task: Task, type_: str, confirmed: bool
    ) -> dict[str, Any]:
        why = skipped_because(principal, task, type_)
        row: dict[str, Any] = {
            "task": task,
            "will": not why,
            "text": why,
            "version": task.state_version,
            "key": uuid4(),
        }
        if why or not confirmed:
            return row
        posted = {
            "type": type_,
            "reason": request.POST.get("reason", ""),
            "priority": request.POST.get("priority", ""),
            "expected_version": request.POST.get(f"version-{task.pk}", ""),
            "idempotency_key": request.POST.get(f"key-{task.pk}", ""),
        }
        try:
            submit(principal, task.pk, posted)
        except RuntimeFault as fault:
            return row | {"text": refusal_text(fault, posted["expected_version"]), "will": False}
        self.told(request, task, _("%(command)s accepted.") % {"command": word_of(type_)})
        return row | {"text": _("accepted")}
